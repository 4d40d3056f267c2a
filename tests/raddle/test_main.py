"""`python -m raddle`: the container as Raddle sees it."""

import json
import os

import pytest
import shim_lab

from raddle import cpuset, env
from raddle.cgroup import read_allotment

PLAN = "v=1;intra=512;inter=1;spin=never;mode=sequential;aff=numa;excl=0"


def shown(mounted, extra, executable=shim_lab.THIS_PYTHON, **kwargs):
    return shim_lab.python(executable, "-m", "raddle", env=extra, check=False, **kwargs)


@pytest.fixture
def mounted(tmp_path):
    return shim_lab.mount(tmp_path)


def test_it_prints_budget_plan_and_what_the_plan_comes_to_here(mounted):
    done = shown(mounted, {"PYTHONPATH": str(mounted / "python"), env.PLAN: PLAN})
    assert (done.returncode, done.stderr) == (0, "")
    document = json.loads(done.stdout)
    cpus = os.sched_getaffinity(0)
    assert cpuset.ids(cpuset.parse_list(document["budget"]["cpus"])) == sorted(cpus)
    assert document["plan"] == env.decode(PLAN)
    assert 1 <= document["effective"]["intraOp"] <= len(cpus)
    assert document["effective"]["because"]["intra"].startswith("planned 512, cut to ")


def test_the_memory_limit_is_told_as_the_process_s_cgroups_have_it(mounted):
    budget = json.loads(shown(mounted, {"PYTHONPATH": str(mounted / "python")}).stdout)["budget"]
    limit_bytes = read_allotment().memory_limit_bytes
    assert budget["memoryLimitMiB"] == (None if limit_bytes is None else limit_bytes >> 20)
    assert budget["burstUs"] == read_allotment().burst_us


def test_a_container_without_a_plan_is_described_too(mounted):
    done = shown(mounted, {"PYTHONPATH": str(mounted / "python")})
    document = json.loads(done.stdout)
    assert (done.returncode, document["plan"], document["effective"]) == (0, None, None)


def test_a_plan_that_can_not_be_read_is_the_problem_and_the_exit_status(mounted):
    done = shown(mounted, {"PYTHONPATH": str(mounted / "python"), env.PLAN: "v=1;intra=many"})
    assert done.returncode == 1
    assert "intra" in json.loads(done.stdout)["problem"]
    assert done.stderr == ""


def test_fewer_cpus_are_seen(mounted):
    one = [min(os.sched_getaffinity(0))]
    extra = {"PYTHONPATH": str(mounted / "python"), env.PLAN: PLAN}
    document = json.loads(shown(mounted, extra, cpus=one).stdout)
    assert document["budget"]["cpus"] == str(one[0])
    assert document["effective"]["intraOp"] == 1


@pytest.mark.parametrize("version", shim_lab.VERSIONS)
def test_it_runs_in_every_supported_python_from_the_mount(mounted, version):
    executable = shim_lab.interpreter(version)
    if executable is None:
        pytest.skip(f"no CPython {version} here")
    done = shown(mounted, {"PYTHONUSERBASE": str(mounted), env.PLAN: PLAN}, executable)
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["effective"]["onnxruntime"] is None

"""`python -m raddle`: the container as Raddle sees it."""

import json
import os
import subprocess

import pytest
from support.runtimes import door_lab, shim_lab

from raddle import env
from raddle.cpus import cpuset
from raddle.process.cgroup import read_limits
from runtimes import pythons

PLAN = "v=1;intra_op=512;inter_op=1;spinning=never;execution_mode=sequential;affinity=numa;exclusive_cpus=0"


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
    assert document["effective"]["because"]["intraOp"].startswith("planned 512, cut to ")


def test_threads_spin_for_as_long_as_the_policys_own_entry_says(mounted):
    path = {"PYTHONPATH": str(mounted / "python")}
    told = "v=1;intra_op=1;inter_op=1;spinning=bounded;spin_duration_us=50;execution_mode=sequential;affinity=none;exclusive_cpus=0"
    entry = "session.intra_op.spin_duration_us"
    for plan, spin_us in (
        (told, 50),
        (f"{told};{entry}=1000", 1000),
        (f"{told};{entry}=0", 0),
        (f"{told};{entry}=-1", None),
    ):
        effective = json.loads(shown(mounted, {**path, env.PLAN: plan}).stdout)["effective"]
        assert (effective["spinning"], effective["spinDurationUs"]) == ("bounded", spin_us)


def test_it_names_who_says_that_the_cpus_are_the_containers_own(mounted):
    claim = {"DRA_CPUSET_one": cpuset.format_list(cpuset.of(os.sched_getaffinity(0)))}
    for variables, said in ((claim, True), ({"DRA_CPUSET_one": "dynamic"}, False), ({}, False)):
        extra = {"PYTHONPATH": str(mounted / "python"), env.PLAN: PLAN, **variables}
        effective = json.loads(shown(mounted, extra).stdout)["effective"]
        assert (" (DRA CPU claim)" in effective["because"]["intraOp"]) == said
        assert (effective["affinity"] == "numa") == said


@pytest.mark.parametrize("how", ["venv", "venv without its user's site", "system"])
def test_behind_the_door_every_python_has_it_though_its_path_has_not(how):
    python = pythons.interpreter("3.11") if how == "system" else pythons.release("ort-1.31.1")
    options = ("-s",) if how.startswith("venv ") else ()
    command = [*door_lab.prefix(), str(python), *options]
    variables = {env.PLAN: PLAN, "PATH": os.environ["PATH"]}

    def said(*words):
        return subprocess.run([*command, *words], env=variables, capture_output=True, text=True, check=True).stdout

    assert json.loads(said("-m", "raddle"))["plan"] == env.decode(PLAN)
    installed = json.loads(said("-m", "raddle"))["effective"]["onnxruntime"]
    assert installed == (None if how == "system" else "1.31.1")
    assert said("-m", "raddle", "--help").startswith("usage: python -m raddle [-h]\n")
    assert (
        said("-c", "import os, sys; print([p for p in sys.path if 'opt' in p], 'PYTHONPATH' in os.environ)")
        == "[] False\n"
    )


def test_the_memory_limit_is_told_as_the_process_s_cgroups_have_it(mounted):
    budget = json.loads(shown(mounted, {"PYTHONPATH": str(mounted / "python")}).stdout)["budget"]
    limit_bytes = read_limits().memory_limit_bytes
    assert budget["memoryLimitMiB"] == (None if limit_bytes is None else limit_bytes >> 20)
    assert budget["burstUs"] == read_limits().burst_us


def test_a_container_without_a_plan_is_described_too(mounted):
    done = shown(mounted, {"PYTHONPATH": str(mounted / "python")})
    document = json.loads(done.stdout)
    assert (done.returncode, document["plan"], document["effective"]) == (0, None, None)


def test_a_plan_that_can_not_be_read_is_the_problem_and_the_exit_status(mounted):
    done = shown(mounted, {"PYTHONPATH": str(mounted / "python"), env.PLAN: "v=1;intra_op=many"})
    assert done.returncode == 1
    assert "intra" in json.loads(done.stdout)["problem"]
    assert done.stderr == ""


def test_fewer_cpus_are_seen(mounted):
    one = [min(os.sched_getaffinity(0))]
    extra = {"PYTHONPATH": str(mounted / "python"), env.PLAN: PLAN}
    document = json.loads(shown(mounted, extra, cpus=one).stdout)
    assert document["budget"]["cpus"] == str(one[0])
    assert document["effective"]["intraOp"] == 1


@pytest.mark.slow
@pytest.mark.parametrize("version", pythons.VERSIONS)
def test_it_runs_in_every_supported_python_from_the_mount(mounted, version):
    executable = pythons.interpreter(version)
    done = shown(mounted, {"PYTHONPATH": str(mounted / "python"), env.PLAN: PLAN}, executable)
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["effective"]["onnxruntime"] is None

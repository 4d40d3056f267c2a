"""Every language reads the same quota from every layout of cgroups; the expected values stand in cgroup_layouts.

The set of CPUs is not compared: C and Node.js ask the kernel for the thread's affinity, which lies within the cpuset.
"""

import importlib.util
import json
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest
from cgroup_layouts import LAYOUTS
from cgroup_strategies import cases, write
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from raddle import totals
from raddle.cgroup import read_allotment

HERE = Path(__file__).parent
NODE_CGROUP = HERE.parents[1] / "runtime" / "node" / "cgroup.cjs"
RUNNING = [layout for layout in LAYOUTS if not layout.recorded]
IDS = [layout.name for layout in RUNNING]


def load(name):
    spec = importlib.util.spec_from_file_location(name, HERE / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# The harness that is built there, sanitizers and all.
answers = load("test_native_contract").answers


@pytest.fixture(scope="module")
def roots(tmp_path_factory):
    folder = tmp_path_factory.mktemp("layouts")
    return {layout.name: layout.make(folder / str(number)) for number, layout in enumerate(RUNNING)}


def node(code, *arguments):
    """What a Node.js program prints."""
    found = shutil.which("node")
    if found is None:
        pytest.skip("no node here")
    return subprocess.run([found, "-e", code, *arguments], capture_output=True, text=True, check=True).stdout


def by_node(roots):
    """What the Node.js shim reads from each."""
    code = "const { readQuota } = require(process.argv[1]); const roots = process.argv.slice(2);"
    code += " console.log(JSON.stringify(roots.map((root) => readQuota(root))));"
    return json.loads(node(code, NODE_CGROUP, *roots))


@pytest.fixture(scope="module")
def node_answers(roots):
    """Layout -> what the Node.js shim reads."""
    return dict(zip(roots, by_node(roots.values()), strict=True))


@pytest.mark.parametrize("layout", RUNNING, ids=IDS)
def test_node_reads_the_quota_and_where_it_is(layout, roots, node_answers):
    found, path = node_answers[layout.name], layout.expected.get("quota_path")
    assert found["quotaCPUs"] == layout.expected.get("quota_cpus")
    assert found["directory"] == (None if path is None else str(roots[layout.name] / str(path)))


@pytest.mark.parametrize("layout", RUNNING, ids=IDS)
def test_the_native_shim_reads_the_quota(layout, roots, answers):
    quota_cpus = layout.expected.get("quota_cpus")
    assert answers([roots[layout.name]], "--quota") == ["-" if quota_cpus is None else f"{quota_cpus:.17g}"]


@settings(deadline=None, max_examples=5, suppress_health_check=list(HealthCheck))
@given(st.lists(cases(), min_size=30, max_size=30))
def test_every_language_reads_the_same_from_random_hierarchies(answers, some):
    with tempfile.TemporaryDirectory() as folder:
        roots = [Path(folder, str(number)) for number in range(len(some))]
        for case, root in zip(some, roots, strict=True):
            write(case, root)
        expected = [read_allotment(root) for root in roots]
        native = answers(roots, "--quota")
        in_node = by_node(roots)
    assert [None if text == "-" else float(text) for text in native] == [one.quota_cpus for one in expected]
    assert in_node == [{"quotaCPUs": one.quota_cpus, "directory": one.quota_path} for one in expected]


@pytest.mark.parametrize(
    "texts",
    [
        {"cpu.stat": "usage_usec 900\nnr_periods 4\nnr_throttled 2\nthrottled_usec 77\nnr_bursts 3\n"},
        {"cpu.stat": "usage_usec 5\n", "cpu.pressure": "some avg10=0.00 total=123\nfull avg10=0.00 total=9\n"},
        {"cpu.stat": "nr_periods 4\nnr_throttled 2\nthrottled_time 77123\n", "cpuacct.usage": "900999\n"},
        {"cpu.stat": "usage_usec many\nrubbish\n\n__proto__ 5\n", "cpu.pressure": "total=\n"},
        {},
    ],
)
def test_a_cgroup_s_totals_have_the_same_names_and_numbers(texts, tmp_path):
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    code = "const { read } = require(process.argv[1]); console.log(JSON.stringify(read(process.argv[2])));"
    found = json.loads(node(code, NODE_CGROUP.with_name("totals.cjs"), tmp_path))
    expected = dict(totals.read(str(tmp_path), recent=False))
    for one in (found, expected):
        assert one.pop("processCpuUs") > 0
        assert one.pop("tasks") >= 1
    assert found == expected

"""Python and C read the same quota from every layout of cgroups; the expected values stand in cgroup_layouts.

The set of CPUs is not compared: C asks the kernel for the thread's affinity, which lies within the cpuset.
"""

import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from support.cgroup_layouts import LAYOUTS
from support.cgroup_strategies import cases, write
from support.examples import examples
from support.native_parts import quota

from raddle.process.cgroup import ResourceLimits, read_limits

HERE = Path(__file__).parent
RUNNING = [layout for layout in LAYOUTS if not layout.recorded]
IDS = [layout.name for layout in RUNNING]


@pytest.fixture(scope="module")
def roots(tmp_path_factory):
    folder = tmp_path_factory.mktemp("layouts")
    return {layout.name: layout.make(folder / str(number)) for number, layout in enumerate(RUNNING)}


@pytest.mark.parametrize("layout", RUNNING, ids=IDS)
def test_the_native_shim_reads_the_quota_and_where_it_is(layout, roots, answers):
    quota_cpus, path = layout.expected.get("quota_cpus"), layout.expected.get("quota_path")
    expected = ResourceLimits(
        quota_cpus=quota_cpus, quota_path=None if path is None else f"{roots[layout.name]}/{path}"
    )
    assert answers([roots[layout.name]], "--quota") == [quota(expected)]


@examples(0.05, suppress_health_check=list(HealthCheck))
@given(st.lists(cases(), min_size=30, max_size=30))
def test_both_read_the_same_from_random_hierarchies(answers, some):
    with tempfile.TemporaryDirectory() as folder:
        roots = [Path(folder, str(number)) for number in range(len(some))]
        for case, root in zip(some, roots, strict=True):
            write(case, root)
        expected = [read_limits(root) for root in roots]
        assert answers(roots, "--quota") == [quota(one) for one in expected]

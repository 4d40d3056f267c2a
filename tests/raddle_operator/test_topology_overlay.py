"""Who runs where: plans as marks on a machine."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.machines import of_size

from raddle.cpus import cpuset
from raddle.planning import planner
from raddle.planning.policy import Policy
from raddle.planning.wire import RecordedPlan
from raddle_operator.cli.picture import overlay
from raddle_operator.cli.picture.model import State

# 32 CPUs: cores 0 to 7 with CPUs 16 to 23 are socket 0, cores 8 to 15 with CPUs 24 to 31 are socket 1.
MACHINE = of_size(32)


def mask(text):
    return cpuset.parse_list(text)


def plan_of(count, **policy):
    return overlay.assumed(count)._replace(policy=Policy(**policy))


def lists(marks):
    """The marks as kernel lists, without those that mark nothing."""
    sets = {name: getattr(marks, name) for name in ("outside", "idle", "pool", "caller") if getattr(marks, name)}
    found = {name: cpuset.format_list(cpus) for name, cpus in sets.items()}
    return found | ({"workers": [cpuset.format_list(one) for one in marks.workers]} if marks.workers else {})


def test_workers_that_may_use_a_whole_numa_node_share_the_pools_cpus():
    marks = overlay.planned(MACHINE, "serve", plan_of(8), mask("0-3,16-19"))
    assert lists(marks) == {"outside": "4-15,20-31", "pool": "0-3,16-19"}
    assert dict(marks.facts) == {
        "container": "serve: 4 threads, affinity numa",
        "because": "8 exclusive CPUs (Guaranteed, static CPU manager) on 4 physical cores",
        "its CPUs": "0-3,16-19",
        "workers 1-3": "CPUs 0-3,16-19",
        "memory": "NUMA node 0 holds the whole pool",
    }


def test_workers_on_two_numa_nodes_are_told_apart():
    marks = overlay.planned(MACHINE, "serve", plan_of(8), mask("0-1,8-9,16-17,24-25"))
    assert lists(marks) == {"outside": "2-7,10-15,18-23,26-31", "workers": ["0-1,16-17", "8-9,24-25", "8-9,24-25"]}
    assert dict(marks.facts)["workers 2-3"] == "CPUs 8-9,24-25"


def test_workers_with_a_core_each_leave_the_first_to_the_caller():
    marks = overlay.planned(MACHINE, "serve", plan_of(8, affinity="PerCore"), mask("0-3,16-19"))
    assert lists(marks) == {"outside": "4-15,20-31", "caller": "0,16", "workers": ["1,17", "2,18", "3,19"]}


def test_what_is_left_idle_for_one_numa_node_is_marked():
    marks = overlay.planned(MACHINE, "serve", plan_of(16), mask("0-6,8,16-22,24"))
    assert lists(marks) == {"outside": "7,9-15,23,25-31", "idle": "8,24", "pool": "0-6,16-22"}


def test_a_core_that_no_thread_gets_is_idle():
    marks = overlay.planned(MACHINE, "serve", plan_of(8, affinity="PerCore", intra_op=2), mask("0-3,16-19"))
    assert lists(marks) == {"outside": "4-15,20-31", "caller": "0,16", "workers": ["1,17"], "idle": "2-3,18-19"}


def test_threads_that_are_not_tied_are_the_pools():
    marks = overlay.planned(MACHINE, "serve", plan_of(8, affinity="Never"), mask("0-3,16-19"))
    assert lists(marks) == {"outside": "4-15,20-31", "pool": "0-3,16-19"}


def test_advice_for_throughput_is_said():
    marks = overlay.planned(MACHINE, "serve", plan_of(16, objective="Throughput"), mask("0-7,16-23"))
    assert dict(marks.facts)["advice"].startswith("2 workers of 4 threads: ")


def test_many_workers_with_a_core_each_are_left_to_the_picture():
    marks = overlay.planned(MACHINE, "serve", plan_of(16, affinity="PerCore"), mask("0-7,16-23"))
    assert len(marks.workers) == 7
    assert not [name for name, _ in marks.facts if name.startswith("worker")]


@given(st.sets(st.integers(0, 31), min_size=1), st.sampled_from(["Auto", "PerCore", "Never"]))
def test_each_exclusive_cpu_has_exactly_one_use_and_all_others_are_outside(cpus, affinity):
    marks = overlay.planned(MACHINE, "serve", plan_of(len(cpus), affinity=affinity), cpuset.of(cpus))
    pinned = 0
    for group in marks.workers:
        pinned |= group
    uses = [marks.outside, marks.idle, marks.pool, marks.caller, pinned]
    assert sum(map(cpuset.count, uses)) == 32
    assert cpuset.ids(marks.outside) == [cpu for cpu in range(32) if cpu not in cpus]


@pytest.mark.parametrize(
    ("recorded", "cpus", "message"),
    [
        (plan_of(2), "30-33", "CPUs 32-33 are not online; there are 0-31"),
        (plan_of(2), "", "--exclusive names no CPU; there are 0-31"),
        (plan_of(2), "0-3", "container serve asks for 2 CPUs for itself; 4 are given"),
        (plan_of(2)._replace(budget=planner.Budget(quota_cpus=2.0)), "0-1", "is not Guaranteed with whole CPUs"),
    ],
)
def test_cpus_that_the_kubelet_would_not_give_are_an_error(recorded, cpus, message):
    with pytest.raises(overlay.OverlayError, match=message):
        overlay.planned(MACHINE, "serve", recorded, mask(cpus))


def unplaced(**values):
    recorded = RecordedPlan(planner.Budget(), Policy(), None, "", values, {"intraOp": "limit of 4 CPUs"})
    (box,) = overlay.planned(MACHINE, "serve", recorded).boxes
    return box


def test_an_exclusive_plan_has_a_cell_for_each_thread_and_no_numbers():
    box = unplaced(intraOp=4, exclusiveCPUs=8, affinity="numa")
    assert box.names == ("container serve", "4 threads")
    assert [(cell.cpu, cell.sign) for cell in box.cells()] == [(None, "c"), (None, "w1"), (None, "w2"), (None, "w3")]
    assert box.notes == (
        "on 8 exclusive CPUs; the kubelet chooses them, their numbers are known only in the container",
        "limit of 4 CPUs",
    )


def test_a_shared_plan_ties_no_thread():
    box = unplaced(intraOp=2, affinity="none")
    assert {cell.state for cell in box.cells()} == {State.POOL}
    assert box.notes == ("on shared CPUs; the kernel places the threads", "limit of 4 CPUs")


@pytest.mark.parametrize("count", [None, "many", True, -1, 10**9])
def test_a_plan_without_a_count_is_drawn_without_threads(count):
    box = unplaced(intraOp=count)
    assert (box.names, list(box.cells())) == (("container serve", "no count is set"), [])


def test_hundreds_of_threads_are_only_counted():
    assert (unplaced(intraOp=500).names[1], unplaced(intraOp=500).cores) == ("500 threads", ())

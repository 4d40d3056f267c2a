"""Pools on the container's own exclusive CPUs: counts go down to what is placed there, and say why."""

import ctypes
import os
import platform
import struct
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest

from raddle.adapters.onnxruntime.affinity import planned, with_affinity
from raddle.adapters.onnxruntime.capabilities import RuntimeCapabilities
from raddle.adapters.onnxruntime.runtime import Runtime
from raddle.cpus import cpuset, machine_part, places
from raddle.cpus.placement import Placement
from raddle.machine import sysfs
from raddle.process import current
from raddle.process.current import Facts, place
from raddle.process.resolution import resolve

SIX = Placement(0b111111, 6, 8, 0b11111111, "6 physical cores on one NUMA node")
EIGHT = 0xFF


@pytest.mark.parametrize(
    ("fields", "facts", "intra", "because"),
    [
        ({"intra_op": 8}, Facts(EIGHT, placed=SIX), 6, "planned 8, cut to 6 physical cores on one NUMA node"),
        ({"intra_op": 6}, Facts(EIGHT, placed=SIX), 6, None),
        # Never raised to what would fit.
        ({"intra_op": 4}, Facts(EIGHT, placed=SIX), 4, None),
        ({"intra_op": 8}, Facts(EIGHT, 4.0, placed=SIX), 4, "planned 8, cut to quota 4"),
        ({"intra_op": 8}, Facts(EIGHT, 7.0, placed=SIX), 6, "planned 8, cut to 6 physical cores on one NUMA node"),
        ({"intra_op": 8, "min_intra_op": 8}, Facts(EIGHT, placed=SIX), 8, None),
        (
            {"intra_op": 4, "streams": 2},
            Facts(EIGHT, placed=SIX),
            3,
            "planned 4, cut to 6 physical cores on one NUMA node",
        ),
        (
            {"intra_op": 8},
            Facts(EIGHT, workers_seen=2, placed=SIX),
            3,
            "planned 8, cut to 6 physical cores on one NUMA node, shared by 2 workers",
        ),
    ],
)
def test_a_count_is_cut_to_the_placement(fields, facts, intra, because):
    found = resolve(fields, facts)
    assert (found.intra_op, found.because.get("intraOp")) == (intra, because)


def test_threads_that_want_a_cpu_are_counted_against_all_of_the_containers_cpus():
    # Eight CPUs are four cores: four threads and four more callers have a CPU each, a fifth caller has none.
    cores = Placement(EIGHT, 4, 4, 0b1111, "4 physical cores")
    fields = {"intra_op": 4, "spinning": "bounded", "exclusive_cpus": 8}
    assert resolve({**fields, "concurrent_runs": 5}, Facts(EIGHT, placed=cores)).spinning == "bounded"
    found = resolve({**fields, "concurrent_runs": 6}, Facts(EIGHT, placed=cores))
    assert (found.spinning, found.because["spinning"]) == ("never", "planned bounded, turned off: CPU affinity of 8")


@pytest.mark.parametrize(
    ("fields", "cpus"),
    [
        ({}, EIGHT),
        ({"exclusive_cpus": 0}, 0),
        ({"exclusive_cpus": 4}, EIGHT),
        ({"exclusive_cpus": 8}, None),
        ({"exclusive_cpus": 0}, 1),
    ],
)
def test_nothing_is_placed_on_cpus_that_are_not_the_exclusive_ones_of_the_plan(fields, cpus):
    assert place(fields, cpus) is None


# This machine, as a plan tells of it.
HERE = dict(next(machine_part.fields_of(sysfs.read_machine(), gpu=False)))


def test_this_machines_cpus_are_told_once_and_hold_the_pool():
    cpus = cpuset.of(os.sched_getaffinity(0))
    size = cpuset.count(cpus)
    fields = {"exclusive_cpus": size, "affinity": "core", "intra_op": size, **HERE}
    found = current.read_facts(fields).placed
    assert found == places.placed(fields, cpus)
    assert found.cpus
    assert not found.cpus & ~cpus
    assert 1 <= found.threads <= size
    assert places._read(fields, cpus) is places._read({**fields, "intra_op": 1}, cpus)


@pytest.mark.parametrize("told", [{}, {"cpus": "4096"}, {"cpus": "", "nodes": "0"}, {"cpus": "0-8191", "cores": "0|0"}])
def test_exclusive_cpus_that_the_plan_does_not_know_are_only_counted(told):
    cpus = cpuset.of(os.sched_getaffinity(0))
    size = cpuset.count(cpus)
    fields = {"exclusive_cpus": size, "affinity": "core", "intra_op": size, **told}
    assert current.place(fields, cpus) is None
    found = resolve(fields, Facts(cpus))
    assert (found.exclusive, found.intra_op) == (True, size)
    assert planned(fields, cpus, size) == ("", 0)


def test_all_cpus_of_this_machine_can_be_written_in_onnxruntimes_words():
    cpus = cpuset.of(os.sched_getaffinity(0))
    size = cpuset.count(cpus)
    if size == 1:
        pytest.skip("one CPU has no workers")
    text, pool = planned({"exclusive_cpus": size, "affinity": "core", "smt": 1, **HERE}, cpus, size)
    assert pool == cpus
    assert len(text.split(";")) == size - 1
    assert planned({"exclusive_cpus": size, "affinity": "core", "smt": 1, **HERE}, cpus, size + 1) == ("", 0)


# --- the thread that makes a session --------------------------------------------------------------------------------

MINE = sorted(os.sched_getaffinity(0))
two_cpus = pytest.mark.skipif(len(MINE) < 2, reason="needs two CPUs")


def in_a_thread(body):
    """What the body returns in a thread of its own, whose CPUs are nobody else's business."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(body).result()


def seen_near(cpus, before=None):
    """The CPUs of a thread that calls something near `cpus`: meanwhile and afterwards."""

    def body():
        if before:
            os.sched_setaffinity(0, before)
        meanwhile = with_affinity(cpuset.of(cpus), os.sched_getaffinity)(0)
        return sorted(meanwhile), sorted(os.sched_getaffinity(0))

    return in_a_thread(body)


@two_cpus
def test_the_thread_that_makes_a_session_is_on_the_pools_cpus_meanwhile():
    assert seen_near(MINE[1:]) == (MINE[1:], MINE)


@two_cpus
def test_a_thread_that_runs_elsewhere_than_the_pool_stays_there():
    assert seen_near(MINE[1:], before=MINE[:1]) == (MINE[:1], MINE[:1])


@two_cpus
def test_a_thread_that_is_bound_makes_a_session_on_all_cpus_and_is_bound_again():
    assert seen_near(MINE, before=MINE[:1]) == (MINE, MINE[:1])


@pytest.mark.parametrize("cpus", [MINE, [*MINE, 4000], [4000], []])
def test_a_thread_stays_where_it_is_when_the_pools_cpus_are_not_some_of_its_own(cpus):
    assert seen_near(cpus) == (MINE, MINE)


@pytest.mark.skipif(len(MINE) < 3, reason="needs three CPUs")
def test_a_thread_that_was_told_where_to_run_runs_there_again():
    assert seen_near(MINE[1:2], before=MINE[:2]) == (MINE[1:2], MINE[:2])


@two_cpus
@pytest.mark.parametrize("kind", [ValueError, KeyboardInterrupt])
def test_a_thread_has_its_cpus_back_when_the_session_fails(kind):
    def fail():
        raise kind(sorted(os.sched_getaffinity(0)))

    def body():
        with pytest.raises(kind, match=str(MINE[1:]).replace("[", ".")):
            with_affinity(cpuset.of(MINE[1:]), fail)()
        return sorted(os.sched_getaffinity(0))

    assert in_a_thread(body) == MINE


@two_cpus
def test_a_session_with_the_pools_cpus_taken_from_it_meanwhile_is_made_all_the_same():
    """As when the container is moved: the thread then has all that the container has."""

    def body():
        with_affinity(cpuset.of(MINE[1:]), lambda: os.sched_setaffinity(0, MINE[:1]))()
        return sorted(os.sched_getaffinity(0))

    assert in_a_thread(body) == MINE


SETAFFINITY = {"x86_64": 203, "aarch64": 122}.get(platform.machine())
# Words of a seccomp filter (linux/filter.h): load the call's number; if it is this one, EPERM; else allowed.
LOAD_NUMBER, IF_EQUAL, RETURN = 0x20, 0x15, 0x06
EPERM, ALLOWED = 0x00050001, 0x7FFF0000
PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS, FILTER = 22, 38, 2


def deny(number):
    """Lets the kernel refuse the system call to the calling thread, and to it only."""
    words = [(LOAD_NUMBER, 0, 0, 0), (IF_EQUAL, 0, 1, number), (RETURN, 0, 0, EPERM), (RETURN, 0, 0, ALLOWED)]
    program = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *word) for word in words))
    header = ctypes.create_string_buffer(struct.pack("HxxxxxxQ", len(words), ctypes.addressof(program)))
    prctl = ctypes.CDLL(None).prctl
    assert prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
    if prctl(PR_SET_SECCOMP, FILTER, header, 0, 0) != 0:
        pytest.skip("this kernel has no seccomp filters")


@two_cpus
@pytest.mark.skipif(SETAFFINITY is None, reason="the system call's number is not known here")
def test_a_session_is_made_where_a_sandbox_lets_no_thread_choose_its_cpus():
    def body():
        deny(SETAFFINITY)
        with pytest.raises(PermissionError):
            os.sched_setaffinity(0, MINE[1:])
        return sorted(with_affinity(cpuset.of(MINE[1:]), os.sched_getaffinity)(0))

    assert in_a_thread(body) == MINE


@two_cpus
def test_threads_with_cpus_of_their_own_make_sessions_at_the_same_time():
    """All have the process's CPUs; the facts that one session is planned with stay those of its thread."""
    module = SimpleNamespace(InferenceSession=object, get_default_session_options=object)
    runtime = Runtime(RuntimeCapabilities({}, module, (1, 31)), "v=1", "1.31.1")

    def body():
        os.sched_setaffinity(0, MINE[:1])
        return runtime.current_facts()

    mine = in_a_thread(runtime.current_facts)
    theirs = in_a_thread(body)
    assert [(facts.cpus, facts.bound) for facts in (mine, theirs)] == [
        (cpuset.of(MINE), False),
        (cpuset.of(MINE), True),
    ]


def test_a_copy_of_facts_has_all_of_them():
    facts = current.read_facts({"exclusive_cpus": len(MINE)})
    assert [getattr(facts.copy(), name) for name in Facts.__slots__] == [
        getattr(facts, name) for name in Facts.__slots__
    ]

"""The plan against the facts of the process: counts only ever go down, and each cut has a reason."""

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raddle.process.current import Facts, read_facts
from raddle.process.resolution import resolve
from raddle.process.siblings import _read

EIGHT = 0xFF


@pytest.mark.parametrize(
    ("fields", "facts", "intra", "because"),
    [
        ({"intra_op": 4}, Facts(EIGHT), 4, None),
        ({"intra_op": 4}, Facts(EIGHT, 8.0), 4, None),
        ({"intra_op": 4}, Facts(EIGHT, 2.0), 2, "planned 4, cut to quota 2"),
        ({"intra_op": 4}, Facts(EIGHT, 1.5), 2, "planned 4, cut to quota 1.5"),
        ({"intra_op": 4, "floor": 1}, Facts(EIGHT, 1.5), 1, "planned 4, cut to quota 1.5"),
        ({"intra_op": 4}, Facts(EIGHT, 0.5), 1, "planned 4, cut to quota 0.5"),
        ({"intra_op": 4}, Facts(0b11), 2, "planned 4, cut to CPU affinity of 2"),
        ({"intra_op": 4}, Facts(0b11, owner="DRA CPU claim"), 2, "planned 4, cut to CPU affinity of 2 (DRA CPU claim)"),
        ({"intra_op": 4}, Facts(EIGHT, 2.0, owner="DRA CPU claim"), 2, "planned 4, cut to quota 2"),
        # A quota of at least the cpuset never throttles, so the cpuset is the reason.
        ({"intra_op": 4}, Facts(0b11, 2.0), 2, "planned 4, cut to CPU affinity of 2"),
        ({"intra_op": 4}, Facts(None, 2.0), 2, "planned 4, cut to quota 2"),
        ({"intra_op": 4}, Facts(None), 4, None),
        # The plan has counted its workers and sessions; the same facts must not cut again.
        ({"intra_op": 2, "streams": 4, "workers": 4}, Facts(EIGHT, workers_seen=4), 2, None),
        ({"intra_op": 2, "streams": 4, "workers": 2}, Facts(EIGHT, workers_seen=2), 2, None),
        (
            {"intra_op": 4, "streams": 2, "workers": 2},
            Facts(EIGHT, workers_seen=4),
            2,
            "planned 4, cut to CPU affinity of 8, shared by 4 workers",
        ),
        # Two sessions in each of four workers.
        (
            {"intra_op": 4, "streams": 4, "workers": 2},
            Facts(EIGHT, workers_seen=4),
            1,
            "planned 4, cut to CPU affinity of 8, shared by 4 workers",
        ),
        ({"intra_op": 4, "min_intra_op": 3}, Facts(EIGHT, 2.0), 3, "planned 4, cut to quota 2"),
        ({"intra_op": 4, "min_intra_op": 4}, Facts(EIGHT, 2.0), 4, None),
        ({"intra_op": 2, "min_intra_op": 8}, Facts(0b1), 2, None),
        # A known load may have more threads than its limit has CPUs, but not more than there are.
        ({"intra_op": 4, "over_quota": 1}, Facts(EIGHT, 0.5), 4, None),
        ({"intra_op": 4, "over_quota": 1}, Facts(0b11, 0.5), 2, "planned 4, cut to CPU affinity of 2"),
        # The load is that of one pool: with more of them the limit counts again.
        ({"intra_op": 4, "over_quota": 1}, Facts(EIGHT, 1.0, 3), 1, "planned 4, cut to quota 1, shared by 3 workers"),
        # A policy's own inter-op count says nothing about the intra-op one.
        ({"intra_op": 4, "min_inter_op": 4}, Facts(EIGHT, 2.0), 2, "planned 4, cut to quota 2"),
        ({}, Facts(EIGHT, 1.0), None, None),
    ],
)
def test_a_count_is_cut_to_what_the_process_really_has(fields, facts, intra, because):
    found = resolve(fields, facts)
    assert (found.intra_op, found.because.get("intraOp")) == (intra, because)


@pytest.mark.parametrize(
    ("fields", "facts", "inter", "because"),
    [
        ({"inter_op": 4}, Facts(EIGHT), 4, None),
        ({"inter_op": 4}, Facts(EIGHT, 2.0), 2, "planned 4, cut to quota 2"),
        ({"inter_op": 4, "min_intra_op": 4}, Facts(EIGHT, 2.0), 2, "planned 4, cut to quota 2"),
        # The policy names it.
        ({"inter_op": 4, "min_inter_op": 4}, Facts(EIGHT, 2.0), 4, None),
        ({"inter_op": 4, "min_inter_op": 3}, Facts(EIGHT, 2.0), 3, "planned 4, cut to quota 2"),
        ({"inter_op": 2, "min_inter_op": 8}, Facts(0b1), 2, None),
        ({}, Facts(EIGHT, 1.0), None, None),
    ],
)
def test_an_inter_op_count_is_cut_too_unless_the_policy_names_it(fields, facts, inter, because):
    found = resolve(fields, facts)
    assert (found.inter_op, found.because.get("interOp")) == (inter, because)


@pytest.mark.parametrize(
    ("fields", "facts", "size"),
    [
        ({"intra_op": 2, "global_intra_op": 8}, Facts(EIGHT), None),  # without global=1 each session has its own
        ({"intra_op": 2, "global_thread_pool": 0, "global_intra_op": 8}, Facts(EIGHT), None),
        ({"intra_op": 2, "global_thread_pool": 1}, Facts(EIGHT), 2),
        ({"intra_op": 2, "global_thread_pool": 1, "global_intra_op": 8, "streams": 4}, Facts(EIGHT), 8),
        # It is shared by the sessions of one process, so only other processes divide it.
        ({"intra_op": 2, "global_thread_pool": 1, "global_intra_op": 8, "streams": 4}, Facts(EIGHT, 4.0), 4),
        ({"intra_op": 1, "global_thread_pool": 1, "global_intra_op": 8, "streams": 8, "workers": 2}, Facts(EIGHT), 4),
        ({"intra_op": 2, "global_thread_pool": 1, "global_intra_op": 8}, Facts(EIGHT, workers_seen=4), 2),
        ({"intra_op": 2, "global_thread_pool": 1, "global_intra_op": 8, "min_intra_op": 8}, Facts(EIGHT, 4.0), 8),
        ({"intra_op": 2, "global_thread_pool": 1, "global_intra_op": 8}, Facts(None), 8),
        ({"global_thread_pool": 1}, Facts(EIGHT), None),
    ],
)
def test_a_global_pool_gets_the_share_of_the_process(fields, facts, size):
    assert resolve(fields, facts).global_intra_op == size


@pytest.mark.parametrize(
    ("fields", "facts", "exclusive"),
    [
        ({"exclusive_cpus": 8}, Facts(EIGHT), True),
        ({"exclusive_cpus": 8}, Facts(0b1111), False),  # a part of it
        ({"exclusive_cpus": 4}, Facts(EIGHT), False),  # the shared pool of a static-policy node
        ({"exclusive_cpus": 0}, Facts(0), False),
        ({}, Facts(EIGHT), False),
        ({"exclusive_cpus": 8}, Facts(None), False),
        ({"exclusive_cpus": 8, "streams": 2, "workers": 2}, Facts(EIGHT), False),
        # Somebody says that they are the container's own.
        ({"exclusive_cpus": 0}, Facts(EIGHT, owner="DRA CPU claim"), True),
        ({"exclusive_cpus": 4}, Facts(EIGHT, owner="nri-plugins"), True),
        ({"exclusive_cpus": 0, "streams": 2}, Facts(EIGHT, owner="DRA CPU claim"), False),
        ({"exclusive_cpus": 0}, Facts(EIGHT, workers_seen=2, owner="DRA CPU claim"), False),
        ({"exclusive_cpus": 8}, Facts(EIGHT, workers_seen=2), False),
    ],
)
def test_cpus_are_exclusive_only_when_they_are_as_many_as_planned_and_unshared(fields, facts, exclusive):
    assert resolve(fields, facts).exclusive is exclusive


@pytest.mark.parametrize(
    ("fields", "facts", "spin", "spin_us"),
    [
        ({"spinning": "never", "intra_op": 2}, Facts(EIGHT), "never", 0),
        ({"spinning": "always", "intra_op": 2}, Facts(EIGHT, 0.5), "always", 0),
        ({"spinning": "bounded", "spin_duration_us": 900, "intra_op": 2}, Facts(EIGHT), "bounded", 900),
        ({"spinning": "bounded", "intra_op": 2}, Facts(EIGHT), "bounded", 50),
        ({"spinning": "bounded", "intra_op": 4, "min_intra_op": 4}, Facts(EIGHT, 2.0), "never", 0),
        ({"spinning": "bounded", "intra_op": 2}, Facts(EIGHT, workers_seen=2), "never", 0),
        # Each caller of a session runs beside its workers.
        ({"spinning": "bounded", "intra_op": 4, "concurrent_runs": 5}, Facts(EIGHT), "bounded", 50),
        ({"spinning": "bounded", "intra_op": 4, "concurrent_runs": 6}, Facts(EIGHT), "never", 0),
        (
            {"spinning": "bounded", "intra_op": 4, "inter_op": 5, "execution_mode": "parallel"},
            Facts(EIGHT),
            "bounded",
            50,
        ),
        ({"spinning": "bounded", "intra_op": 4, "inter_op": 6, "execution_mode": "parallel"}, Facts(EIGHT), "never", 0),
        (
            {"spinning": "bounded", "intra_op": 4, "inter_op": 6, "execution_mode": "sequential"},
            Facts(EIGHT),
            "bounded",
            50,
        ),
        # On CPUs of the container's own it need not end, unless there are too many threads for them.
        (
            {"spinning": "bounded", "intra_op": 4, "exclusive_cpus": 8, "exclusive_spinning": "always"},
            Facts(EIGHT),
            "always",
            0,
        ),
        ({"spinning": "bounded", "intra_op": 4, "exclusive_cpus": 8}, Facts(EIGHT), "bounded", 50),
        (
            {"spinning": "bounded", "intra_op": 4, "exclusive_cpus": 4, "exclusive_spinning": "always"},
            Facts(EIGHT),
            "bounded",
            50,
        ),
        (
            {
                "spinning": "bounded",
                "intra_op": 4,
                "exclusive_cpus": 8,
                "exclusive_spinning": "always",
                "concurrent_runs": 6,
            },
            Facts(EIGHT),
            "never",
            0,
        ),
        (
            {"spinning": "bounded", "intra_op": 4, "exclusive_cpus": 8, "exclusive_spinning": "always"},
            Facts(EIGHT, workers_seen=2),
            "never",
            0,
        ),
        ({}, Facts(EIGHT), None, 0),
    ],
)
def test_workers_stop_spinning_where_they_turn_out_to_share_cpus(fields, facts, spin, spin_us):
    found = resolve(fields, facts)
    assert (found.spinning, found.spin_duration_us) == (spin, spin_us)


counts = st.integers(1, 1024)
plans = st.fixed_dictionaries(
    {"intra_op": counts, "inter_op": counts},
    optional={
        "streams": counts,
        "workers": counts,
        "concurrent_runs": counts,
        "min_intra_op": counts,
        "min_inter_op": counts,
        "global_thread_pool": st.integers(0, 1),
        "global_intra_op": counts,
        "floor": st.integers(0, 1),
    },
)
quotas = st.none() | st.floats(0.001, 2048)
facts_of_all_kinds = st.builds(Facts, st.integers(1, 1 << 512), quotas, st.integers(1, 200))


@given(plans, facts_of_all_kinds)
def test_a_count_is_never_raised_and_never_below_one(fields, facts):
    found = resolve(fields, facts)
    assert 1 <= found.intra_op <= fields["intra_op"]
    assert 1 <= found.inter_op <= fields["inter_op"]
    assert ("intraOp" in found.because) == (found.intra_op < fields["intra_op"])
    if found.global_intra_op is not None:
        assert 1 <= found.global_intra_op <= fields.get("global_intra_op", fields["intra_op"])


@given(plans, facts_of_all_kinds)
def test_all_streams_together_fit_the_cpus_unless_the_policy_says_more(fields, facts):
    found = resolve(fields, facts)
    streams = max(fields.get("streams", 1), facts.workers_seen if facts.workers_seen > fields.get("workers", 1) else 1)
    size = facts.cpus.bit_count()
    assert found.intra_op * streams <= max(streams, size, streams * fields.get("min_intra_op", 1))


def test_a_listing_of_many_pages_is_read_whole():
    # The children of a parent that has hundreds are such a one; the kernel gives a page at a time.
    assert b"[stack]" in _read("/proc/self/smaps")


def test_the_facts_of_this_process_can_be_read():
    facts = read_facts()
    assert facts.cpus == sum(1 << cpu for cpu in os.sched_getaffinity(0))
    assert facts.workers_seen >= 1
    assert facts.quota_cpus is None or facts.quota_cpus > 0

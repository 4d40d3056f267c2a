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
        ({"intra": 4}, Facts(EIGHT), 4, None),
        ({"intra": 4}, Facts(EIGHT, 8.0), 4, None),
        ({"intra": 4}, Facts(EIGHT, 2.0), 2, "planned 4, cut to quota 2"),
        ({"intra": 4}, Facts(EIGHT, 1.5), 2, "planned 4, cut to quota 1.5"),
        ({"intra": 4, "floor": 1}, Facts(EIGHT, 1.5), 1, "planned 4, cut to quota 1.5"),
        ({"intra": 4}, Facts(EIGHT, 0.5), 1, "planned 4, cut to quota 0.5"),
        ({"intra": 4}, Facts(0b11), 2, "planned 4, cut to cpuset of 2"),
        ({"intra": 4}, Facts(0b11, owner="DRA CPU claim"), 2, "planned 4, cut to cpuset of 2 (DRA CPU claim)"),
        ({"intra": 4}, Facts(EIGHT, 2.0, owner="DRA CPU claim"), 2, "planned 4, cut to quota 2"),
        # A quota of at least the cpuset never throttles, so the cpuset is the reason.
        ({"intra": 4}, Facts(0b11, 2.0), 2, "planned 4, cut to cpuset of 2"),
        ({"intra": 4}, Facts(None, 2.0), 2, "planned 4, cut to quota 2"),
        ({"intra": 4}, Facts(None), 4, None),
        # The plan has counted its workers and sessions; the same facts must not cut again.
        ({"intra": 2, "streams": 4, "workers": 4}, Facts(EIGHT, workers_seen=4), 2, None),
        ({"intra": 2, "streams": 4, "workers": 2}, Facts(EIGHT, workers_seen=2), 2, None),
        (
            {"intra": 4, "streams": 2, "workers": 2},
            Facts(EIGHT, workers_seen=4),
            2,
            "planned 4, cut to cpuset of 8, shared by 4 workers",
        ),
        # Two sessions in each of four workers.
        (
            {"intra": 4, "streams": 4, "workers": 2},
            Facts(EIGHT, workers_seen=4),
            1,
            "planned 4, cut to cpuset of 8, shared by 4 workers",
        ),
        ({"intra": 4, "min": 3}, Facts(EIGHT, 2.0), 3, "planned 4, cut to quota 2"),
        ({"intra": 4, "min": 4}, Facts(EIGHT, 2.0), 4, None),
        ({"intra": 2, "min": 8}, Facts(0b1), 2, None),
        # A known load may have more threads than its limit has CPUs, but not more than there are.
        ({"intra": 4, "over_quota": 1}, Facts(EIGHT, 0.5), 4, None),
        ({"intra": 4, "over_quota": 1}, Facts(0b11, 0.5), 2, "planned 4, cut to cpuset of 2"),
        # The load is that of one pool: with more of them the limit counts again.
        ({"intra": 4, "over_quota": 1}, Facts(EIGHT, 1.0, 3), 1, "planned 4, cut to quota 1, shared by 3 workers"),
        # A policy's own inter-op count says nothing about the intra-op one.
        ({"intra": 4, "min_inter": 4}, Facts(EIGHT, 2.0), 2, "planned 4, cut to quota 2"),
        ({}, Facts(EIGHT, 1.0), None, None),
    ],
)
def test_a_count_is_cut_to_what_the_process_really_has(fields, facts, intra, because):
    found = resolve(fields, facts)
    assert (found.intra, found.because.get("intra")) == (intra, because)


@pytest.mark.parametrize(
    ("fields", "facts", "inter", "because"),
    [
        ({"inter": 4}, Facts(EIGHT), 4, None),
        ({"inter": 4}, Facts(EIGHT, 2.0), 2, "planned 4, cut to quota 2"),
        ({"inter": 4, "min": 4}, Facts(EIGHT, 2.0), 2, "planned 4, cut to quota 2"),
        # The policy names it.
        ({"inter": 4, "min_inter": 4}, Facts(EIGHT, 2.0), 4, None),
        ({"inter": 4, "min_inter": 3}, Facts(EIGHT, 2.0), 3, "planned 4, cut to quota 2"),
        ({"inter": 2, "min_inter": 8}, Facts(0b1), 2, None),
        ({}, Facts(EIGHT, 1.0), None, None),
    ],
)
def test_an_inter_op_count_is_cut_too_unless_the_policy_names_it(fields, facts, inter, because):
    found = resolve(fields, facts)
    assert (found.inter, found.because.get("inter")) == (inter, because)


@pytest.mark.parametrize(
    ("fields", "facts", "size"),
    [
        ({"intra": 2, "global_intra": 8}, Facts(EIGHT), None),  # without global=1 each session has its own
        ({"intra": 2, "global": 0, "global_intra": 8}, Facts(EIGHT), None),
        ({"intra": 2, "global": 1}, Facts(EIGHT), 2),
        ({"intra": 2, "global": 1, "global_intra": 8, "streams": 4}, Facts(EIGHT), 8),
        # It is shared by the sessions of one process, so only other processes divide it.
        ({"intra": 2, "global": 1, "global_intra": 8, "streams": 4}, Facts(EIGHT, 4.0), 4),
        ({"intra": 1, "global": 1, "global_intra": 8, "streams": 8, "workers": 2}, Facts(EIGHT), 4),
        ({"intra": 2, "global": 1, "global_intra": 8}, Facts(EIGHT, workers_seen=4), 2),
        ({"intra": 2, "global": 1, "global_intra": 8, "min": 8}, Facts(EIGHT, 4.0), 8),
        ({"intra": 2, "global": 1, "global_intra": 8}, Facts(None), 8),
        ({"global": 1}, Facts(EIGHT), None),
    ],
)
def test_a_global_pool_gets_the_share_of_the_process(fields, facts, size):
    assert resolve(fields, facts).global_intra == size


@pytest.mark.parametrize(
    ("fields", "facts", "exclusive"),
    [
        ({"excl": 8}, Facts(EIGHT), True),
        ({"excl": 8}, Facts(0b1111), False),  # a part of it
        ({"excl": 4}, Facts(EIGHT), False),  # the shared pool of a static-policy node
        ({"excl": 0}, Facts(0), False),
        ({}, Facts(EIGHT), False),
        ({"excl": 8}, Facts(None), False),
        ({"excl": 8, "streams": 2, "workers": 2}, Facts(EIGHT), False),
        # Somebody says that they are the container's own.
        ({"excl": 0}, Facts(EIGHT, owner="DRA CPU claim"), True),
        ({"excl": 4}, Facts(EIGHT, owner="nri-plugins"), True),
        ({"excl": 0, "streams": 2}, Facts(EIGHT, owner="DRA CPU claim"), False),
        ({"excl": 0}, Facts(EIGHT, workers_seen=2, owner="DRA CPU claim"), False),
        ({"excl": 8}, Facts(EIGHT, workers_seen=2), False),
    ],
)
def test_cpus_are_exclusive_only_when_they_are_as_many_as_planned_and_unshared(fields, facts, exclusive):
    assert resolve(fields, facts).exclusive is exclusive


@pytest.mark.parametrize(
    ("fields", "facts", "spin", "spin_us"),
    [
        ({"spin": "never", "intra": 2}, Facts(EIGHT), "never", 0),
        ({"spin": "always", "intra": 2}, Facts(EIGHT, 0.5), "always", 0),
        ({"spin": "bounded", "spin_us": 900, "intra": 2}, Facts(EIGHT), "bounded", 900),
        ({"spin": "bounded", "intra": 2}, Facts(EIGHT), "bounded", 50),
        ({"spin": "bounded", "intra": 4, "min": 4}, Facts(EIGHT, 2.0), "never", 0),
        ({"spin": "bounded", "intra": 2}, Facts(EIGHT, workers_seen=2), "never", 0),
        # Each caller of a session runs beside its workers.
        ({"spin": "bounded", "intra": 4, "runs": 5}, Facts(EIGHT), "bounded", 50),
        ({"spin": "bounded", "intra": 4, "runs": 6}, Facts(EIGHT), "never", 0),
        ({"spin": "bounded", "intra": 4, "inter": 5, "mode": "parallel"}, Facts(EIGHT), "bounded", 50),
        ({"spin": "bounded", "intra": 4, "inter": 6, "mode": "parallel"}, Facts(EIGHT), "never", 0),
        ({"spin": "bounded", "intra": 4, "inter": 6, "mode": "sequential"}, Facts(EIGHT), "bounded", 50),
        # On CPUs of the container's own it need not end, unless there are too many threads for them.
        ({"spin": "bounded", "intra": 4, "excl": 8, "excl_always": 1}, Facts(EIGHT), "always", 0),
        ({"spin": "bounded", "intra": 4, "excl": 8}, Facts(EIGHT), "bounded", 50),
        ({"spin": "bounded", "intra": 4, "excl": 4, "excl_always": 1}, Facts(EIGHT), "bounded", 50),
        ({"spin": "bounded", "intra": 4, "excl": 8, "excl_always": 1, "runs": 6}, Facts(EIGHT), "never", 0),
        ({"spin": "bounded", "intra": 4, "excl": 8, "excl_always": 1}, Facts(EIGHT, workers_seen=2), "never", 0),
        ({}, Facts(EIGHT), None, 0),
    ],
)
def test_workers_stop_spinning_where_they_turn_out_to_share_cpus(fields, facts, spin, spin_us):
    found = resolve(fields, facts)
    assert (found.spin, found.spin_us) == (spin, spin_us)


counts = st.integers(1, 1024)
plans = st.fixed_dictionaries(
    {"intra": counts, "inter": counts},
    optional={
        "streams": counts,
        "workers": counts,
        "runs": counts,
        "min": counts,
        "min_inter": counts,
        "global": st.integers(0, 1),
        "global_intra": counts,
        "floor": st.integers(0, 1),
    },
)
quotas = st.none() | st.floats(0.001, 2048)
facts_of_all_kinds = st.builds(Facts, st.integers(1, 1 << 512), quotas, st.integers(1, 200))


@given(plans, facts_of_all_kinds)
def test_a_count_is_never_raised_and_never_below_one(fields, facts):
    found = resolve(fields, facts)
    assert 1 <= found.intra <= fields["intra"]
    assert 1 <= found.inter <= fields["inter"]
    assert ("intra" in found.because) == (found.intra < fields["intra"])
    if found.global_intra is not None:
        assert 1 <= found.global_intra <= fields.get("global_intra", fields["intra"])


@given(plans, facts_of_all_kinds)
def test_all_streams_together_fit_the_cpus_unless_the_policy_says_more(fields, facts):
    found = resolve(fields, facts)
    streams = max(fields.get("streams", 1), facts.workers_seen if facts.workers_seen > fields.get("workers", 1) else 1)
    size = facts.cpus.bit_count()
    assert found.intra * streams <= max(streams, size, streams * fields.get("min", 1))


def test_a_listing_of_many_pages_is_read_whole():
    # The children of a parent that has hundreds are such a one; the kernel gives a page at a time.
    assert b"[stack]" in _read("/proc/self/smaps")


def test_the_facts_of_this_process_can_be_read():
    facts = read_facts()
    assert facts.cpus == sum(1 << cpu for cpu in os.sched_getaffinity(0))
    assert facts.workers_seen >= 1
    assert facts.quota_cpus is None or facts.quota_cpus > 0

"""What is read is never more than the kernel would let the process run, in any hierarchy, mounted in any way."""

import tempfile
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from support.cgroup_strategies import cases, write

from raddle.cpus import cpuset
from raddle.process.cgroup import CPUController, ResourceLimits, read_limits, usable_cpus


def read(case):
    with tempfile.TemporaryDirectory() as root:
        write(case, Path(root))
        return read_limits(root)


@given(cases())
def test_the_quota_is_the_tightest_that_can_be_seen_and_the_cpus_lie_in_every_set(case):
    found = read(case)
    limits = case.limits()
    assert found.quota_cpus == (min(limits) / 100_000 if limits else None)
    usable, quota_cpus = usable_cpus(found)
    assert usable == case.affinity
    assert all(not usable & ~cpus for cpus in case.cpus)
    # A quota that is left out is one that so many CPUs can't use up.
    assert all((quota_cpus or cpuset.count(usable)) <= limit / 100_000 for limit in limits)
    memory = [case.memory[depth] for depth in case.seen() if case.memory[depth]]
    assert found.memory_limit_bytes == (min(memory) if memory else None)


@given(cases(), st.data())
def test_a_tighter_limit_anywhere_or_one_more_mount_never_gives_more(case, data):
    depth = data.draw(st.integers(0, len(case.quotas) - 1))
    tighter = tuple(
        data.draw(st.integers(1000, quota or 900_000)) if at == depth and quota != 0 else quota
        for at, quota in enumerate(case.quotas)
    )
    mount = data.draw(st.integers(0, len(case.quotas) - 1))
    before = usable_cpus(read(case))[1]
    for other in (case._replace(quotas=tighter), case._replace(mounts=(*case.mounts, mount))):
        after = usable_cpus(read(other))[1]
        assert (after or 8) <= (before or 8)


@given(cases(), st.data())
def test_whatever_the_files_hold_it_is_read_without_an_error(case, data):
    noise = st.binary(max_size=40) | st.sampled_from(
        [b"max", b"max 0", b"-1", b"9" * 19 + b" 1", b"0-65535:1/2", b"0::/../..\n", b":cpu:/\n", b"9-1", b"\x00" * 9]
    )
    with tempfile.TemporaryDirectory() as root:
        for name in data.draw(st.sets(st.sampled_from(write(case, Path(root))))):
            path = Path(root, name)
            path.unlink()
            path.mkdir() if data.draw(st.booleans()) else path.write_bytes(data.draw(noise))
        found = read_limits(root)
        assert isinstance(found, ResourceLimits)
        assert found.quota_cpus is None or found.quota_cpus > 0
        assert CPUController(root).read().quota_cpus == found.quota_cpus
        usable, quota_cpus = usable_cpus(found)
        assert usable is None or usable > 0
        assert quota_cpus is None or quota_cpus == found.quota_cpus


@given(st.integers(0, 255), st.integers(0, 255), st.integers(0, 255), st.none() | st.floats(0.01, 9))
def test_what_may_be_used_lies_within_each_set_that_leaves_anything(online, inherited, own, quota_cpus):
    limits = ResourceLimits(inherited=inherited or None, cpuset=own or None, quota_cpus=quota_cpus)
    usable, binding = usable_cpus(limits, online)
    known = [one for one in (online, inherited, own) if one]
    together = -1
    for one in known:
        together &= one
    if not known:
        assert usable is None
    elif together:
        assert usable == together
    else:
        assert any(usable & ~one == 0 for one in known)
    assert binding is None or usable is None or binding < cpuset.count(usable)

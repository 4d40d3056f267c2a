"""A cgroup of its own, with a quota, for one child. Skipped, with the reason, where the machine lets none be made."""

import contextlib
import os
import subprocess
import sys

import pytest

from raddle_operator.local import quota

pytestmark = pytest.mark.kernel
UNAVAILABLE = quota.available()
needs_cgroup = pytest.mark.skipif(UNAVAILABLE is not None, reason=str(UNAVAILABLE))
BURN = "import time; end = time.monotonic() + 0.5\nwhile time.monotonic() < end: pass"


def burn(group):
    subprocess.run(group.command([sys.executable, "-c", BURN]), check=True)


@needs_cgroup
def test_a_process_that_wants_more_than_its_quota_is_throttled_and_counted():
    with quota.limited(0.2) as group:
        before = group.usage()
        burn(group)
        used = group.usage().since(before)
    assert used.cpu_s > 0
    assert 0 < used.throttled_periods <= used.periods
    assert used.throttled_s > 0


@needs_cgroup
def test_without_a_quota_use_is_counted_and_nothing_is_throttled():
    with quota.limited(None) as group:
        burn(group)
        used = group.usage()
    assert used.cpu_s > 0
    assert used.throttled_periods == 0


@needs_cgroup
def test_the_group_is_gone_after_the_block_and_so_are_its_processes():
    with contextlib.suppress(KeyboardInterrupt), quota.limited(0.5) as group:
        sleeper = subprocess.Popen([*group.command(["/bin/sleep", "600"])])
        raise KeyboardInterrupt
    assert sleeper.wait(timeout=30) != 0
    assert not any(path.exists() for path in group.paths)


@needs_cgroup
def test_what_a_killed_run_left_behind_is_swept():
    dead = subprocess.Popen(["/bin/true"])
    dead.wait()
    with quota.limited(None) as group:
        left = [path.parent / f"raddle-quota-{dead.pid}-0" for path in group.paths]
        for path in left:
            path.mkdir()
        quota.sweep()
        assert not any(path.exists() for path in left)
        assert all(path.exists() for path in group.paths)


@needs_cgroup
def test_two_groups_at_once_do_not_share_a_name():
    with quota.limited(None) as one, quota.limited(None) as other:
        assert not set(one.paths) & set(other.paths)


def test_the_command_enters_the_group_before_the_program_starts(tmp_path):
    group = quota.Group(version=2, paths=(tmp_path,))
    command = group.command([sys.executable, "-c", "import os, sys; print(os.getpid(), *sys.argv[1:])", "a b", "$c"])
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split(maxsplit=1)
    assert (tmp_path / "cgroup.procs").read_text().strip() == printed[0]
    assert printed[1].strip() == "a b $c"


def test_a_v1_group_is_entered_in_every_hierarchy(tmp_path):
    paths = (tmp_path / "cpu", tmp_path / "cpuacct")
    for path in paths:
        path.mkdir()
    group = quota.Group(version=1, paths=paths)
    child = subprocess.Popen(group.command(["/bin/true"]))
    child.wait()
    assert [(path / "cgroup.procs").read_text().strip() for path in paths] == [str(child.pid)] * 2


def test_v1_counters_come_from_both_controllers(tmp_path):
    (tmp_path / "cpu.stat").write_text("nr_periods 30\nnr_throttled 29\nthrottled_time 3298357676\nnr_bursts 0\n")
    (tmp_path / "cpuacct.usage").write_text("1550263666\n")
    usage = quota.Group(version=1, paths=(tmp_path,)).usage()
    assert (usage.periods, usage.throttled_periods) == (30, 29)
    assert usage.cpu_s == pytest.approx(1.550263666)
    assert usage.throttled_s == pytest.approx(3.298357676)


def test_v2_counters_come_from_one_file(tmp_path):
    (tmp_path / "cpu.stat").write_text(
        "usage_usec 1500000\nuser_usec 1\nsystem_usec 2\nnr_periods 10\nnr_throttled 4\nthrottled_usec 250000\n"
    )
    usage = quota.Group(version=2, paths=(tmp_path,)).usage()
    assert usage == quota.Usage(cpu_s=1.5, periods=10, throttled_periods=4, throttled_s=0.25)


def test_v2_counters_of_a_group_that_never_had_a_quota_are_zero(tmp_path):
    (tmp_path / "cpu.stat").write_text("usage_usec 7\n")
    assert quota.Group(version=2, paths=(tmp_path,)).usage().periods == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can drop to another user")
def test_where_no_group_can_be_made_the_reason_is_said():
    # Imported while still root: the interpreter may lie where others can't read.
    code = "from raddle_operator.local import quota; import os; os.setgroups([]); os.setgid(65534); os.setuid(65534)"
    command = [sys.executable, "-c", f"{code}; print(quota.available())"]
    there = {"PYTHONPATH": os.pathsep.join(sys.path)}
    told = subprocess.run(command, env=there, check=True, capture_output=True, text=True).stdout
    assert told.startswith("no CPU quota: ")
    assert "Permission denied" in told or "Read-only" in told or "no cgroup cpu controller" in told

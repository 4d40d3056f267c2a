"""A cgroup of its own, with a quota, for one child. Skipped, with the reason, where the machine lets none be made."""

import contextlib
import fcntl
import os
import signal
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


# A run of its own process: says when it is in its group, and stays there until it is killed or its input ends.
RUNS = """
import subprocess, sys
from raddle_operator.local import quota
with quota.limited(1.0) as group:
    command = [sys.executable, "-c", sys.argv[1], *sys.argv[2:]] if sys.argv[1:] else ["sh", "-c", "echo in; read line"]
    subprocess.run(group.command(command))
"""


@pytest.fixture
def inside():
    """A group for the runs of a test, so that no other run is waited for: paths, and what starts a program in it."""
    with quota.limited(None) as group:

        def start(*argv):
            pipe = subprocess.PIPE
            there = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
            command = group.command([sys.executable, "-c", *argv])
            return subprocess.Popen(command, env=there, stdin=pipe, stdout=pipe, stderr=pipe, text=True)

        yield group.paths, start


def left_in(paths):
    return [below for path in paths for below in path.glob("**/raddle-cpu-*/") if below != path]


@needs_cgroup
@pytest.mark.parametrize("killed", ["both", "outer"])
def test_what_killed_runs_left_is_swept_as_a_whole_unless_one_in_it_lives(killed, inside):
    paths, start = inside
    outer = start(RUNS, RUNS)
    assert outer.stdout.readline() == "in\n"
    made = left_in(paths)
    assert len(made) == 2 * len(paths)
    # The outer group has the inner run, and the inner one what that has started.
    (inner,) = [int(pid) for pid in (made[0] / "cgroup.procs").read_text().split()]
    outer.kill()
    outer.wait()
    if killed == "both":
        os.kill(inner, signal.SIGKILL)
    other = start(RUNS)
    assert other.stdout.readline() == "in\n"
    assert set(made) & set(left_in(paths)) == (set(made) if killed == "outer" else set())
    _, errors = other.communicate(timeout=60)
    assert errors == ""
    outer.communicate(timeout=60)
    # The inner run has ended by itself, by the end of its input.
    assert start(RUNS).communicate("\n", timeout=60)[0] == "in\n"
    assert left_in(paths) == []


@needs_cgroup
def test_a_group_is_its_runs_by_a_lock_not_by_the_number_of_a_process_which_may_be_anothers(inside):
    paths, start = inside
    left = [path / f"raddle-cpu-{os.getpid()}-77" for path in paths]
    for path in left:
        path.mkdir()
    assert start(RUNS).communicate("\n", timeout=60)[0] == "in\n"
    assert left_in(paths) == []


@needs_cgroup
@pytest.mark.slow
def test_what_takes_long_is_said(inside):
    paths, start = inside
    with contextlib.ExitStack() as stack:
        for path in paths:
            held = os.open(path / "cgroup.procs", os.O_RDONLY)
            stack.callback(os.close, held)
            fcntl.flock(held, fcntl.LOCK_EX)
        process = start(RUNS)
        assert process.stderr.readline() == (
            f"raddle: still waiting for another run, which holds the lock of {paths[0]}/cgroup.procs\n"
        )
    assert process.communicate("\n", timeout=60)[0] == "in\n"


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

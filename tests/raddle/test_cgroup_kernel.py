"""What is read against what the running kernel enforces: in real cgroups, made for the test and removed after it."""

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from support import cgroups

from raddle.cpus import cpuset
from raddle.process import cgroup

pytestmark = pytest.mark.kernel
RUNTIME = Path(__file__).parents[2] / "runtime"
CPUS = sorted(os.sched_getaffinity(0))
PRELUDE = """
import json, os, sys, threading, time
from raddle import files
from raddle.cpus import cpuset
from raddle.process import cgroup
def show():
    found = cgroup.read_limits()
    usable, quota = cgroup.usable_cpus(found)
    return dict(found._values(), allowed=cpuset.of(os.sched_getaffinity(0)), usable=usable, binding=quota)
"""

two_cpus = pytest.mark.skipif(len(CPUS) < 2, reason="needs two CPUs")


def inside(box, code, *, wrapper=()):
    """What the Python code prints as JSON, run in the cgroup; `wrapper` is a command to run it by."""
    done = subprocess.run(
        [*wrapper, sys.executable, "-c", PRELUDE + textwrap.dedent(code)],
        env={"PYTHONPATH": str(RUNTIME)},
        preexec_fn=box.join,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_sets_that_are_read_are_those_that_the_scheduler_obeys():
    with cgroups.boxes(2) as (outer, inner):
        inner.limit(cpus=str(CPUS[-1]))
        found = inside(inner, "print(json.dumps(show()))")
        assert found["allowed"] == found["cpuset"] == found["inherited"] == found["usable"] == cpuset.of(CPUS[-1:])
        outer_found = inside(outer, "print(json.dumps(show()))")
    assert outer_found["usable"] == outer_found["allowed"] == cpuset.of(CPUS)


@two_cpus
def test_a_process_that_pins_itself_may_use_less_than_its_cpuset():
    with cgroups.boxes() as (box,):
        found = inside(box, f"os.sched_setaffinity(0, [{CPUS[1]}]); print(json.dumps(show()))")
    assert (found["cpuset"], found["usable"]) == (cpuset.of(CPUS), cpuset.of([CPUS[1]]))


BURN = """
controller = cgroup.CPUController()
began, used = time.monotonic(), time.process_time()
while not controller.read().nr_throttled and time.monotonic() < began + 30:
    pass
wall, used = time.monotonic() - began, time.process_time() - used
stat = dict(line.split() for line in open(cgroup.read_limits().quota_path + "/cpu.stat"))
print(json.dumps(dict(show(), wall=wall, used=used, throttled_there=int(stat["nr_throttled"]))))
"""


@pytest.mark.parametrize(("outer_us", "inner_us", "where"), [(20_000, 40_000, 0), (40_000, 20_000, 1), (20_000, -1, 0)])
def test_the_quota_that_is_read_is_the_one_that_throttles(outer_us, inner_us, where):
    with cgroups.boxes(2) as nested:
        if nested[0].version == 1 and inner_us > outer_us:
            pytest.skip("version 1 refuses a child a higher quota than its parent's")
        for box, quota_us in zip(nested, (outer_us, inner_us), strict=True):
            box.limit(quota_us=quota_us)
        found = inside(nested[1], BURN)
        assert found["quota_path"] == str(nested[where].cpu)
    assert (found["quota_cpus"], found["binding"], found["period_us"]) == (0.2, 0.2, 100_000)
    assert found["nr_periods"] >= found["nr_throttled"] >= 1
    # Counted where the quota is set, and only there.
    assert found["throttled_there"] >= 1
    # A period may begin just before and just after; the last slice of each CPU may be overdrawn.
    assert found["used"] <= 0.2 * (found["wall"] + 0.2) + 0.03


def test_a_quota_that_the_cpus_cannot_use_up_takes_no_time_away():
    with cgroups.boxes() as (box,):
        box.limit(quota_us=cgroups.PERIOD_US, cpus=str(CPUS[0]))
        code = "end = time.monotonic() + 0.5\nwhile time.monotonic() < end: pass\nprint(json.dumps(show()))"
        found = inside(box, code)
    assert (found["quota_cpus"], found["binding"]) == (1.0, None)
    # Where the timer that ends a period is late, a period holds more than its quota, and the kernel counts a throttling
    # of as long: some of a millisecond. A quota that binds at half of this one would have taken 250.
    assert found["throttled_us"] < 25_000


def test_a_resize_is_seen_at_the_next_reading_in_both_directions():
    code = """
    seen = []
    for line in sys.stdin:
        found = show()
        print(json.dumps([found["quota_cpus"], found["usable"]]), flush=True)
    """
    with cgroups.boxes() as (box,):
        started = subprocess.Popen(
            [sys.executable, "-c", PRELUDE + textwrap.dedent(code)],
            env={"PYTHONPATH": str(RUNTIME)},
            preexec_fn=box.join,  # noqa: PLW1509  # joins before anything runs
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        with started:
            for quota_us, cpus in ((-1, CPUS), (50_000, CPUS[:1]), (150_000, CPUS), (20_000, CPUS), (-1, CPUS)):
                box.limit(quota_us=quota_us, cpus=cpuset.format_list(cpuset.of(cpus)))
                print(file=started.stdin, flush=True)
                quota_cpus = None if quota_us < 0 else quota_us / 100_000
                assert json.loads(started.stdout.readline()) == [quota_cpus, cpuset.of(cpus)]
            started.stdin.close()


def test_a_thread_in_a_cgroup_of_its_own_reads_its_own_limits():
    with cgroups.boxes(2) as (outer, inner):
        if outer.version == 2:
            pytest.skip("threads of version 2 need a threaded cgroup, which the machine lab has")
        outer.limit(quota_us=90_000)
        inner.limit(quota_us=30_000, cpus=str(CPUS[0]))
        code = f"""
        seen = [show()]
        def alone():
            for path in {[str(inner.cpu / "tasks"), str(inner.cpuset / "tasks")]}:
                open(path, "w").write(str(threading.get_native_id()))
            seen.append(show())
        thread = threading.Thread(target=alone)
        thread.start()
        thread.join()
        print(json.dumps([*seen, show()]))
        """
        before, alone, after = inside(outer, code)
    assert [one["quota_cpus"] for one in (before, alone, after)] == [0.9, 0.3, 0.9]
    assert alone["usable"] == alone["allowed"] == cpuset.of(CPUS[:1])
    assert after["usable"] == after["allowed"] == cpuset.of(CPUS)


UNSHARE = ["unshare", "--mount", "--cgroup", "--propagation", "private"]


def test_in_a_namespace_of_its_own_a_process_reads_what_its_mounts_show():
    with cgroups.boxes(2) as (outer, inner):
        if outer.version == 2:
            pytest.skip("the mounts of version 2 are made in the machine lab")
        outer.limit(quota_us=60_000)
        inner.limit(quota_us=30_000, cpus=str(CPUS[0]))
        try:
            subprocess.run([*UNSHARE, "true"], check=True, capture_output=True)
        except (OSError, subprocess.CalledProcessError) as error:
            pytest.skip(f"no cgroup namespace can be made here: {error}")
        host = inside(inner, "print(json.dumps(show()))")
        # As it was mounted outside: the top is an ancestor, what lies between is not told.
        outside = inside(inner, "print(json.dumps(show()))", wrapper=UNSHARE)
        mounts = "mount -t tmpfs none /mnt && mkdir /mnt/cpu /mnt/cpuset"
        for name in ("cpu", "cpuset"):
            mounts += f" && mount -t cgroup -o {name} none /mnt/{name}"
        again = [*UNSHARE, "sh", "-c", mounts + ' && exec "$@"', "sh"]
        own = inside(inner, "print(json.dumps(show()))", wrapper=again)
    assert (host["quota_cpus"], host["quota_path"]) == (0.3, str(inner.cpu))
    assert (outside["quota_cpus"], outside["quota_path"], outside["usable"]) == (None, None, cpuset.of(CPUS[:1]))
    assert (own["quota_cpus"], own["quota_path"], own["usable"]) == (0.3, "/mnt/cpu", cpuset.of(CPUS[:1]))


def test_nothing_is_left_behind():
    with cgroups.boxes(2) as nested:
        assert all(box.cpu.is_dir() for box in nested)
    assert not any(box.cpu.exists() or box.cpuset.exists() for box in nested)


def test_this_process_may_use_what_the_kernel_says():
    usable, _ = cgroup.usable_cpus(cgroup.read_limits())
    assert usable == cpuset.of(CPUS)

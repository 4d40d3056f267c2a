"""Processes and threads by /proc: files as the kernel writes them, hostile ones too, and then the real thing."""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.cgroups import boxes

from raddle_operator.agent import host_processes, samples
from raddle_operator.agent.governed import GovernedContainer, GovernedPod
from raddle_operator.agent.host_cgroups import HostCgroups
from raddle_operator.agent.host_processes import HostProcesses, parse_stat
from raddle_operator.agent.samples import Sample
from raddle_operator.agent.watching import HostSampler
from raddle_operator.objects.nodereport import Level

STATUS = (
    "Name:\tpython\nPid:\t{pid}\nNSpid:\t{pid}\t{own}\nvoluntary_ctxt_switches:\t5\nnonvoluntary_ctxt_switches:\t{n}\n"
)


def stat(number, comm=b"python", *, state=b"S", user=10, system=5, start=12345, cpu=3):
    fields = [state, *[b"1"] * 10, user, system, *[b"0"] * 4, b"4", b"0", start, *[b"0"] * 16, cpu, *[b"0"] * 13]
    words = b" ".join(one if isinstance(one, bytes) else b"%d" % one for one in fields)
    return b"%d (%s) %s\n" % (number, comm, words)


def write_thread(proc, pid, number, *, comm=b"python", schedstat=b"1000000000 500000000 7\n", involuntary=3, **fields):
    folder = proc / str(pid) / "task" / str(number)
    folder.mkdir(parents=True, exist_ok=True)
    text = stat(number, comm, **fields)
    status = STATUS.format(pid=number, own=number - 90, n=involuntary)
    for place in (folder, proc / str(pid)) if pid == number else (folder,):
        (place / "stat").write_bytes(text)
        (place / "status").write_text(status)
        if schedstat is not None:
            (place / "schedstat").write_bytes(schedstat)
    return folder


# --- files --------------------------------------------------------------------------------------------------------


def test_a_process_has_its_threads(tmp_path):
    write_thread(tmp_path, 100, 100)
    write_thread(tmp_path, 100, 101, comm=b"pool-1", schedstat=b"2000000000 1000000000 7\n", involuntary=9, cpu=5)
    (found,) = HostProcesses(str(tmp_path)).sample([100], {}).values()
    assert (found.start_s, found.own_pid, found.command, found.runtimes) == (123.45, 10, "python", None)
    assert found.threads[101] == (123.45, "pool-1", 2.0, 1.0, 9, 5, b"2000000000 1000000000 7\n")


def test_threads_beyond_what_is_looked_at_are_counted(tmp_path):
    for number in range(100, 110):
        write_thread(tmp_path, 100, number)
        write_thread(tmp_path, 200, number + 100)
    found = HostProcesses(str(tmp_path)).sample([100, 200], {}, 12)
    assert {number: (one.thread_count, len(one.threads)) for number, one in found.items()} == {
        100: (10, 10),
        200: (10, 2),
    }


def test_of_a_thread_that_did_not_run_nothing_is_read_again(tmp_path):
    write_thread(tmp_path, 100, 100)
    folder = write_thread(tmp_path, 100, 101, schedstat=b"2 1 7\n")
    processes = HostProcesses(str(tmp_path))
    before = processes.sample([100], {})
    (folder / "stat").unlink()
    after = processes.sample([100], before)
    assert after[100].threads[101] is before[100].threads[101]
    (folder / "schedstat").write_bytes(b"3 1 8\n")
    assert list(processes.sample([100], after)[100].threads) == [100]


def test_a_kernel_without_run_times_counts_ticks(tmp_path):
    write_thread(tmp_path, 100, 100, schedstat=b"0 0 0\n")
    write_thread(tmp_path, 100, 101, schedstat=None)
    processes = HostProcesses(str(tmp_path))
    before = processes.sample([100], {})
    assert {number: one[2:5] for number, one in before[100].threads.items()} == {
        100: (0.15, None, 3),
        101: (0.15, None, 3),
    }
    write_thread(tmp_path, 100, 101, schedstat=None, user=30)
    after = processes.sample([100], before)
    assert after[100].threads[100] is before[100].threads[100]
    assert after[100].threads[101].ran_s == pytest.approx(0.35)


def test_a_process_whose_number_is_anothers_now_is_read_anew(tmp_path):
    write_thread(tmp_path, 100, 100)
    processes = HostProcesses(str(tmp_path))
    before = processes.sample([100], {})
    write_thread(tmp_path, 100, 100, start=99999, comm=b"other")
    after = processes.sample([100], before)
    assert (after[100].start_s, after[100].threads[100].name) == (999.99, "other")


@pytest.mark.parametrize("gone", ["stat", "task"])
def test_what_vanishes_is_absent(tmp_path, gone):
    write_thread(tmp_path, 100, 100)
    (tmp_path / "100" / gone).rename(tmp_path / "gone")
    assert HostProcesses(str(tmp_path)).sample([100, 555], {}) == {}


@given(st.binary(max_size=15).filter(lambda name: b"\0" not in name))
def test_any_name_is_told_from_the_numbers_after_it(name):
    found = parse_stat(stat(7, name), 0.01)
    assert (found.start_s, found.ran_s, found.cpu) == (123.45, 0.15, 3)
    assert found.name.isprintable()


@given(st.binary(max_size=300))
def test_no_bytes_make_a_parser_fail(text):
    parse_stat(text, 0.01)
    host_processes.parse_schedstat(text)
    host_processes.parse_involuntary(text)
    host_processes.parse_own_number(text)


@pytest.mark.parametrize(
    ("name", "shown"),
    [(b"a\nb", "a?b"), (b") R 1 (", ") R 1 ("), (b"\xff\xfe", "??"), ("Größe".encode(), "Größe"), (b"\x1b[2J", "?[2J")],
)
def test_a_name_is_shown_without_what_would_move_a_cursor(name, shown):
    assert parse_stat(stat(7, name), 0.01).name == shown


def test_a_name_can_not_pretend_to_be_a_line_of_its_status():
    assert host_processes.parse_own_number(b"Name:\tx\\nNSpid:\\t1\nNSpid:\t100\t7\n") == 7


def test_runtimes_are_told_by_the_libraries_that_are_mapped(tmp_path):
    lines = [f"7f{n:010x}-7f{n + 1:010x} r-xp 00000000 08:01 {n}    /usr/lib/libfiller-{n}.so\n" for n in range(3000)]
    lines[1500] = "7f00 r-xp /venv/lib/onnxruntime/capi/onnxruntime_pybind11_state.cpython-311.so\n"
    lines[2999] = "7f00 r-xp /venv/lib/torch/lib/libgomp-a34b3233.so.1 (deleted)"
    (tmp_path / "maps").write_text("".join(lines) + "\n")
    assert host_processes.read_libraries(str(tmp_path / "maps")) == ("libgomp", "onnxruntime")
    assert host_processes.read_libraries(str(tmp_path / "absent")) is None


def test_a_runtime_that_is_loaded_later_is_seen_when_it_has_made_threads(tmp_path):
    """A script may fetch a model for minutes, and then become the server: as the same process, for the kernel."""
    maps = tmp_path / "100" / "maps"
    write_thread(tmp_path, 100, 100)
    maps.write_text("7f00 r-xp /bin/dash\n")
    processes = HostProcesses(str(tmp_path))
    assert processes.sample([100], {})[100].runtimes == ()
    maps.write_text("7f00 r-xp /venv/lib/libonnxruntime.so.1.23\n")
    assert processes.sample([100], {})[100].runtimes == ()
    write_thread(tmp_path, 100, 101)
    assert processes.sample([100], {})[100].runtimes == ("onnxruntime",)


# --- this machine -------------------------------------------------------------------------------------------------

BUSY = """
import sys, threading, time
def work():
    open("/proc/thread-self/comm", "w").write("busy-%d" % threading.get_native_id())
    ready.wait()
    while not over.is_set():
        sum(range(1000))
    threading.Event().wait()
ready, over = threading.Event(), threading.Event()
for path in sys.argv[1:]:
    open(path, "w").write("0")
for _ in range(16):
    threading.Thread(target=work, daemon=True).start()
print("ready", flush=True)
sys.stdin.readline()
ready.set()
sys.stdin.readline()
over.set()
sys.stdin.readline()
"""


def ticks(pid):
    """(thread -> CPU time in seconds, its last CPU), read here by other means than the agent's."""
    found = {}
    for task in Path(f"/proc/{pid}/task").iterdir():
        fields = (task / "stat").read_text().rsplit(") ", 1)[1].split()
        found[int(task.name)] = ((int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"), int(fields[36]))
    return found


NO_RIGHTS = ["--inh-caps=-all", "--bounding-set=-all"]


@pytest.mark.kernel
@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("setpriv"), reason="needs root, and setpriv to give it up")
@pytest.mark.parametrize(
    ("rights", "maps"),
    [
        (["--reuid=61827", "--clear-groups", *NO_RIGHTS], False),
        (NO_RIGHTS, False),
        (["--inh-caps=-all", "--bounding-set=-all,+sys_ptrace"], True),
    ],
    ids=["a user of its own", "root without capabilities", "root with CAP_SYS_PTRACE"],
)
def test_only_libraries_need_a_right_over_the_process(rights, maps):
    """What the chart gives at level Processes, a root that lacks the capability, and level Libraries."""
    with subprocess.Popen(["sleep", "60"], user=1000, group=1000, extra_groups=[]) as other:
        try:
            task = f"/proc/{other.pid}/task/{other.pid}"
            for name, readable in {"stat": True, "schedstat": True, "status": True, "maps": maps}.items():
                done = subprocess.run(["setpriv", *rights, "cat", f"{task}/{name}"], capture_output=True, check=False)
                assert (name, bool(done.stdout)) == (name, readable), done.stderr
        finally:
            other.kill()


@pytest.mark.kernel
def test_the_report_agrees_with_what_the_kernel_counts_of_sixteen_busy_threads():
    with boxes() as (box,):
        # Version 1 may have its accounting in a hierarchy of its own, where nothing was made yet.
        accounting = Path(str(box.cpu).replace("/cgroup/cpu/", "/cgroup/cpuacct/"))
        made, folders = [], sorted({box.cpu, box.cpuset, accounting})
        hierarchy = box.cpu.parent
        try:
            if not accounting.exists():
                accounting.mkdir()
                made.append(accounting)
            for folder in folders:
                for path in (folder / "kubepods", folder / "kubepods/podu1", folder / f"kubepods/podu1/{'ab' * 32}"):
                    if box.version == 2:
                        (path.parent / "cgroup.subtree_control").write_text("+cpu +cpuset")
                    path.mkdir()
                    made.append(path)
                    if box.version == 1 and (path / "cpuset.cpus").exists():
                        for name in ("cpuset.mems", "cpuset.cpus"):
                            (path / name).write_text((path.parent / name).read_text())
            joins = [str(path / "cgroup.procs") for path in made if path.name == "ab" * 32]
            with subprocess.Popen(
                [sys.executable, "-c", BUSY, *joins], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            ) as process:
                try:
                    check(process, str(hierarchy if box.version == 2 else hierarchy.parent))
                finally:
                    process.send_signal(signal.SIGKILL)
        finally:
            for path in reversed(made):
                remove(path)


def remove(path):
    end = time.monotonic() + 10
    while True:
        try:
            return path.rmdir()
        except OSError:
            assert time.monotonic() < end
            time.sleep(0.01)


def check(process, root):
    pod = GovernedPod(
        namespace="n",
        name="p",
        uid="u1",
        planned={},
        containers=(GovernedContainer(name="c", id="ab" * 32),),
    )
    sampler = HostSampler(HostCgroups(root), HostProcesses())
    process.stdout.readline()
    before, counted_before = sampler.sample([pod], Sample(0.0, {})), ticks(process.pid)
    process.stdin.write("\n")
    process.stdin.flush()
    time.sleep(1.0)
    process.stdin.write("\n")
    process.stdin.flush()
    # Until the last of them sleeps.
    while (counted := ticks(process.pid)) != (time.sleep(0.1) or ticks(process.pid)):
        pass
    after = sampler.sample([pod], before)
    report = samples.report("worker", Level.PROCESSES, "", [pod], before, after)
    (container,) = report.containers
    (seen,) = container.processes
    pool = next(one for one in seen.pools if one.name == "busy-")
    window_s = after.containers["ab" * 32].counters.at_s - before.containers["ab" * 32].counters.at_s
    assert (seen.pid, seen.threads, pool.threads, pool.ran) == (process.pid, 17, 16, 16)
    used_s = sum(time_s - counted_before[task][0] for task, (time_s, _) in counted.items())
    # The kernel's ticks are of 10 ms for each thread.
    assert sum(one.used_cpus for one in seen.pools) * window_s == pytest.approx(used_s, abs=0.01 * 17)
    assert container.used_cpus * window_s == pytest.approx(used_s, abs=0.01 * 17)
    last = {}
    for task, (_, cpu) in counted.items():
        if task != process.pid:
            last[cpu] = last.get(cpu, 0) + 1
    assert pool.last_cpus == last
    assert pool.delay_cpus > 0

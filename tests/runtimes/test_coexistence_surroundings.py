"""Bad plans and hostile surroundings: the application runs as if Raddle were not there, and one line says why."""

import json
import os
import shlex
import subprocess

import pytest
from support.runtimes import shim_lab, torch_lab

from raddle import env
from runtimes import pythons

pytestmark = [pytest.mark.runtime, pytest.mark.matrix]

PLAN = "v=1;intra_op=2;inter_op=1;spinning=never;execution_mode=sequential;affinity=none"
APP = """
import json, sys
import onnxruntime
from onnxruntime.capi import _pybind_state as binding
session = onnxruntime.InferenceSession(sys.argv[1], providers=["CPUExecutionProvider"])
options = session.get_session_options()
record = sys.modules.get("raddle.report.record")
print(json.dumps({
    "intra": options.intra_op_num_threads,
    "records": len(record.sessions) if record else 0,
    "wrapped": binding.InferenceSession.__mro__[1].__name__ == "InferenceSession",
}))
"""


@pytest.fixture(scope="module")
def executable():
    return pythons.venv("ort-1.31.1", "3.11", ["onnxruntime==1.31.1"])


@pytest.fixture(scope="module")
def app(tmp_path_factory):
    path = tmp_path_factory.mktemp("app") / "app.py"
    path.write_text(APP)
    return path


@pytest.fixture
def planned(mounted):
    """The environment of a process that the shim reaches with PLAN."""
    return {**shim_lab.python_path(mounted), env.PLAN: PLAN}


def ours(done):
    return [line for line in done.stderr.splitlines() if line.startswith("raddle: ")]


def said(done):
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout.splitlines()[-1])


# --- plans --------------------------------------------------------------------------------------------------------


def test_bytes_that_are_no_text_in_the_plan_leave_the_application_alone(executable, mounted, model, app):
    environ = shim_lab.environment(shim_lab.python_path(mounted))
    raw = {os.fsencode(name): os.fsencode(value) for name, value in environ.items()}
    raw[b"RADDLE_PLAN"] = b"v=1;intra_op=\xff\xfe"
    done = subprocess.run([executable, app, model], env=raw, capture_output=True, timeout=120, check=False)
    assert json.loads(done.stdout.splitlines()[-1])["records"] == 0
    assert done.stderr.count(b"raddle: onnxruntime is not configured: plan field intra=") == 1


# --- surroundings -------------------------------------------------------------------------------------------------


def hidden(mounts, executable, *arguments, variables):
    """Runs the program in a mount namespace of its own, after these shell commands."""
    if os.geteuid() != 0:
        pytest.skip("only root may hide /proc and /sys from a process")
    program = shlex.join(map(str, (executable, *arguments)))
    script = f"mount --make-rprivate / && {mounts} && exec {program}"
    return shim_lab.python("/usr/bin/unshare", "--mount", "sh", "-c", script, env=variables, check=False)


@pytest.fixture(scope="module", autouse=True)
def _namespaces():
    """Some sandboxes let not even root make a namespace."""
    if os.geteuid() == 0:
        probe = subprocess.run(["unshare", "--mount", "mount", "-t", "tmpfs", "none", "/mnt"], check=False)
        if probe.returncode:
            pytest.skip("no mount namespace can be made here")


NO_QUOTA = "raddle: no cgroup can be read below /proc and /sys: counts are not cut to a quota"


@pytest.mark.parametrize("folders", [["/proc"], ["/sys"], ["/proc", "/sys"]])
def test_without_proc_or_sys_sessions_work_and_one_line_says_what_is_not_known(
    executable, planned, model, app, folders
):
    mounts = " && ".join(f"mount -t tmpfs none {folder}" for folder in folders)
    done = hidden(mounts, executable, app, model, variables=planned)
    assert (said(done)["intra"], said(done)["records"]) == (2, 1)
    assert ours(done)[0] == NO_QUOTA
    assert [line.split(":")[1].split()[0] for line in ours(done)[1:]] == ["onnxruntime"]


# Without Raddle torch 1.13 ends the process there when set_num_threads is called.
@pytest.mark.parametrize(
    ("having", "count", "why"),
    [
        (torch_lab.installed, 2, "intra_op=default (this torch can't be configured without /proc/cpuinfo)"),
        (torch_lab.trixie, 1, "intra_op=1 (planned 2, cut to CPU affinity of 1)"),
    ],
)
def test_without_proc_torch_is_cut_to_the_cpus_that_the_scheduler_tells_of(mounted, having, count, why):
    variables = {**shim_lab.python_path(mounted), env.PLAN: "v=1;omp=2;torch_inter_op=1", env.OMP: "2"}
    command = ["/usr/bin/taskset", "-c", str(min(os.sched_getaffinity(0))), having().python]
    code = "import torch; print(torch.get_num_threads())"
    done = hidden("mount -t tmpfs none /proc", *command, "-c", code, variables=variables)
    assert said(done) == count
    assert [line.partition(": torch ")[2].partition(": ")[2] for line in ours(done)[1:]] == [f"{why}, inter_op=1"]


@pytest.mark.parametrize("folder", ["/proc", "/sys"])
def test_python_m_raddle_describes_a_container_without_proc_or_sys(executable, planned, folder):
    done = hidden(f"mount -t tmpfs none {folder}", executable, "-m", "raddle", variables=planned)
    document = json.loads(done.stdout)
    assert document["budget"]["quotaCPUs"] is None
    assert document["effective"]["intraOp"] >= 1


def test_on_a_read_only_file_system_sessions_work(executable, planned, model, app):
    done = hidden("mount -o remount,ro,bind / && ! touch /x 2>&1", executable, app, model, variables=planned)
    assert said(done)["records"] == 1
    assert len(ours(done)) == 1


@pytest.mark.parametrize("closing", ["2>&-", "<&- 2>&-", "2>/dev/full"])
def test_a_closed_or_full_standard_error_is_no_reason_to_fail(executable, planned, model, app, closing):
    command = f"exec {shlex.join(map(str, (executable, app, model)))} {closing}"
    done = shim_lab.python("/bin/sh", "-c", command, env=planned, check=False)
    assert said(done)["records"] == 1


def test_a_standard_error_that_nobody_reads_ends_no_application_that_has_its_signal(executable, planned, model):
    broken = "import os, signal, sys\nsignal.signal(signal.SIGPIPE, signal.SIG_DFL)\n"
    broken += "read, write = os.pipe()\nos.close(read)\nsys.stderr = os.fdopen(write, 'w')\n"
    after = "assert not signal.pthread_sigmask(signal.SIG_BLOCK, ()) | signal.sigpending()\n"
    done = shim_lab.python(executable, "-c", broken + APP + after, str(model), env=planned, check=False)
    assert said(done)["records"] == 1


FULL = """
import os, signal, sys
class Limit(Exception): pass
def limit(number, frame): raise Limit
signal.signal(signal.SIGALRM, limit)
read, write = os.pipe()
os.set_blocking(write, False)
try:
    while True:
        os.write(write, b"x")
except BlockingIOError:
    os.set_blocking(write, True)
sys.stderr = os.fdopen(write, "w")
import onnxruntime
signal.setitimer(signal.ITIMER_REAL, 0.5)
try:
    onnxruntime.InferenceSession(sys.argv[1], providers=["CPUExecutionProvider"])
    print("lost")
except Limit:
    print("limit")
"""


def test_a_time_limit_ends_the_wait_for_a_standard_error_that_is_full(executable, planned, model):
    done = shim_lab.python(executable, "-c", FULL, str(model), env=planned)
    assert done.stdout == "limit\n"


# --- what an application has put in between -----------------------------------------------------------------------

# An application's own os.open, as eventlet's monkey patching puts one there; a sandbox's audit hook.
OPENING = """
import os
original = os.open
def green(file, flags, mode=0o777, dir_fd=None):
    return original(file + ".not", flags, mode, dir_fd=dir_fd)
os.open = green
"""
FORBIDDING = """
import sys
def audit(event, arguments):
    if event == "open" and str(arguments[0]).startswith(("/proc", "/sys")):
        raise PermissionError
sys.addaudithook(audit)
"""


@pytest.mark.parametrize("between", [OPENING, FORBIDDING])
def test_what_the_applications_own_functions_raise_at_raddle_is_not_raised_at_the_application(
    executable, planned, model, between
):
    code = "import numpy\n" + between + APP
    done = shim_lab.python(executable, "-c", code, str(model), env=planned, check=False)
    assert said(done) == {"intra": 2, "records": 1, "wrapped": True}
    assert ours(done)[0] == NO_QUOTA


GREEN = """
import _thread, threading
def green(): raise AssertionError("a lock for greenlets")
_thread.RLock = threading.RLock = green
"""


def test_sessions_take_no_lock_that_gevent_or_eventlet_has_put_in_place_of_pythons(executable, planned, model):
    code = "import numpy\n" + GREEN + APP
    done = shim_lab.python(executable, "-c", code, str(model), env=planned, check=False)
    assert said(done) == {"intra": 2, "records": 1, "wrapped": True}
    assert len(ours(done)) == 1


FROZEN = """
import sys, onnxruntime
class Frozen(onnxruntime.SessionOptions):
    def __setattr__(self, name, value):
        raise AttributeError(name)
session = onnxruntime.InferenceSession(sys.argv[1], Frozen(), providers=["CPUExecutionProvider"])
"""


def test_options_of_a_class_that_forbids_changes_are_left_alone(executable, planned, model):
    done = shim_lab.python(executable, "-c", FROZEN, str(model), env=planned, check=False)
    assert done.returncode == 0, done.stderr
    assert ours(done) == ["raddle: onnxruntime session is not configured: AttributeError('intra_op_num_threads')"]

"""`raddle run`: what it decides is what `raddle plan` decides, and a real program has it, is it, and leaves nothing."""

import contextlib
import os
import pty
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

import machines
from cluster.waiting import wait
from raddle import delivery, env
from raddle_operator.cli import main, run
from raddle_operator.local import door, quota

pytestmark = pytest.mark.slow

RADDLE = str(Path(sys.executable).with_name("raddle"))
POLICY = """\
apiVersion: raddle.dev/v1alpha1
kind: InferenceThreading
metadata: {name: resnet, namespace: models}
spec:
  podSelector: {matchLabels: {app: resnet}}
  containers: [serve]
  threads: {intraOp: 3}
"""
OBSERVING = POLICY.replace("spec:", "spec:\n  mode: Observe")
POD = """\
apiVersion: v1
kind: Pod
metadata: {name: raddle-run}
spec:
  containers:
    - {name: main, image: main, resources: {limits: {cpu: "8"}}}
---
apiVersion: raddle.dev/v1alpha1
kind: InferenceThreading
metadata: {name: default}
spec: {podSelector: {}}
"""
needs_cgroup = pytest.mark.skipif(quota.available() is not None, reason=str(quota.available()))
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


@pytest.fixture
def machine():
    return str(machines.path("2s4n-16c32t"))


@pytest.fixture
def temporary(tmp_path, monkeypatch):
    """Where `raddle run` has its temporary folders."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    return folder


def raddle(*arguments, stdin=None):
    return CliRunner().invoke(main, ["run", *arguments], input=stdin)


def started(*arguments, **more):
    """The real command, to its end."""
    return subprocess.run([RADDLE, "run", *arguments], check=False, capture_output=True, text=True, timeout=60, **more)


def variables(text):
    return dict(line.split("=", 1) for line in text.splitlines())


def test_the_variables_are_those_that_raddle_plan_writes_into_a_pod(machine, tmp_path):
    (tmp_path / "pod.yaml").write_text(POD)
    planned = CliRunner().invoke(main, ["plan", "-f", str(tmp_path / "pod.yaml"), "--machine", machine, "-o", "yaml"])
    (pod,) = (one for one in yaml.safe_load_all(planned.output) if one)
    wanted = {}
    for entry in pod["spec"]["containers"][0]["env"]:
        key = entry.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath", "").split("'")
        wanted[entry["name"]] = pod["metadata"]["annotations"][key[1]] if len(key) > 1 else entry["value"]
    printed = raddle("--limit", "8", "--machine", machine, "--print", "env")
    assert variables(printed.output) == wanted
    assert "intra_op=8;intra_op_without_shim=7;" in wanted[env.PLAN]


def test_this_machine_is_the_one_that_counts_where_no_other_is_named(machine):
    here = variables(raddle("--limit", "64", "--print", "env").output)
    there = variables(raddle("--limit", "64", "--machine", machine, "--print", "env").output)
    there, here = (env.decode(variables[env.PLAN])["intra_op"] for variables in (there, here))
    assert there == 16
    assert here <= (os.cpu_count() or 1)


def test_a_policy_from_a_file_counts_whatever_it_selects(tmp_path):
    (tmp_path / "policy.yaml").write_text(POLICY)
    printed = raddle("--limit", "4", "-f", str(tmp_path / "policy.yaml"), "--print", "env")
    assert "intra_op=3;" in variables(printed.output)[env.PLAN]


def test_a_policy_may_come_from_standard_input():
    printed = raddle("--limit", "4", "-f", "-", "--print", "env", stdin=POLICY)
    assert "intra_op=3;" in variables(printed.output)[env.PLAN]


def test_what_a_policy_does_not_give_is_said_and_not_given():
    done = started("--limit", "4", "-f", "-", "--", "env", input=OBSERVING)
    assert env.PLAN not in variables(done.stdout)
    assert done.stderr.startswith("raddle run: Observed")


def test_without_a_limit_nothing_limits_and_the_machine_decides(machine):
    printed = raddle("--machine", machine, "--print", "env")
    assert "intra_op=4;" in variables(printed.output)[env.PLAN]
    assert "--cpu-quota" not in raddle("--machine", machine, "--print", "docker").output


@pytest.mark.parametrize(
    ("arguments", "stdin", "said"),
    [
        (["--limit", "four", "--", "true"], None, "'--limit': 'four' is not a quantity"),
        (["--limit", "-1", "--", "true"], None, "'--limit': '-1' is not a quantity"),
        (["--limit", "4"], None, "which program?"),
        (["--limit", "4", "--print", "env", "--", "true"], None, "leave out the command"),
        (["-f", "-", "--", "true"], POLICY + "---\n" + POLICY, "the files hold 2 policies"),
        (["-f", "-", "--", "true"], POD.partition("---")[0], "the files hold 0 policies"),
        (["-f", "-", "--", "true"], POLICY.replace("intraOp", "intraop"), "-:7: spec.threads.intraop: no such field"),
        (["--machine", "/nowhere", "--", "true"], None, "'/nowhere' does not exist"),
        (["--machine", "/proc", "--", "true"], None, "holds no sys/devices/system/cpu"),
    ],
)
def test_bad_input_is_named_and_starts_nothing(arguments, stdin, said):
    result = raddle(*arguments, stdin=stdin)
    assert result.exit_code == 2
    assert said in result.output


def test_the_program_has_this_environment_and_what_was_decided_and_nothing_else(temporary):
    before = {"PATH": os.environ["PATH"], "TMPDIR": str(temporary), "a.b": "1", "BASH_FUNC_f%%": "() {  :\n}", "_": "x"}
    given = run.container("1", run._policy(()), Path("/")).variables
    done = started("--limit", "1", "--", sys.executable, "-c", "import os; print(dict(os.environ))", env=before)
    found = eval(done.stdout)
    # By the door a process may have more: what the library completes.
    assert {name: found.get(name) for name in before | given} == before | given
    assert set(found) - set(before) - set(given) <= {"LC_CTYPE"}
    assert not done.stderr


def test_arguments_and_standard_input_reach_the_program_as_they_are():
    script = "import sys; print(sys.argv[1:], sys.stdin.read())"
    done = started("--limit", "1", "--", sys.executable, "-c", script, "a b", "$c", "", "--limit", "'\"", input="in")
    assert done.stdout == """['a b', '$c', '', '--limit', '\\'"'] in\n"""


@pytest.mark.parametrize(
    ("command", "status"),
    [
        (["sh", "-c", "exit 3"], 3),
        (["sh", "-c", "kill -TERM $$"], 128 + signal.SIGTERM),
        (["sh", "-c", "kill -KILL $$"], 128 + signal.SIGKILL),
        (["raddle-no-such-program"], 127),
        (["/etc/passwd"], 126),
    ],
)
@pytest.mark.parametrize("prefixed", [True, False])
def test_the_exit_status_is_the_programs(command, status, prefixed, temporary):
    # With neither mounts nor a quota nothing stands before the program.
    nothing = ("-f", "-", "--", *command)
    done = started("--limit", "1", "--", *command) if prefixed else started(*nothing, input=OBSERVING)
    assert done.returncode == status
    assert not list(temporary.iterdir())


def test_a_closed_pipe_ends_the_program_as_it_would_without(temporary):
    command = ["bash", "-c", f"{RADDLE} run --limit 1 -- sh -c 'yes; :' | head -1; echo ${{PIPESTATUS[0]}}"]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60)
    # Had the pipe's signal been ignored, `yes` would complain.
    assert done.stderr == ""


@needs_cgroup
def test_the_quota_is_there_and_gone_with_the_program():
    script = "from raddle.process import cgroup; print(cgroup.read_limits('/'), open('/proc/self/cgroup').read())"
    there = {"PYTHONPATH": os.pathsep.join(sys.path), "PATH": os.environ["PATH"]}
    done = started("--limit", "350m", "--", sys.executable, "-c", script, env=there)
    assert "0.35" in done.stdout, done
    name = re.search("raddle-cpu-[0-9]+-[0-9]+", done.stdout)[0]
    assert not list(Path("/sys/fs/cgroup").glob(f"**/{name}"))


@needs_cgroup
@pytest.mark.parametrize(("limit", "quota_cpus"), [("1m", 0.01), ("1e30", None)])
def test_a_limit_that_the_kernel_refuses_runs_as_with_the_kubelet_or_without(limit, quota_cpus):
    script = "from raddle.process import cgroup; print(cgroup.read_limits('/'))"
    there = {"PYTHONPATH": os.pathsep.join(sys.path), "PATH": os.environ["PATH"]}
    done = started("--limit", limit, "--", sys.executable, "-c", script, env=there)
    assert done.returncode == 0, done
    if quota_cpus is None:
        assert "the program runs without" in done.stderr
    else:
        assert str(quota_cpus) in done.stdout


@needs_cgroup
def test_what_the_program_leaves_running_ends_with_it(tmp_path):
    kept = tmp_path / "pid"
    started("--limit", "1", "--", "sh", "-c", f"sleep 600 > /dev/null 2>&1 & echo $! > {kept}")
    state = Path("/proc", kept.read_text().strip(), "stat")
    assert not state.exists() or ") Z " in state.read_text()


def test_what_is_decided_to_be_mounted_is_mounted_for_the_program_alone():
    if door.problem():
        pytest.skip(door.problem())
    mounts = run.container("1", run._policy(()), Path("/")).mounts
    before = Path("/proc/self/mountinfo").read_text()
    done = started("--limit", "1", "--", "cat", "/proc/self/mountinfo")
    mounted = {line.split()[4] for line in done.stdout.splitlines()}
    assert set(mounts) <= mounted
    assert delivery.MOUNT_PATH in mounts
    assert Path("/proc/self/mountinfo").read_text() == before
    assert not Path(delivery.MOUNT_PATH).exists()


def test_programs_that_are_mounted_can_be_run():
    if door.problem():
        pytest.skip(door.problem())
    if delivery.PRELOAD_FILE not in run.container("1", run._policy(()), Path("/")).mounts:
        pytest.skip("the door is not open here: no native shim is built")
    done = started("--limit", "1", "--", delivery.PROGRAM)
    assert done.returncode not in {126, 127}, done


@needs_root
def test_what_a_program_writes_into_a_folder_of_opt_stays(tmp_path):
    folder = Path("/opt") / f"raddle-test-{os.getpid()}"
    folder.mkdir()
    try:
        done = started("--limit", "1", "--", "sh", "-c", f"echo here > {folder}/a; echo > /etc/{folder.name}")
        assert done.returncode == 0
        assert (folder / "a").read_text() == "here\n"
        assert not Path("/etc", folder.name).exists()
    finally:
        for one in folder.iterdir():
            one.unlink()
        folder.rmdir()


COUNTS_SIGNALS = """
import signal, sys, time
came = []
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
    signal.signal(number, lambda number, _: came.append(signal.Signals(number).name))
print("ready", flush=True)
while not came:
    time.sleep(0.01)
time.sleep(0.5)
print(came, flush=True)
sys.exit(7)
"""


def until(read, wanted):
    text = ""
    while wanted not in text:
        text += read()
    return text


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGUSR1])
def test_a_signal_that_is_sent_to_us_reaches_the_program_once(number, temporary):
    process = subprocess.Popen(
        [RADDLE, "run", "--limit", "1", "--", sys.executable, "-c", COUNTS_SIGNALS], stdout=subprocess.PIPE, text=True
    )
    until(process.stdout.readline, "ready")
    process.send_signal(number)
    rest, _ = process.communicate(timeout=60)
    assert (rest, process.returncode) == (f"['{number.name}']\n", 7)
    assert not list(temporary.iterdir())


def test_ctrl_c_at_the_terminal_reaches_the_program_once_and_we_wait_for_it(temporary):
    ours, theirs = pty.openpty()
    command = ["setsid", "--ctty", RADDLE, "run", "--limit", "1", "--", sys.executable, "-c", COUNTS_SIGNALS]
    process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    read = lambda: os.read(ours, 4096).decode()  # noqa: E731
    until(read, "ready")
    os.write(ours, b"\x03")
    assert "['SIGINT']" in until(read, "]")
    assert process.wait(timeout=60) == 7
    os.close(ours)
    assert not list(temporary.iterdir())


def test_a_program_that_ctrl_c_ends_is_told_of_as_a_shell_would(temporary):
    # A shell that starts the tests in the background has them ignore it.
    process = subprocess.Popen(["env", "--default-signal=INT", RADDLE, "run", "--limit", "1", "--", "sleep", "600"])
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")

    def sleeps(pid):
        # What ran before it may have ended just now.
        with contextlib.suppress(FileNotFoundError):
            return Path("/proc", pid, "comm").read_text() == "sleep\n"

    wait(lambda: any(map(sleeps, children.read_text().split())))
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=60) == 130
    assert not list(temporary.iterdir())


@pytest.fixture
def tools(tmp_path):
    """tools(*names): a PATH with these programs only."""

    def folder(*names):
        made = tmp_path / "tools"
        made.mkdir()
        for name in names:
            (made / name).symlink_to(subprocess.check_output(["which", name], text=True).strip())
        return {"PATH": str(made), "TMPDIR": str(tmp_path)}

    return folder


def test_without_unshare_the_files_are_elsewhere_and_one_line_says_so(tools, tmp_path):
    done = started("--limit", "1", "--", "env", env=tools("sh", "env"))
    (line,) = done.stderr.splitlines()
    assert line.startswith("raddle run: nothing can be mounted here (")
    assert "unshare" in line
    found = variables(done.stdout)
    assert env.PLAN in found
    assert str(tmp_path) in found["LD_PRELOAD"]
    assert delivery.MOUNT_PATH not in found.values()


@needs_root
def test_a_temporary_folder_that_the_mounts_would_hide_is_no_reason_not_to_run():
    if door.problem():
        pytest.skip(door.problem())
    with tempfile.TemporaryDirectory(dir="/mnt") as folder:
        done = started("--limit", "1", "--", "true", env={**os.environ, "TMPDIR": folder})
        assert (done.returncode, list(Path(folder).iterdir())) == (0, [])
    assert f"{folder}/raddle-run-" in done.stderr
    assert "is below /mnt" in done.stderr


def test_where_nothing_is_mounted_the_library_is_preloaded_before_what_the_image_preloads(tools, tmp_path):
    done = started("--limit", "1", "--", "env", env={**tools("sh", "env"), "LD_PRELOAD": "/lib/other.so"})
    first, second = variables(done.stdout)["LD_PRELOAD"].split(":")
    assert first.startswith(str(tmp_path))
    assert first.endswith("/libraddle.so")
    assert second == "/lib/other.so"


@needs_root
def test_who_is_not_root_runs_it_too_with_what_can_be_had(temporary, tmp_path):
    # Imported while still root: the interpreter may lie where others can't read.
    temporary.chmod(0o777)
    code = (
        "from raddle_operator.cli import explain, run; from raddle_operator.local import container, door, quota\n"
        "import os, sys\n"
        "from raddle import delivery; from raddle_operator.injection import shipped; shipped.shim()\n"
        "given = run.container('1', run._policy(()), __import__('pathlib').Path('/'))\n"
        "object.__setattr__(given, 'mounts', (delivery.MOUNT_PATH, delivery.PRELOAD_FILE))\n"
        "delivery.write = lambda folder: os.system(f'cp -r {sys.argv[1]}/. {folder}')\n"
        "os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
        "os.environ.update(PATH='/usr/bin:/bin', HOME='/tmp'); os.chdir('/')\n"
        "sys.exit(run._run(given, ('sh', '-c', 'id -u; cat /etc/ld.so.preload; grep Cap /proc/self/status; env')))\n"
    )
    folder = tmp_path / "files"
    folder.mkdir()
    machine = os.uname().machine
    if machine not in delivery.architectures():
        pytest.skip(f"no native shim for {machine} is built here")
    delivery.write(str(folder))
    for above in (tmp_path, *list(tmp_path.parents)[:3]):
        above.chmod(0o755)
    there = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", code, str(folder)]
    done = subprocess.run(command, env=there, check=False, capture_output=True, text=True)
    assert done.stdout, done.stderr
    uid, *lines = done.stdout.splitlines()
    assert uid == "65534", done
    assert env.PLAN in done.stdout
    if "nothing can be mounted here" in done.stderr:
        assert "LD_PRELOAD=" in done.stdout
    else:
        assert lines[0] == delivery.LIBRARY
        assert "CapEff:\t0000000000000000" in lines
        assert "CapAmb:\t0000000000000000" in lines
    assert not list(temporary.iterdir())


def test_systemd_is_asked_for_a_scope_where_no_cgroup_can_be_made(tmp_path, monkeypatch):
    stand_in = tmp_path / "systemd-run"
    stand_in.write_text('#!/bin/sh\nwhile [ "$1" != -- ]; do shift; done; shift; exec "$@"\n')
    stand_in.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    scope = quota.scope(0.5)
    assert scope[0] == "systemd-run"
    assert "CPUQuota=50%" in scope
    assert subprocess.run([*scope, "sh", "-c", "exit 3"], check=False).returncode == 3


def test_there_is_no_scope_where_systemd_does_not_answer(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert quota.scope(0.5) == ()
    (tmp_path / "systemd-run").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "systemd-run").chmod(0o755)
    assert quota.scope(0.5) == ()


def test_dockers_flags_name_files_that_are_there_and_stay_the_same(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    first = raddle("--limit", "1500m", "--print", "docker").output
    flags = first.split()
    assert flags[:2] == ["--cpu-period=100000", "--cpu-quota=150000"]
    (file,) = (flag.partition("=")[2] for flag in flags if flag.startswith("--env-file="))
    assert Path(file).read_text() == raddle("--limit", "1500m", "--print", "env").output
    mounts = [flags[place + 1].split(":") for place, flag in enumerate(flags) if flag == "-v"]
    assert [target for _, target, _ in mounts] == list(run.container("1500m", run._policy(()), Path("/")).mounts)
    assert all(Path(source).exists() and how == "ro" for source, _, how in mounts)
    assert raddle("--limit", "1500m", "--print", "docker").output == first
    assert raddle("--limit", "2", "--print", "docker").output != first


def test_docker_is_asked_for_no_smaller_quota_than_it_takes(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert "--cpu-quota=1000" in raddle("--limit", "5m", "--print", "docker").output.split()


def test_a_cache_that_docker_could_not_name_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "my cache"))
    result = raddle("--limit", "1", "--print", "docker")
    assert result.exit_code == 2
    assert "set XDG_CACHE_HOME to another folder" in result.output


def test_docker_reads_the_flags_and_only_lacks_its_engine(tmp_path, monkeypatch):
    if shutil.which("docker") is None:
        pytest.skip("no docker here")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/no-engine")
    flags = f"$({RADDLE} run --limit 4 --print docker)"
    done = subprocess.run(["sh", "-c", f"docker run {flags} image"], check=False, capture_output=True, text=True)
    assert "daemon" in done.stderr
    assert "invalid" not in done.stderr
    assert "unknown" not in done.stderr

"""alloc=: the allocator that the image has is in the process, a missing one costs nothing, nothing else changes."""

import json
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from native import build

FOLDER = Path("/usr/lib/x86_64-linux-gnu")
LIBRARIES = {"mimalloc": "libmimalloc.so", "jemalloc": "libjemalloc.so.2", "tcmalloc": "libtcmalloc_minimal.so.4"}
ALLOCATORS = sorted(LIBRARIES)
pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="the libraries' folders are those of x86-64")
# What a process says of itself.
SELF = """
import json, os, sys
maps = {os.path.basename(line.split()[-1]) for line in open("/proc/self/maps") if "malloc" in line}
print(json.dumps({
    "maps": sorted(maps), "argv": sys.argv[1:], "prefix": sys.prefix, "pid": os.getpid(), "parent": os.getppid(),
    "comm": open("/proc/self/comm").read().strip(), "preload": os.environ.get("LD_PRELOAD"),
    "folder": os.getcwd(), "files": sorted(int(fd) for fd in os.listdir("/proc/self/fd")),
}))
"""

# Starts a program as its tracer, and counts how often it is executed: a stop by SIGTRAP each time.
TRACER = """
import ctypes, os, signal, sys
TRACEME, CONT = 0, 7
ptrace = ctypes.CDLL(None, use_errno=True).ptrace
child = os.fork()
if child == 0:
    ptrace(TRACEME, 0, None, None)
    os.execv(sys.argv[1], sys.argv[1:])
starts = 0
while True:
    _, status = os.waitpid(child, 0)
    if not os.WIFSTOPPED(status):
        break
    starts += os.WSTOPSIG(status) == signal.SIGTRAP
    ptrace(CONT, child, None, 0 if os.WSTOPSIG(status) == signal.SIGTRAP else os.WSTOPSIG(status))
print(f"starts: {starts}")
sys.exit(os.waitstatus_to_exitcode(status))
"""


@pytest.fixture(scope="session")
def library():
    return build.library("x86_64")


def there(allocator):
    return any(FOLDER.glob(LIBRARIES[allocator] + "*"))


def needs(allocator):
    if not there(allocator):
        pytest.skip(f"no {allocator} here")
    return allocator


def started(library, allocator, *command, preload=None, **more):
    """The finished process, started with the plan."""
    environ = {"PATH": os.environ["PATH"], "LD_PRELOAD": preload or str(library)}
    environ["RADDLE_PLAN"] = f"v=1;intra_op=2;allocator={allocator}"
    done = subprocess.run(
        [str(part) for part in command],
        env={**environ, **more},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done


def described(library, allocator, *arguments, **more):
    done = started(library, allocator, sys.executable, "-c", SELF, *arguments, **more)
    assert done.stderr == ""
    return json.loads(done.stdout)


@pytest.mark.parametrize("allocator", ALLOCATORS)
def test_the_allocator_is_in_the_process(library, allocator):
    found = described(library, needs(allocator))["maps"]
    assert [name.startswith(f"lib{allocator}") for name in found] == [True]


@pytest.mark.parametrize("allocator", ALLOCATORS)
def test_nothing_else_of_the_process_changes(library, allocator):
    arguments = ["a b", "", "ü", "-x=1"]
    plain = described(library, "system", *arguments)
    other = described(library, needs(allocator), *arguments)
    for same in ("argv", "prefix", "parent", "comm", "preload", "folder", "files"):
        assert other[same] == plain[same], same


def test_the_process_keeps_its_number(library):
    command = [sys.executable, "-c", SELF]
    environ = {"PATH": os.environ["PATH"], "LD_PRELOAD": str(library)}
    environ["RADDLE_PLAN"] = f"v=1;allocator={needs('jemalloc')}"
    process = subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, text=True)
    assert f'"pid": {process.pid}' in process.communicate(timeout=60)[0]


def test_a_script_and_its_interpreter_are_one_program(library, tmp_path):
    script = tmp_path / "script"
    script.write_text(f"#!{sys.executable}\n{SELF}")
    script.chmod(0o755)
    done = started(library, needs("jemalloc"), script, "one")
    assert '"argv": ["one"]' in done.stdout
    assert "libjemalloc" in done.stdout


def test_every_program_of_a_tree_and_of_a_chain_has_it(library):
    count = "grep -c jemalloc /proc/self/maps"
    done = started(library, needs("jemalloc"), "sh", "-c", f"{count}; sh -c '{count}; true'; exec sh -c 'exec {count}'")
    assert [int(line) > 0 for line in done.stdout.split()] == [True, True, True]
    assert done.stderr == ""


def test_the_applications_own_preload_stays(library):
    own = next(FOLDER.glob("libjemalloc.so.2"), None)
    if own is None:
        pytest.skip("no jemalloc here")
    preload = f"{library}:{own}"
    found = described(library, "mimalloc" if there("mimalloc") else "jemalloc", preload=preload)
    assert found["preload"] == preload
    assert [name.startswith("libjemalloc") for name in found["maps"]] == [True]


@pytest.mark.parametrize("allocator", ALLOCATORS)
@pytest.mark.parametrize("other", ALLOCATORS)
def test_no_allocator_joins_one_that_is_loaded_already_unless_the_policy_overrides(library, allocator, other):
    own = next(FOLDER.glob(LIBRARIES[needs(other)] + "*")).resolve()
    preload, plan = f"{library}:{own}", f"v=1;allocator={needs(allocator)};existing_values="
    for existing, loaded in (("respect", {other}), ("override", {other, allocator})):
        found = described(library, allocator, preload=preload, RADDLE_PLAN=plan + existing)
        assert {name for name in ALLOCATORS if any(file.startswith(f"lib{name}") for file in found["maps"])} == loaded
        assert found["preload"] == preload


def test_a_line_says_which_allocator_stays(library, glibc):
    own = next(FOLDER.glob(LIBRARIES[needs("jemalloc")])).resolve()
    _, errors = glibc(plan="v=1;intra_op=1;allocator=mimalloc", preload=f"{library}:{own}")
    assert errors[1:] == ["raddle: allocator mimalloc is not preloaded: jemalloc is loaded already"]


@pytest.mark.parametrize("plan", ["", ";existing_values=override"])
def test_a_program_that_a_debugger_watches_is_not_started_again(library, plan):
    """A debugger is told of one start, and sets its breakpoints in the program of that one."""
    command = [sys.executable, "-c", TRACER, sys.executable, "-c", SELF]
    done = started(library, needs("jemalloc"), *command, RADDLE_PLAN=f"v=1;allocator=jemalloc{plan}")
    said, starts = done.stdout.splitlines()
    assert json.loads(said)["maps"] == []
    assert starts == "starts: 1"


def assert_none_is_preloaded(library, mounts):
    """Nor said to be, after these commands in a mount namespace of its own."""
    start = ("unshare", "--mount", "sh", "-c")
    python = (sys.executable, "-c", SELF)
    how = {"env": {"PATH": os.environ["PATH"]}, "capture_output": True, "text": True}
    before = subprocess.run([*start, f'{{ {mounts}; }} && exec "$0" "$@"', *python], check=False, **how)
    if before.returncode != 0:
        pytest.skip(f"no mount namespace here: {before.stderr.strip()}")
    given = f'export LD_PRELOAD={library} RADDLE_PLAN="v=1;allocator=jemalloc"'
    done = subprocess.run([*start, f'{{ {mounts}; }} && {given} && exec "$0" "$@"', *python], check=False, **how)
    assert done.returncode == 0, done.stderr
    assert '"maps": []' in done.stdout
    assert done.stderr == ""


def test_a_missing_allocator_costs_no_line(library, tmp_path):
    """In a mount namespace of its own whose folder of libraries lacks it."""
    need = shutil.which("unshare")
    if need is None or os.geteuid() != 0:
        pytest.skip("needs root and unshare")
    hide = "; ".join(
        f"mount --bind /dev/null {path.resolve()}" for path in FOLDER.glob("libjemalloc.so.2") if path.exists()
    )
    assert_none_is_preloaded(library, hide or "true")


def test_a_file_that_is_no_library_of_this_machine_is_not_preloaded(library, tmp_path):
    if shutil.which("unshare") is None or os.geteuid() != 0 or not there("jemalloc"):
        pytest.skip("needs root, unshare and jemalloc")
    fake = tmp_path / "fake.so"
    for content in (b"", b"\x7fELF", b"not a library", Path(sys.executable).resolve().read_bytes()[:64]):
        fake.write_bytes(content)
        assert_none_is_preloaded(library, f"mount --bind {fake} {(FOLDER / 'libjemalloc.so.2').resolve()}")


def test_a_program_without_a_file_that_could_be_executed_again_goes_on(library):
    """It lies in memory only, and is closed at its start."""
    command = f"""
import os
memory = os.memfd_create("program")
os.write(memory, open({shutil.which("sh")!r}, "rb").read())
os.execve(memory, ["sh", "-c", "echo goes on"], os.environ)
"""
    assert started(library, needs("jemalloc"), sys.executable, "-c", command).stdout == "goes on\n"


def test_a_call_with_the_process_s_own_number_in_the_environment_does_not_loop(library):
    """What a second start that found nothing would see."""
    command = f'RADDLE_ALLOC=$$ exec {sys.executable} -c "import sys; print(1)"'
    done = started(library, needs("jemalloc"), "sh", "-c", command)
    assert done.stdout == "1\n"

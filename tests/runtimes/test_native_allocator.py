"""The allocator that a plan names: loaded where the image has it, and not a word where it has not."""

import os
import subprocess
from pathlib import Path

import pytest
from support.runtimes import native_lab, shim_lab
from support.runtimes.native_caller import Caller, under
from support.runtimes.native_lab import program

from runtimes import fetching

pytestmark = pytest.mark.runtime

LIBRARIES = {"mimalloc": "libmimalloc.so.2", "jemalloc": "libjemalloc.so.2", "tcmalloc": "libtcmalloc_minimal.so.4"}
INSTALLED = {name: Path("/usr/lib/x86_64-linux-gnu") / file for name, file in LIBRARIES.items()}


def mapped(caller):
    return {name for name in LIBRARIES if any(file.startswith(f"lib{name}") for file in caller.mapped())}


@pytest.mark.parametrize("name", LIBRARIES)
@pytest.mark.parametrize(("kind", "version"), [("c", "stub"), ("c", "1.31.1"), ("java", "1.29.0")])
def test_the_planned_allocator_is_in_the_process(kind, version, name, proves):
    if not INSTALLED[name].exists():
        pytest.skip(f"no {LIBRARIES[name]} here")
    with Caller(program(kind, version), under(f"intra_op=2;spinning=never;allocator={name}")) as caller:
        assert mapped(caller) == {name}
        caller.do("env", "options a", "session s a")
        assert len(caller.pool()) == 1
        assert "ld.so" not in caller.stderr
        assert caller.end() == 0
    if version != "stub":
        proves(native_lab.row(kind), version, "memory")


@pytest.mark.parametrize("plan", ["intra_op=2", "intra_op=2;allocator=system", None])
def test_no_other_allocator_comes_unasked(plan):
    with Caller(program("c", "stub"), under(plan)) as caller:
        assert mapped(caller) == set()


def test_children_have_it_too_and_a_users_own_preload_stays():
    name = "jemalloc"
    if not INSTALLED[name].exists():
        pytest.skip(f"no {LIBRARIES[name]} here")
    show = "cat /proc/self/maps; echo PRELOAD $LD_PRELOAD"
    env = under(f"allocator={name}")
    env["LD_PRELOAD"] += " libm.so.6"
    done = subprocess.run(["sh", "-c", show], env=shim_lab.environment(env), capture_output=True, text=True, check=True)
    assert LIBRARIES[name] in done.stdout
    assert "libm.so.6" in done.stdout.split("PRELOAD")[1]
    assert done.stderr == ""


def test_an_allocator_that_the_image_lacks_costs_no_line_of_the_loader(tmp_path):
    """In a file system of its own that has nothing but the program and its libraries."""
    library = native_lab.preload()
    root = tmp_path / "root"
    env = under("intra_op=2;allocator=mimalloc")
    prepared = subprocess.run(["ldd", "/bin/sh"], capture_output=True, text=True, check=True).stdout
    files = [word for line in prepared.splitlines() for word in line.split() if word.startswith("/")]
    for file in ("/bin/sh", *files, str(library)):
        target = root / file.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(Path(file).read_bytes())
        target.chmod(0o755)
    if os.geteuid() != 0:
        pytest.skip("only root may change the root folder")
    done = subprocess.run(
        ["chroot", root, "/bin/sh", "-c", "echo $LD_PRELOAD; (echo child)"],
        env={**env, "PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0
    # chroot itself runs outside, where the allocator may be found.
    assert "ld.so" not in done.stderr
    assert "child" in done.stdout


def test_an_allocator_that_needs_a_newer_libc_is_not_loaded(tmp_path):
    """The loader would end the process: "version `GLIBC_9.99' not found"."""
    target = INSTALLED["jemalloc"]
    if os.geteuid() != 0 or not target.exists():
        pytest.skip("only root may put a file in the allocator's place, where there is one")
    fetching.tool("gcc")
    (tmp_path / "libc.c").write_text("int future(void) { return 1; }\n")
    (tmp_path / "libc.map").write_text("GLIBC_9.99 { global: future; };\n")
    (tmp_path / "allocator.c").write_text("int future(void); int use(void) { return future(); }\n")
    link = ["gcc", "-shared", "-fPIC", "-nostdlib"]
    named = ["-Wl,-soname,libc.so.6,--version-script=libc.map", "-o", "libc.so.6"]
    subprocess.run([*link, "libc.c", *named], cwd=tmp_path, check=True)
    subprocess.run([*link, "allocator.c", "libc.so.6", "-o", target.name], cwd=tmp_path, check=True)
    inside = f"mount --bind {tmp_path / target.name} {target} || exit 77; export LD_PRELOAD=$PRELOAD; exec echo ran"
    env = under("allocator=jemalloc")
    env["PRELOAD"] = env.pop("LD_PRELOAD")
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", inside],
        env=shim_lab.environment(env),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode == 77 or "unshare" in done.stderr:
        pytest.skip("no mounts of its own here")
    assert (done.returncode, done.stdout, done.stderr) == (0, "ran\n", "")


def test_an_allocator_of_another_libc_is_not_loaded():
    fetching.tool("musl-gcc")
    folder = native_lab.stub("musl-gcc")
    made = native_lab.compiled("caller-musl", "caller.c", folder, compiler="musl-gcc")
    chosen = native_lab.Program("c", "musl", (str(made),), {})
    with Caller(chosen, under("intra_op=2;allocator=jemalloc")) as caller:
        assert mapped(caller) == set()
        caller.do("env", "session s -")
        assert caller.end() == 0

"""One table says which runtime a mapped file is of: the program in C, the agent and the shim agree on every row."""

import json
import platform
import subprocess
import sys

import pytest
from support.runtimes.native_programs import library

from raddle.libraries import LIBRARIES, name_starts
from raddle.planning import families
from raddle.process import siblings
from raddle_operator.agent import host_processes

# One child for each file, which maps it and waits.
MAPS = r"""
import mmap, os, signal, sys
for path in sys.argv[1:]:
    if (child := os.fork()) == 0:
        with open(path, "rb") as file:
            mapped = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
        os.write(1, f"{os.getpid()} {path}\n".encode())
        signal.pause()
sys.stdin.read()
os.killpg(0, signal.SIGKILL)
"""
NEAR_MISSES = ("libompitrace.so.40", "libtorchaudio.so", "libopenvinotoolkit.so", "mylibgomp.so.1", "libjvmti.so")
NAMES = {f"{one.stem}{end}": one.runtime for one in LIBRARIES for end in (".so.1", "-5c2b7639.so", "_x.so")}


@pytest.fixture(scope="module")
def processes(tmp_path_factory):
    """The name of a mapped file -> the process that has mapped it."""
    # A folder's name counts for nothing.
    folder = tmp_path_factory.mktemp("maps") / "libtorch.d"
    folder.mkdir()
    paths = [folder / name for name in (*NAMES, *NEAR_MISSES)]
    for path in paths:
        path.write_bytes(b"x")
    command = [sys.executable, "-c", MAPS, *map(str, paths)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as parent:
        lines = [parent.stdout.readline().split() for _ in paths]
        yield {path.rpartition("/")[2]: int(pid) for pid, path in lines}
        parent.stdin.close()


@pytest.fixture(scope="module")
def expected():
    """The name of a mapped file -> the runtimes of a process that has mapped it."""
    return {**{name: [runtime] for name, runtime in NAMES.items()}, **{name: [] for name in NEAR_MISSES}}


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the library is built for x86-64")
def test_the_program_in_c_names_the_runtime_of_every_row(processes, expected, tmp_path):
    program = tmp_path / "raddle"
    program.write_bytes(library().read_bytes())
    program.chmod(0o555)
    done = subprocess.run([program, "-o", "json"], env={}, capture_output=True, text=True, check=False)
    runtimes = {one["pid"]: one.get("runtimes") for one in json.loads(done.stdout)["processes"]}
    assert {name: runtimes[pid] for name, pid in processes.items()} == expected


def test_the_agent_names_the_runtime_of_every_row(processes, expected):
    found = {name: host_processes.read_libraries(f"/proc/{pid}/maps") for name, pid in processes.items()}
    assert {name: list(runtimes) for name, runtimes in found.items()} == expected


def test_the_shim_counts_the_workers_of_every_row(processes):
    for runtime in {one.runtime for one in LIBRARIES}:
        workers = {pid for name, pid in processes.items() if NAMES.get(name) == runtime}
        mapped = {pid for pid in processes.values() if siblings._has_mapped(pid, name_starts(runtime))}
        assert mapped == workers, runtime


def test_every_family_of_a_row_is_one():
    assert {one.family for one in LIBRARIES} - {""} <= set(families.NAMES)

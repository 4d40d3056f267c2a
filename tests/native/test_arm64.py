"""The arm64 library with a real ONNX Runtime: the one that onnxruntime-node carries, in an emulated program."""

import subprocess

import pytest
from support.runtimes import native_lab
from support.runtimes.native_programs import HERE, NATIVE, Kind, library, need

from runtimes import nodejs

VERSION = "1.20.1"
PLAN = "v=1;intra_op=2;inter_op=1;spinning=never"


@pytest.fixture(scope="module")
def threads(tmp_path_factory):
    """threads(plan): (names of the pool's threads, lines on stderr) of a program with one session."""
    need("aarch64-linux-gnu-gcc", "qemu-aarch64-static")
    modules = nodejs.package(f"onnxruntime-node@{VERSION}")
    found = sorted(modules.glob("onnxruntime-node/bin/napi-v*/linux/arm64/libonnxruntime.so.1"))
    if not found:
        pytest.skip("the package has no libonnxruntime for arm64")
    program = tmp_path_factory.mktemp("arm64") / "caller"
    missing = "-Wl,--unresolved-symbols=ignore-in-shared-libs"
    command = ["aarch64-linux-gnu-gcc", f"-I{NATIVE}", "-o", program, HERE / "caller.c", found[0]]
    Kind.run_checked(*command, f"-Wl,-rpath,{found[0].parent}", missing)
    emulator = ["qemu-aarch64-static", "-L", "/usr/aarch64-linux-gnu"]
    shim, model = library("aarch64"), native_lab.model()

    def run(plan):
        variables = {"LD_PRELOAD": str(shim), "RADDLE_PLAN": plan, "MODEL": str(model)}
        pairs = [word for name, value in variables.items() for word in ("-E", f"{name}={value}")]
        done = subprocess.run(
            [*emulator, *pairs, program, "0", "threads"], capture_output=True, text=True, check=False, env={}
        )
        if "libstdc++" in done.stderr:
            pytest.skip("no libstdc++ for arm64 here")
        assert done.returncode == 0, done.stderr
        # Only its own threads have names of ours; the emulator's are called after it.
        return sorted(name for name in done.stdout.splitlines() if name.startswith("ort-")), done.stderr.splitlines()

    return run


@pytest.mark.parametrize(
    ("more", "names", "line"),
    [
        ("", ["ort-intra/1"], "intra_op=2, inter_op=1, spinning off"),
        (";intra_op=3;min_intra_op=3", ["ort-intra/1", "ort-intra/2"], "intra_op=3, inter_op=1, spinning off"),
        (
            ";execution_mode=parallel;inter_op=2;min_inter_op=2",
            ["ort-inter/1", "ort-intra/1"],
            "intra_op=2, inter_op=2, spinning off",
        ),
        (
            ";global_thread_pool=1;shared_allocator=1;arena_shrinkage=1",
            ["ort-gintra/1"],
            "intra_op=2 (the process's global thread pool), inter_op=1, spinning off",
        ),
    ],
)
def test_a_real_runtime_for_arm64_gets_the_plan_s_values(threads, proves, more, names, line):
    found, errors = threads(PLAN + more)
    assert found == names
    assert errors == [f"raddle: onnxruntime {VERSION}: {line}, affinity none"]
    proves("ONNX Runtime (C/C++)", VERSION, "global pool" if "global" in more else "counts")

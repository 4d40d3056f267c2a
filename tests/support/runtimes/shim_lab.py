"""What the shim's tests share: the tree that a container would mount, processes with the shim, models, a probe.

Nothing here imports a runtime; sessions are made in processes of their own, by `shim_probe.py`.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import pytest

import onnx_models
from raddle import delivery

# What onnxruntime 1.7 reads.
OLD: dict[str, int] = {"opset": 12, "ir_version": 6}
PROBE = Path(__file__).with_name("shim_probe.py")
# For programs: a signal handler of the application's is brought in at the line of that number below the folder, by a
# trace function, which is called as a handler is. Until then `left[0]` is above 0; sys.settrace(None) ends it.
# `at_each_line` does so at one line after the other of an action; `lost` are those whose exception did not arrive.
AT_LINE = """
import sys
def at_line(number, folder, handler):
    left = [number]
    def trace(frame, event, _):
        if not frame.f_code.co_filename.startswith(folder):
            return None
        if event == "line":
            left[0] -= 1
            if left[0] == 0:
                sys.settrace(None)
                handler()
        return trace
    sys.settrace(trace)
    return left

def limit():
    raise TimeoutError("the limit")

def at_each_line(folder, action):
    lost, number = [], 0
    while True:
        number += 1
        left = at_line(number, folder, limit)
        try:
            action(number)
        except TimeoutError:
            continue
        finally:
            sys.settrace(None)
        if left[0] > 0:
            return number, lost
        lost.append(number)
"""
THIRD_PARTY = (
    [
        "onnxruntime==1.31.1",
        "magika==1.0.3",
        "pyclipper",
        "opencv-python-headless",
        "six",
        "Shapely",
        "PyYAML",
        "Pillow",
        "tqdm",
    ],
    # It asks for an opencv that needs libGL, which a machine without a display lacks.
    ["rapidocr-onnxruntime==1.4.4"],
)
# Programs of theirs that make sessions by themselves: one and three.
MAGIKA = """
from magika import Magika
magika = Magika()
label = magika.identify_bytes(b'def f(x):\\n    return x + 1\\n' * 20).output.label
assert label == "python", label
"""
RAPIDOCR = """
import cv2, numpy as np
from rapidocr_onnxruntime import RapidOCR
image = np.full((120, 640, 3), 255, np.uint8)
cv2.putText(image, "RADDLE 2026", (20, 80), cv2.FONT_HERSHEY_SIMPLEX, 2, (0, 0, 0), 4)
# By default the picture is enlarged until its shorter side has 736 pixels.
ocr = RapidOCR(det_limit_side_len=128)
found, _ = ocr(image)
assert any("2026" in text for _, text, _ in found), found
"""


def two_cpus() -> list[int]:
    """Two of this process's CPUs; where it has one the module that asks is skipped: a pool of one has no threads."""
    cpus = sorted(os.sched_getaffinity(0))
    if len(cpus) < 2:
        pytest.skip("needs two CPUs: a pool of one has no threads to count", allow_module_level=True)
    return cpus[:2]


def mount(folder: Path) -> Path:
    """The tree that the ConfigMap volume gives a container, below `folder`."""
    delivery.write(str(folder))
    return folder


def environment(extra: Mapping[str, str]) -> dict[str, str]:
    """A clean environment with `extra` in it: neither the session's Python settings nor Raddle's own leak in.

    OpenBLAS's threads, which start when numpy is imported, sleep at once: by default they spin for tens of milliseconds.
    """
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG", "LD_LIBRARY_PATH") if name in os.environ}
    return {**kept, "OPENBLAS_THREAD_TIMEOUT": "4", **extra}


def python(
    executable: Path | str,
    *arguments: str,
    env: Mapping[str, str],
    cpus: Sequence[int] | None = None,
    before: Callable[[], None] | None = None,
    check: bool = True,
) -> subprocess.CompletedProcess[str]:
    """One Python process. `cpus` is its affinity mask; `before` runs in the child ahead of exec."""

    def prepare() -> None:
        if cpus is not None:
            os.sched_setaffinity(0, cpus)
        if before is not None:
            before()

    needs_preparing = cpus is not None or before is not None

    return subprocess.run(
        [str(executable), *arguments],
        env=environment(env),
        # Only where it is needed: it must not run beside other threads.
        preexec_fn=prepare if needs_preparing else None,
        capture_output=True,
        text=True,
        timeout=120,
        check=check,
    )


def write_model(path: Path) -> Path:
    """A chain of matrix products with random weights that ONNX Runtime 1.7 and later loads; well below a millisecond."""
    import numpy as np

    rng = np.random.default_rng(7)
    # Orthogonal weights keep the numbers in range over any depth.
    weights = [np.linalg.qr(rng.standard_normal((256, 256)))[0].astype(np.float32) for _ in range(4)]
    return onnx_models.write_chain(path, 64, weights, **OLD)


def write_tiny_model(path: Path) -> Path:
    """A model of one operator on one number, for those who make thousands of sessions."""
    return onnx_models.write(path, "tiny (float[1] input) => (float[1] output) { output = Relu(input) }", **OLD)


def write_levels_model(path: Path) -> Path:
    """A model of which each graph optimization level makes other operators: see LEVELS."""
    import numpy as np

    graph = """
    levels (float[1,16,8,8] input) => (float[1,16,8,8] output) {
        same = Identity(input)
        two = Add(one, one)
        twice = Mul(same, two)
        sum = Conv <pads = [1, 1, 1, 1]> (twice, w)
        output = Relu(sum)
    }"""
    weight = np.random.default_rng(7).standard_normal((16, 16, 3, 3)).astype(np.float32)
    return onnx_models.write(path, graph, {"w": weight, "one": np.ones(1, np.float32)}, **OLD)


# Graph level of a plan -> what ONNX Runtime makes of that model. (`all` depends on the CPU.)
LEVELS = {
    "disable": ["Identity", "Add", "Mul", "Conv", "Relu"],
    "basic": ["Mul", "Conv", "Relu"],
    "extended": ["Mul", "FusedConv"],
}


def write_wide_model(path: Path, columns: int) -> Path:
    """A model with little weight whose runs take two blocks of columns / 256 MiB for an input of 1024 rows."""
    import numpy as np

    graph = """
    wide (float[rows,16] input) => (float[rows,2] output) {
        wide = MatMul(input, into)
        wider = Exp(wide)
        output = MatMul(wider, out)
    }"""
    into, out = np.full((16, columns), 1 / 16, np.float32), np.full((columns, 2), 1 / columns, np.float32)
    return onnx_models.write(path, graph, {"into": into, "out": out}, **OLD)


def operators(path: Path) -> list[str]:
    """The operators of a model in a file, in order."""
    import onnx

    return [node.op_type for node in onnx.load(path).graph.node]


def probe(
    executable: Path | str,
    model: Path,
    sessions: Sequence[Mapping[str, Any] | None],
    *,
    env: Mapping[str, str],
    idle_s: float = 0.0,
    cpus: Sequence[int] | None = None,
    before: Callable[[], None] | None = None,
    first: str = "",
) -> dict[str, Any]:
    """What shim_probe.py saw: {"sessions": [...], "records": [...], "stderr": text}; `first` is its `before`."""
    asked = {"model": str(model), "sessions": list(sessions), "idle_s": idle_s, "before": first}
    done = python(executable, str(PROBE), json.dumps(asked), env=env, cpus=cpus, before=before, check=False)
    return _seen(done.returncode, done.stdout, done.stderr)


def _seen(status: int, stdout: str, stderr: str) -> dict[str, Any]:
    if status:
        raise AssertionError(f"the probe failed:\n{stdout}\n{stderr}")
    seen: dict[str, Any] = json.loads(stdout.splitlines()[-1])
    return {**seen, "stderr": stderr}


class ForkServer:
    """A process that forks itself for each line of JSON, and says a line when the fork has ended."""

    def __init__(self, command: Sequence[Path | str], env: Mapping[str, str], errors: IO[Any] | None = None) -> None:
        self._process = subprocess.Popen(
            command, env=environment(env), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True
        )

    def ask(self, **asked: Any) -> str:
        """Its answer; "" where it has ended."""
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()
        return self._process.stdout.readline()

    def end(self) -> None:
        """Ends the process."""
        self._process.communicate(timeout=120)


class Prober(ForkServer):
    """A process that was started with the shim and has imported numpy; each probe is a fork of it, one at a time.

    Its environment's plan only has the shim loaded: the shim reads the plan when onnxruntime is imported, in the fork.
    """

    def __init__(self, executable: Path | str, env: Mapping[str, str]) -> None:
        # The shim writes to no other file than what was standard error when it was loaded: all forks have the same.
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  # closed by end
        super().__init__([executable, PROBE], env, self._errors)

    def probe(
        self,
        model: Path,
        sessions: Sequence[Mapping[str, Any] | None],
        *,
        environ: Mapping[str, str],
        idle_s: float = 0.0,
        cpus: Sequence[int] = (),
        first: str = "",
    ) -> dict[str, Any]:
        """What `probe` returns, with these variables set in place of the process's own; no `cpus`: its own mask."""
        asked = {"model": str(model), "sessions": list(sessions), "idle_s": idle_s, "before": first, "cpus": cpus}
        said = self._said()
        answer = self.ask(**asked, environ=dict(environ)) or '[1, ""]'
        return _seen(*json.loads(answer), self._said()[len(said) :])

    def _said(self) -> str:
        """Standard error of all forks so far."""
        return os.pread(self._errors.fileno(), 2**20, 0).decode()

    def end(self) -> None:
        """Ends the process."""
        super().end()
        self._errors.close()


@contextlib.contextmanager
def cgroup(controller: str, **values: str) -> Iterator[Callable[[], object]]:
    """A version 1 cgroup with these values ("_" for "."); yields a function that moves the calling process into it."""
    group = Path("/sys/fs/cgroup") / controller / f"raddle-test-{uuid.uuid4().hex[:8]}"
    try:
        group.mkdir()
        for name, value in values.items():
            (group / f"{controller}.{name}").write_text(value)
    except OSError as error:
        pytest.skip(f"no {controller} cgroup can be made here: {error}")
    try:
        yield lambda: (group / "tasks").write_text(str(os.getpid()))
    finally:
        group.rmdir()


def one_cpu() -> contextlib.AbstractContextManager[Callable[[], object]]:
    """A cgroup with one of this process's CPUs."""
    memory = Path("/sys/fs/cgroup/cpuset/cpuset.mems")
    return cgroup("cpuset", mems=memory.read_text() if memory.exists() else "0", cpus=str(min(os.sched_getaffinity(0))))


def python_path(folder: Path) -> dict[str, str]:
    """The variable that loads the shim by sitecustomize."""
    return {"PYTHONPATH": str(folder / "python")}


THIS_PYTHON = sys.executable

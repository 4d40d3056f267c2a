"""What the tests with Node.js share: real versions of onnxruntime-node and of Node.js, and programs that use them.

Programs are those of tests/runtimes/node, beside a node_modules with the wanted version; each prints what it saw as one
JSON line.
"""

from __future__ import annotations

import atexit
import functools
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import onnx_models
from raddle.delivery import LIBRARY, MOUNT_PATH
from runtimes.nodejs import NEWEST, architecture, node, package
from support.runtimes import door_lab, shim_lab

PROGRAMS = Path(__file__).parents[2] / "runtimes" / "node"
RUNTIME = "ONNX Runtime (Node.js)"
# transformers.js 2 has the first, which is the oldest that is configured. The second is the last whose JavaScript reads no
# configuration entries, the third the first that does.
OLDEST = "1.14.0"
BEFORE_EXTRA = "1.20.1"
VERSIONS = (OLDEST, BEFORE_EXTRA, "1.21.1", NEWEST)
# The last of each line from the oldest that onnxruntime-node loads in; the machine's own is tested with everything.
NODE_VERSIONS = ("14.21.3", "16.20.2", "18.20.8", "22.23.3", "24.21.0")
OPENTELEMETRY = "@opentelemetry/instrumentation@0.57.2"
TIMEOUT_S = 120
# How a program has the runtime: required, imported, in a worker thread, a forked child, a cluster's workers.
SHAPES = ("app.cjs", "app.mjs", "worker.cjs", "child.cjs", "cluster.cjs")


class Seen(NamedTuple):
    """What a program printed: one item per line; and its standard error."""

    found: list[dict[str, Any]]
    stderr: str
    status: int

    @property
    def sessions(self) -> list[dict[str, Any]]:
        """The sessions of all its processes and threads."""
        return [session for item in self.found for session in item["sessions"]]

    @property
    def threads(self) -> list[int | None]:
        """How many threads each session came with; None for one that failed."""
        return [session.get("threads") for session in self.sessions]

    @property
    def lines(self) -> list[str]:
        """What Raddle said."""
        return [line for line in self.stderr.splitlines() if line.startswith("raddle: ")]


@functools.cache
def folder() -> Path:
    """A folder for all tests of this process, removed at its end."""
    found = Path(tempfile.mkdtemp(prefix="raddle-node-"))
    atexit.register(shutil.rmtree, found, ignore_errors=True)
    return found


@functools.cache
def application(version: str, *others: str) -> Path:
    """A folder with the programs and a node_modules of onnxruntime-node in this version and `others`."""
    found = Path(tempfile.mkdtemp(prefix=f"app-{version}-", dir=folder()))
    for program in PROGRAMS.iterdir():
        if program.is_file():
            shutil.copy(program, found)
    modules = found / "node_modules"
    modules.mkdir()
    for name in (f"onnxruntime-node@{version}", *others):
        for one in package(name).iterdir():
            if not one.name.startswith(".") and not (modules / one.name).exists():
                (modules / one.name).symlink_to(one)
    return found


def bundle(version: str, target: Path) -> None:
    """Copies the binding and its libraries there, as a bundler does: the binding under a name of its own."""
    folder = f"bin/napi-v*/linux/{architecture()}"
    (binding,) = application(version).glob(f"node_modules/onnxruntime-node/{folder}/onnxruntime_binding.node")
    for file in binding.resolve().parent.iterdir():
        shutil.copy(file, target / ("a1b2c3.node" if file.name == binding.name else file.name))


def preload() -> dict[str, str]:
    """The variable that has the loader preload the library, as a mounted file does behind the door."""
    return {"LD_PRELOAD": str(door_lab.tree() / Path(LIBRARY).relative_to(MOUNT_PATH))}


@functools.cache
def chain() -> dict[str, Any]:
    """A request's model and the shape of its input: matrix products, which use every thread."""
    return {"model": str(shim_lab.write_model(folder() / "chain.onnx")), "shape": [64, 256]}


@functools.cache
def convolution() -> dict[str, Any]:
    """The same for a model that each level of graph optimization changes further."""
    import numpy as np

    graph = """
    convolution (float[1,3,16,16] input) => (float[1,32,16,16] output) {
        same = Identity(input)
        sums = Conv <kernel_shape = [3, 3], pads = [1, 1, 1, 1]> (same, weights)
        output = Relu(sums)
    }"""
    weights = np.random.default_rng(7).standard_normal((32, 3, 3, 3)).astype(np.float32)
    path = onnx_models.write(folder() / "convolution.onnx", graph, {"weights": weights})
    return {"model": str(path), "shape": [1, 3, 16, 16]}


@functools.cache
def sums() -> dict[str, Any]:
    """The same for a model with 16 MiB of values in between, and one number as its result."""
    graph = """
    sums (float[16384,256] input) => (float output) {
        positive = Relu(input)
        output = ReduceSum <keepdims = 0> (positive)
    }"""
    return {"model": str(onnx_models.write(folder() / "sums.onnx", graph)), "shape": [16384, 256]}


def plan(**fields: Any) -> str:
    """RADDLE_PLAN; two threads that don't spin, unless `fields` say otherwise. A dot in a key is a double underscore."""
    chosen: dict[str, Any] = {
        "intra_op": 2,
        "inter_op": 1,
        "spinning": "never",
        "execution_mode": "sequential",
        "affinity": "none",
    }
    chosen |= {"exclusive_cpus": 0, "streams": 1, "workers": 1, "existing_values": "respect", **fields}
    parts = [f"{key.replace('__', '.')}={value}" for key, value in chosen.items() if value is not None]
    return ";".join(["v=1", *parts])


def run(
    program: Path,
    *sessions: Mapping[str, Any],
    text: str | None = None,
    env: Mapping[str, str] | None = None,
    prefix: Sequence[str] = (),
    executable: str | None = None,
    arguments: Sequence[str] = (),
    cpus: Sequence[int] | None = None,
    before: Callable[[], object] | None = None,
    check: bool = True,
    **request: Any,
) -> Seen:
    """One run of a program that makes sessions with these options, on two CPUs.

    `text` is the plan, with which the library is preloaded too; None: stock. `before` runs in the child ahead of exec, `prefix`
    is a command that runs the rest. `request` is what else the program is told.
    """
    allowed = shim_lab.two_cpus() if cpus is None else cpus

    def prepare() -> None:
        os.sched_setaffinity(0, allowed)
        if before is not None:
            before()

    given = {} if text is None else {"RADDLE_PLAN": text, **preload()}
    asked = {**chain(), "sessions": sessions or [{}], **request}
    done = subprocess.run(
        [*prefix, executable or node(), *arguments, str(program), json.dumps(asked)],
        env=shim_lab.environment({**given, **(env or {})}),
        preexec_fn=prepare,  # the tests start no threads that hold locks
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    if check and done.returncode:
        raise AssertionError(f"{program.name} failed:\n{done.stdout}\n{done.stderr}")
    found = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return Seen(found, done.stderr, done.returncode)


_stock: dict[str, Seen] = {}


def stock(program: Path, *sessions: Mapping[str, Any], **request: Any) -> Seen:
    """What `run` without a plan returns of a program that does the same each time, which is run once."""
    key = json.dumps([str(program), sessions, request])
    if key not in _stock:
        _stock[key] = run(program, *sessions, **request)
    return _stock[key]

"""What the shim's tests share: interpreters, the tree that a container would mount, cached venvs, a model, a probe.

Nothing here imports a runtime; sessions are made in processes of their own, by `shim_probe.py`.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from raddle import delivery

PROBE = Path(__file__).with_name("shim_probe.py")
CACHE = Path.home() / ".cache" / "raddle" / "venvs"
VERSIONS = ("3.8", "3.9", "3.10", "3.11", "3.12", "3.13")


def interpreter(version: str) -> Path | None:
    """A CPython of this minor version outside any venv: pyenv's, else the one that PATH names; None: not here."""
    found = sorted((Path.home() / ".pyenv" / "versions").glob(f"{version}.*/bin/python{version}"))
    if found:
        return found[-1]
    named = shutil.which(f"python{version}", path="/usr/local/bin:/usr/bin")
    return Path(named) if named else None


def any_interpreter(pattern: str) -> Path | None:
    """A pyenv interpreter by a pattern of its version, for those that the shim does not support."""
    found = sorted((Path.home() / ".pyenv" / "versions").glob(f"{pattern}/bin/python"))
    return found[-1] if found else None


def mount(folder: Path) -> Path:
    """The tree that the ConfigMap volume gives a container, below `folder`."""
    data = delivery.files()
    for item in delivery.items():
        path = folder / item["path"]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(data[item["key"]], encoding="utf-8")
    return folder


def environment(extra: Mapping[str, str]) -> dict[str, str]:
    """A clean environment with `extra` in it: neither the session's Python settings nor Raddle's own leak in."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG", "LD_LIBRARY_PATH") if name in os.environ}
    return {**kept, **extra}


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

    return subprocess.run(
        [str(executable), *arguments],
        env=environment(env),
        preexec_fn=prepare,  # the tests start no threads that hold locks
        capture_output=True,
        text=True,
        timeout=120,
        check=check,
    )


def venv(name: str, version: str, packages: Sequence[str], unresolved: Sequence[str] = ()) -> Path | None:
    """The interpreter of a cached virtual environment; made at the first call, None where Python isn't here.

    `unresolved` are installed without their dependencies.
    """
    base = interpreter(version)
    if base is None:
        return None
    CACHE.mkdir(parents=True, exist_ok=True)
    home = CACHE / name
    with (CACHE / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (home / "ready").exists():
            shutil.rmtree(home, ignore_errors=True)
            subprocess.run([base, "-m", "venv", home], check=True, timeout=120)
            install = [home / "bin" / "python", "-m", "pip", "install", "--quiet"]
            subprocess.run([*install, *packages], check=True, timeout=600)
            if unresolved:
                subprocess.run([*install, "--no-deps", *unresolved], check=True, timeout=600)
            (home / "ready").touch()
    return home / "bin" / "python"


def write_model(path: Path) -> Path:
    """A chain of matrix products with random weights that ONNX Runtime 1.10 and later loads; well below a millisecond."""
    import numpy as np
    from onnx import TensorProto, helper, numpy_helper

    rng = np.random.default_rng(7)
    size, nodes, weights, value = 256, [], [], "input"
    for layer in range(4):
        # Orthogonal weights keep the numbers in range over any depth.
        weight = np.linalg.qr(rng.standard_normal((size, size)))[0].astype(np.float32)
        weights.append(numpy_helper.from_array(weight, f"w{layer}"))
        nodes.append(helper.make_node("MatMul", [value, f"w{layer}"], [f"y{layer}"]))
        value = f"y{layer}"
    rows = [64, size]
    graph = helper.make_graph(
        nodes,
        "chain",
        [helper.make_tensor_value_info("input", TensorProto.FLOAT, rows)],
        [helper.make_tensor_value_info(value, TensorProto.FLOAT, rows)],
        weights,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path.write_bytes(model.SerializeToString())
    return path


def probe(
    executable: Path | str,
    model: Path,
    sessions: Sequence[Mapping[str, Any] | None],
    *,
    env: Mapping[str, str],
    idle_s: float = 0.0,
    cpus: Sequence[int] | None = None,
    before: Callable[[], None] | None = None,
) -> dict[str, Any]:
    """What shim_probe.py saw: {"sessions": [...], "records": [...], "stderr": text}."""
    request = json.dumps({"model": str(model), "sessions": list(sessions), "idle_s": idle_s})
    done = python(executable, str(PROBE), request, env=env, cpus=cpus, before=before, check=False)
    if done.returncode:
        raise AssertionError(f"the probe failed:\n{done.stdout}\n{done.stderr}")
    seen: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return {**seen, "stderr": done.stderr}


def python_path(folder: Path) -> dict[str, str]:
    """The variable that loads the shim by sitecustomize."""
    return {"PYTHONPATH": str(folder / "python")}


THIS_PYTHON = sys.executable

"""Runs a model with each count of threads, each in a process of its own, and reads what ONNX Runtime tells of it."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from signal import Signals
from statistics import median
from typing import Any

import onnx

from raddle_operator.analysis import node_times, onnx_model
from raddle_operator.analysis.measured import Measured, Memory, RunTime
from raddle_operator.analysis.node_times import NodeTimes
from raddle_operator.trials import inputs
from raddle_operator.trials.inputs import Array


class LoadError(ValueError):
    """Why ONNX Runtime does not load the model."""


class RunError(ValueError):
    """Why it does not run with these inputs."""


def measured(
    model: Path, arrays: Mapping[str, Array], threads: Sequence[int], told: Callable[[str], object] = lambda _: None
) -> Measured:
    """What is measured of an ONNX file with these inputs. `told` hears what goes on. Raises LoadError, RunError."""
    with tempfile.TemporaryDirectory(prefix="raddle-analyze-") as made:
        folder = Path(made)
        inputs.write_npz(folder / "inputs.npz", arrays)
        optimized = folder / "optimized.onnx"
        answers = {}
        profiles = {}
        for count in sorted({1, *threads}):
            told(f"running with {count} {'thread' if count == 1 else 'threads'}")
            answers[count] = _probed(folder, model, count, optimized if count == 1 else None)
            profiles[count] = _profile(answers[count])
        graph = onnx.load(optimized, load_external_data=False).graph
        one = answers[1]
        return Measured(
            version=one["version"],
            nodes=onnx_model.nodes(graph),
            kinds=onnx_model.count_kinds(graph),
            runs={count: _run_time(answer["runMs"]) for count, answer in answers.items()},
            profiles=profiles,
            memory=Memory(
                loaded_bytes=one["loadedBytes"],
                running_bytes=one["runningBytes"],
                arena_bytes=profiles[1].arena_bytes,
            ),
        )


def _probed(folder: Path, model: Path, threads: int, optimized: Path | None) -> Mapping[str, Any]:
    """The answer of a process with so many threads."""
    order, answer = folder / "order.json", folder / f"answer-{threads}.json"
    asked = {
        "model": str(model),
        "inputs": str(folder / "inputs.npz"),
        "threads": threads,
        "folder": str(folder),
        "optimized": str(optimized) if optimized else "",
        "answer": str(answer),
    }
    order.write_text(json.dumps(asked))
    command = [sys.executable, "-m", "raddle_operator.analysis.probe", str(order)]
    ended = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    if not answer.exists():
        raise RunError(_end(ended))
    found: dict[str, Any] = json.loads(answer.read_text())
    if found.get("failed") == "load":
        raise LoadError(_plain(found["why"]))
    if "failed" in found:
        raise RunError(_plain(found["why"]))
    return found


def _run_time(took: Sequence[float]) -> RunTime:
    return RunTime(fastest_ms=min(took), median_ms=median(took), count=len(took))


def _end(ended: subprocess.CompletedProcess[str]) -> str:
    """Why a process ended without an answer."""
    last = (ended.stderr.strip().splitlines() or [""])[-1]
    if ended.returncode < 0:
        name = Signals(-ended.returncode).name
        hint = ": the machine or the container ran out of memory" if name == "SIGKILL" else ""
        return f"the process that ran it was ended by {name}{hint}"
    return f"the process that ran it ended with status {ended.returncode}: {last}"


def _plain(why: str) -> str:
    """A message of ONNX Runtime without the code before it: `[ONNXRuntimeError] : 10 : INVALID_GRAPH : Load ...`."""
    parts = why.split(" : ", 3)
    return " ".join((parts[3] if why.startswith("[ONNXRuntimeError]") and len(parts) == 4 else why).split())


def _profile(answer: Mapping[str, Any]) -> NodeTimes:
    found = node_times.read(json.loads(Path(answer["profile"]).read_text()))
    if found is None:
        raise RunError("ONNX Runtime's profile has no whole run")
    return found

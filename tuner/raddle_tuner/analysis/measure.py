"""Runs a model with each count of threads in turns, each in a process of its own, and reads what ONNX Runtime tells."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any, Final

import onnx

from raddle_tuner.analysis import node_times, onnx_model
from raddle_tuner.analysis.measured import Measured, Memory, RunTime
from raddle_tuner.analysis.node_times import NodeTimes
from raddle_tuner.trials import ending, inputs, processes
from raddle_tuner.trials.inputs import Array

# Rounds of all counts of threads; where a round takes long the fewest that can be told apart (scaling.told_apart).
_ROUNDS: Final = 5
_FEWEST_ROUNDS: Final = 4
_LONG_S: Final = 60.0
# Where onnx finds the nodes, whose weights nobody reads.
_OPTIMIZED, _WEIGHTS = "optimized.onnx", "weights"


class LoadError(ValueError):
    """Why ONNX Runtime does not load the model."""


class RunError(ValueError):
    """Why it does not run with these inputs."""


def measured(
    model: Path,
    arrays: Mapping[str, Array],
    threads: Sequence[int],
    told: Callable[[str], object] = lambda _: None,
    *,
    most_rounds: int = _ROUNDS,
) -> Measured:
    """What is measured of an ONNX file with these inputs. `told` hears what goes on.

    Raises LoadError, RunError, EndedError; nothing is left then.
    """
    counts = sorted({1, *threads})
    with tempfile.TemporaryDirectory(prefix="raddle-analyze-") as made:
        folder = Path(made)
        inputs.write_npz(folder / "inputs.npz", arrays)
        told("loading the model")
        version, graph = _optimized(folder, model)
        fewest_rounds = min(_FEWEST_ROUNDS, most_rounds)
        rounds: list[Mapping[int, Mapping[str, Any]]] = []
        profiles: list[Mapping[int, NodeTimes]] = []
        begun_s = time.monotonic()
        while len(rounds) < fewest_rounds or (len(rounds) < most_rounds and time.monotonic() - begun_s < _LONG_S):
            answers = {}
            # There and back, so that what grows or fades meanwhile is none's advantage.
            for count in counts if len(rounds) % 2 == 0 else reversed(counts):
                told(f"running with {count} {'thread' if count == 1 else 'threads'}, round {len(rounds) + 1}")
                answers[count] = _answer(folder, {"model": str(model), "threads": count})
            rounds.append(answers)
            profiles.append({count: _profile(answers[count]) for count in counts})
    ones = [answers[1] for answers in rounds]
    arenas = [profile[1].arena_bytes for profile in profiles if profile[1].arena_bytes is not None]
    return Measured(
        version=version,
        nodes=onnx_model.nodes(graph),
        kinds=onnx_model.count_kinds(graph),
        runs={count: _run_time([answers[count]["runMs"] for answers in rounds]) for count in counts},
        profiles={count: tuple(profile[count] for profile in profiles) for count in counts},
        memory=Memory(
            loaded_bytes=int(median(one["loadedBytes"] for one in ones)),
            running_bytes=int(median(one["runningBytes"] for one in ones)),
            arena_bytes=max(arenas, default=None),
        ),
    )


def _optimized(folder: Path, model: Path) -> tuple[str, onnx.GraphProto]:
    """ONNX Runtime's version, and the graph as it runs it."""
    # A model above 2 GiB can't be one file, and it need not be written.
    (folder / _WEIGHTS).symlink_to("/dev/null")
    answer = _answer(folder, {"model": str(model), "optimized": str(folder / _OPTIMIZED), "weights": _WEIGHTS})
    return answer["version"], onnx.load(folder / _OPTIMIZED, load_external_data=False).graph


def _answer(folder: Path, asked: Mapping[str, Any]) -> Mapping[str, Any]:
    """What a process says that gets this order."""
    order, answer = folder / "order.json", folder / "answer.json"
    answer.unlink(missing_ok=True)
    order.write_text(json.dumps({**asked, "folder": str(folder), "answer": str(answer)}))
    with (folder / "stderr").open("w+", errors="replace") as stderr:
        status = _ended([sys.executable, "-m", "raddle_tuner.analysis.probe", str(order)], stderr.fileno())
        if not answer.exists():
            stderr.seek(0)
            raise RunError(str(processes.ended(status, stderr.read())))
    result: dict[str, Any] = json.loads(answer.read_text())
    if result.get("failed") == "load":
        raise LoadError(_plain(result["why"]))
    if "failed" in result:
        raise RunError(_plain(result["why"]))
    return result


def _ended(command: Sequence[str], stderr: int) -> int:
    """How the process ended; it has ended whatever comes."""
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=stderr,
        start_new_session=True,  # Ctrl-C is for the program that measures, which ends this one
    )
    with contextlib.ExitStack() as stack:
        stack.callback(process.wait)
        stack.callback(process.kill)
        with ending.awaited():
            return process.wait()


def _run_time(rounds: Sequence[Sequence[float]]) -> RunTime:
    every = [one for took in rounds for one in took]
    return RunTime(rounds_ms=tuple(map(min, rounds)), median_ms=median(every), count=len(every))


def _plain(why: str) -> str:
    """A message of ONNX Runtime without the code before it: `[ONNXRuntimeError] : 10 : INVALID_GRAPH : Load ...`."""
    parts = why.split(" : ", 3)
    return " ".join((parts[3] if why.startswith("[ONNXRuntimeError]") and len(parts) == 4 else why).split())


def _profile(answer: Mapping[str, Any]) -> NodeTimes:
    path = Path(answer["profile"])
    result = node_times.read(json.loads(path.read_text()))
    path.unlink()
    if result is None:
        raise RunError("ONNX Runtime's profile has no complete run")
    return result

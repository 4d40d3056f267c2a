"""Olive's search of session parameters, as a peer: the real olive-ai, in a virtual environment of its own.

python -m tuning.olive     # from benchmarks/; writes requirements-olive.txt anew, when VERSION below has changed

Olive needs PyTorch, of which PyPI has for x86-64 only builds of gigabytes for GPUs. Debian's python3-torch is enough
for what is used here, so the environment is one of Debian's Python.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from raddle_operator.results.candidate import Candidate, Value
from raddle_tuner.search.space import SPINNING, THREADS, Space
from raddle_tuner.trials.inputs import ModelInput
from runtimes.fetching import fetch, made
from runtimes.pythons import VENVS
from unavailable import UnavailableError

VERSION: Final = "0.13.0"
_PYTHON: Final = "/usr/bin/python3"
PINS: Final = Path(__file__).with_name("requirements-olive.txt")
# torchmetrics 1.5 needs torch 2, Debian's torch was built with numpy 1; ONNX Runtime is the release of our lock.
_WANTED: Final = (f"olive-ai=={VERSION}", "onnxruntime==1.31.1", "torchmetrics<1.5", "numpy<2")
# olive/hardware/constants.py and onnxruntime.GraphOptimizationLevel: what a policy names Basic, Extended, All.
_LEVELS: Final = {1: "Basic", 2: "Extended", 99: "All"}
# onnxruntime.ExecutionMode
_SEQUENTIAL, _PARALLEL = 0, 1
_MOST_S: Final = 1200


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What Olive chose, of so many combinations; `mean_ms` is what it measured of it, `first_ms` before."""

    candidate: Candidate
    trials: int
    seconds: float
    first_ms: float
    mean_ms: float


def interpreter() -> Path:
    """The Python that has Olive, installed at the first call. Raises UnavailableError."""
    home = VENVS / f"olive-{VERSION}"
    with made(home) as folder:
        if folder:
            _environment(folder)
            install = (folder / "bin" / "python", "-m", "pip", "install", "--quiet", "--no-deps", "--require-hashes")
            fetch(*install, "-r", PINS)
    return home / "bin" / "python"


def _environment(folder: Path) -> None:
    fetch(_PYTHON, "-c", "import torch")
    fetch(_PYTHON, "-m", "venv", "--system-site-packages", folder)


def search(model: Path, wanted: ModelInput, space: Space) -> Found:
    """Olive's choice for a model with this one input, of the space's thread counts.

    It measures the mean latency of one caller, without a quota and without a rate: 20 runs of each combination. IO
    binding it does not try on a CPU; beside each other it lets as many operators run as there are cores. Raises
    UnavailableError.
    """
    python = interpreter()
    before_s = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="raddle-olive-") as name:
        folder = Path(name)
        config = folder / "config.json"
        config.write_text(json.dumps(_config(model, wanted, space, folder)))
        command = [str(python), "-m", "olive", "run", "--disable_telemetry", "--config", str(config)]
        environment = {**os.environ, "OLIVE_DISABLE_TELEMETRY": "1", "OLIVE_TELEMETRY_CACHE_DIR": name, "HOME": name}
        options: dict[str, Any] = {"cwd": folder, "env": environment, "capture_output": True, "text": True}
        try:
            done = subprocess.run(command, **options, timeout=_MOST_S, check=False)
        except subprocess.TimeoutExpired:
            raise UnavailableError(f"Olive was not done after {_MOST_S / 60:g} minutes") from None
        if done.returncode:
            raise UnavailableError(f"Olive failed: {(done.stderr or done.stdout)[-300:]}")
        chosen = json.loads((folder / "out" / "model_config.json").read_text())
        footprints = json.loads((folder / "out" / "footprint.json").read_text())
    seconds = time.monotonic() - before_s
    means_ms = {key: _mean_ms(one) for key, one in footprints.items()}
    (first,) = (key for key, one in footprints.items() if not one["parent_model_id"])
    return Found(
        candidate=candidate(chosen["config"]["inference_settings"]),
        trials=len(means_ms) - 1,
        seconds=seconds,
        first_ms=means_ms.pop(first),
        mean_ms=min(means_ms.values()),
    )


def candidate(settings: Mapping[str, Any]) -> Candidate:
    """Olive's inference_settings as a candidate: all that Olive does not set is as ONNX Runtime has it by itself."""
    options = settings["session_options"]
    # Threads of a pool spin unless they are told not to.
    result: dict[str, Value] = {THREADS: options["intra_op_num_threads"], SPINNING: "Always"}
    level = _LEVELS.get(options.get("graph_optimization_level"))
    if level is not None:
        result["onnxruntime.graphOptimizationLevel"] = level
    if options.get("execution_mode") == _PARALLEL:
        result |= {"threads.executionMode": "Parallel", "threads.interOp": options["inter_op_num_threads"]}
    if settings.get("io_bind"):
        result["program.ioBinding"] = True
    return Candidate.of(result)


def _mean_ms(footprint: Mapping[str, Any]) -> float:
    return float(footprint["metrics"]["value"]["latency-avg"]["value"])


def _config(model: Path, wanted: ModelInput, space: Space, folder: Path) -> dict[str, Any]:
    """A workflow as olive/workflows/run reads it, each combination measured once."""
    threads = space.axis(THREADS)
    counts = [value for value, _ in threads.choices] if threads else [1]
    tuned = {
        "type": "OrtSessionParamsTuning",
        "data_config": "data",
        "execution_mode_list": _listed([_SEQUENTIAL, _PARALLEL]),
        "opt_level_list": _listed([*_LEVELS]),
        "intra_thread_num_list": _listed(counts),
    }
    data = {
        "type": "dummy_dataset",
        "input_names": [wanted.name],
        "input_shapes": [[dim if isinstance(dim, int) else 1 for dim in wanted.shape or ()]],
        "input_types": [wanted.type.removeprefix("tensor(").removesuffix(")").replace("float", "float32")],
        "max_samples": 32,
    }
    metric = {"name": "latency", "type": "latency", "data_config": "data"}
    return {
        "input_model": {"type": "ONNXModel", "model_path": str(model.absolute())},
        "systems": {
            "here": {
                "type": "LocalSystem",
                "accelerators": [{"device": "cpu", "execution_providers": ["CPUExecutionProvider"]}],
            }
        },
        "host": "here",
        "target": "here",
        "data_configs": [{"name": "data", "type": "DummyDataContainer", "load_dataset_config": data}],
        # 0.13.0 takes no evaluator without a type.
        "evaluators": {
            "latency": {
                "type": "OnnxEvaluator",
                "metrics": [{**metric, "sub_types": [{"name": "avg", "priority": 1}]}],
            }
        },
        "evaluator": "latency",
        "search_strategy": {"execution_order": "joint", "sampler": "sequential"},
        "passes": {"tuned": tuned},
        "output_dir": str(folder / "out"),
        "cache_dir": str(folder / "cache"),
        "log_severity_level": 3,
    }


def _listed(values: list[Any]) -> dict[str, Any]:
    return {"olive_parameter_type": "SearchParameter", "type": "Categorical", "support": values}


def pins() -> str:
    """What pip would install beside Debian's packages: by version and hash, for this machine's kind."""
    with tempfile.TemporaryDirectory(prefix="raddle-olive-") as name:
        folder = Path(name) / "venv"
        _environment(folder)
        report = Path(name) / "report.json"
        install = (folder / "bin" / "python", "-m", "pip", "install", "--quiet", "--dry-run", "--report", report)
        fetch(*install, *_WANTED)
        installed = json.loads(report.read_text())["install"]
    lines = sorted(
        f"{one['metadata']['name'].lower()}=={one['metadata']['version']} "
        f"--hash=sha256:{one['download_info']['archive_info']['hashes']['sha256']}\n"
        for one in installed
    )
    return (
        "# Olive beside Debian bookworm's python3-torch, by version and hash for CPython 3.11 on x86-64.\n"
        '# Written by "python -m tuning.olive", not by hand.\n' + "".join(lines)
    )


if __name__ == "__main__":
    PINS.write_text(pins())

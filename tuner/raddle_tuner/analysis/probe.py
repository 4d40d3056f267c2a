"""A process that loads a model, or runs it with so many threads: `python -m raddle_tuner.analysis.probe ORDER.json`.

On its own, so that the memory that it takes is the model's, and a model that crashes ends nothing else. The order is
what `measure` writes; the answer goes to the file that it names: `{"failed": "load" | "run", "why": ...}`, or what was
seen.
"""

from __future__ import annotations

import contextlib
import json
import sys
import time
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnxruntime

# At least so many runs, then more for so many seconds, up to so many: with the profiler on, and off. A profile's first
# run is a warm-up.
_SECONDS: Final = 0.4
_PROFILED: Final = (2, 20)
_RUNS: Final = (1, 100)


def main(order: dict[str, Any]) -> dict[str, Any]:
    """What was seen: run times in milliseconds, the profile's file, resident memory in bytes.

    Of a model that is only loaded: ONNX Runtime's version.
    """
    options = _options(order)
    before = _resident()
    try:
        session = onnxruntime.InferenceSession(order["model"], options, providers=["CPUExecutionProvider"])
    # Its exceptions have no class in common.
    except Exception as error:  # noqa: BLE001
        return {"failed": "load", "why": str(error)}
    if order.get("optimized"):
        return {"version": onnxruntime.__version__}
    loaded = _resident()
    with np.load(Path(order["folder"]) / "inputs.npz", allow_pickle=False) as result:
        arrays = {name: result[name] for name in result.files}
    _forget_peak()
    try:
        _run(session, arrays, *_PROFILED)
        profile = session.end_profiling()
        peak = _resident("VmHWM")
        run_ms = _run(session, arrays, *_RUNS)
    except Exception as error:  # noqa: BLE001
        return {"failed": "run", "why": str(error)}
    return {
        "runMs": run_ms,
        "profile": profile,
        "loadedBytes": max(0, loaded - before),
        "runningBytes": max(0, peak - loaded),
    }


def _options(order: dict[str, Any]) -> onnxruntime.SessionOptions:
    options = onnxruntime.SessionOptions()
    options.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
    options.log_severity_level = 4
    if order.get("optimized"):
        options.optimized_model_filepath = order["optimized"]
        options.add_session_config_entry("session.optimized_model_external_initializers_file_name", order["weights"])
        options.add_session_config_entry("session.optimized_model_external_initializers_min_size_in_bytes", "1024")
    else:
        options.intra_op_num_threads = order["threads"]
        options.enable_profiling = True
        options.profile_file_prefix = str(Path(order["folder"]) / "profile")
    return options


def _run(session: onnxruntime.InferenceSession, arrays: dict[str, Any], fewest: int, most: int) -> list[float]:
    """Milliseconds of each run."""
    took: list[float] = []
    end = time.monotonic() + _SECONDS
    while len(took) < fewest or (len(took) < most and time.monotonic() < end):
        start = time.perf_counter()
        session.run(None, arrays)
        took.append((time.perf_counter() - start) * 1000)
    return took


def _resident(field: str = "VmRSS") -> int:
    """Bytes of memory of this process: now (VmRSS), or the most that it had (VmHWM); proc_pid_status(5)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{field}:"))


def _forget_peak() -> None:
    """Lets VmHWM begin at what is resident now; proc_pid_clear_refs(5)."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


if __name__ == "__main__":
    _order = json.loads(Path(sys.argv[1]).read_text())
    Path(_order["answer"]).write_text(json.dumps(main(_order)))

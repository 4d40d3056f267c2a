"""Results on disk, a line of JSON per run, so that a table that takes hours can be stopped and taken up again.

A run is found again only under the same conditions: cell, environment, shim, ONNX Runtime, CPU model and count.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from load.measure import Cell, Run, Variant, quiet_run
from raddle import delivery


class Store:
    """The runs of one file. Lines that can't be read (a run was cut off while writing) count as not there.

    A new run that others on the machine disturbed is made again, up to `attempts` times in all.
    """

    def __init__(self, path: Path, attempts: int = 1) -> None:
        self._path = path
        self._attempts = attempts
        self._runs: dict[str, dict[str, Any]] = {}
        for line in path.read_text().splitlines() if path.exists() else []:
            try:
                entry = json.loads(line)
                self._runs[entry["key"]] = entry["value"]
            except (ValueError, KeyError, TypeError):
                continue

    def run(self, cell: Cell, variant: Variant, repetition: int) -> Run:
        """This repetition's run: the stored one, else one made now and stored."""
        key = _key("run", {"cell": asdict(cell), **_variant(variant), "repetition": repetition})

        result = self._value(key, lambda: asdict(quiet_run(cell, variant, self._attempts)))
        return Run(**{**result, "latencies_ms": tuple(result["latencies_ms"])})

    def service_time_s(self, model: str, runtime: str, measure: Callable[[], float]) -> float:
        """The model's service time in seconds; kept, because the rates of all cells are derived from it."""
        result = self._value(_key("service time", {"model": model, "runtime": runtime}), lambda: {"seconds": measure()})
        return float(result["seconds"])

    def _value(self, key: str, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        if key not in self._runs:
            self._runs[key] = make()
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.open("a") as file:
                file.write(json.dumps({"key": key, "value": self._runs[key]}) + "\n")
        return self._runs[key]


def _variant(variant: Variant) -> dict[str, Any]:
    # Where the shim lies does not matter, what it does decides.
    env = {name: value for name, value in variant.env.items() if name != "LD_PRELOAD"}
    shim = delivery.content_hash() if "LD_PRELOAD" in variant.env else None
    return {**asdict(variant), "env": env, "shim": shim}


def _key(kind: str, conditions: dict[str, Any]) -> str:
    where = {"machine": platform.node(), "cpus": os.cpu_count(), "ort": importlib.metadata.version("onnxruntime")}
    return json.dumps([kind, conditions, where], sort_keys=True)

"""ONNX Runtime built with OpenMP (onnxruntime-openmp, and onnxruntime before 1.7).

Its intra-op pool is the team of the libgomp that it is linked to: SessionOptions' count does nothing there, and
OMP_NUM_THREADS and OMP_WAIT_POLICY are read once, when the library is loaded. So the plan's values are put into the
environment for that moment, and taken out again: other libraries and child processes see what the pod spec says.
"""

from __future__ import annotations

import os
from typing import Any, Mapping

from raddle import env
from raddle.process import current, resolution

WAIT_POLICY = "OMP_WAIT_POLICY"
# never: workers sleep at once. bounded is left to libgomp, which spins for some milliseconds.
_POLICIES = {"never": "PASSIVE", "always": "ACTIVE"}


class OpenMP:
    """The environment of the OpenMP library while it is loaded, and what it came to."""

    def __init__(self, fields: Mapping[str, Any]) -> None:
        self.changed: dict[str, str | None] = {}
        self.values: dict[str, Any] = {}
        self.because: dict[str, str] = {}
        override = fields.get("existing_values") == "override"
        wanted = resolution.resolve(fields, current.read_facts(fields))
        self._count(fields, wanted, override=override)
        self._spinning(wanted, override=override)

    def _count(self, fields: Mapping[str, Any], wanted: resolution.Effective, *, override: bool) -> None:
        present = os.environ.get(env.OMP, "")
        # What the webhook has written equals the plan; the container may have room for fewer.
        is_planned = present == "" or (
            present == str(fields.get("omp", "")) and env.OMP not in env.set_by_code(os.environ)
        )
        if wanted.intra_op is not None and (is_planned or override):
            self._set(env.OMP, str(wanted.intra_op))
            if "intraOp" in wanted.because:
                self.because["intraOp"] = wanted.because["intraOp"]
        elif present:
            self.because["intraOp"] = env.OMP + " has another value"
        first = os.environ.get(env.OMP, "").partition(",")[0].strip()
        if first.isascii() and first.isdigit() and int(first[:9]) > 0:
            self.values["intraOp"] = int(first[:9])

    def _spinning(self, wanted: resolution.Effective, *, override: bool) -> None:
        policy = _POLICIES.get(wanted.spinning or "")
        if self.values.get("intraOp") == 1:
            self.values["spinning"], self.because["spinning"] = "never", "no worker threads"
        elif policy is not None and (override or not os.environ.get(WAIT_POLICY)):
            self._set(WAIT_POLICY, policy)
            self.values["spinning"] = wanted.spinning
        elif os.environ.get(WAIT_POLICY):
            self.values["spinning"], self.because["spinning"] = "code", WAIT_POLICY + " has another value"
        else:
            self.values["spinning"], self.because["spinning"] = "always", "as long as libgomp does by itself"

    def _set(self, name: str, value: str) -> None:
        if os.environ.get(name) != value:
            self.changed[name] = os.environ.get(name)
            os.environ[name] = value

    def restore(self) -> None:
        """Puts the environment back: the library has read it."""
        for name, value in self.changed.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        self.changed.clear()

"""ONNX Runtime built with OpenMP (onnxruntime-openmp, and onnxruntime before 1.7).

Its intra-op pool is the team of the libgomp that it is linked to: SessionOptions' count does nothing there, and
OMP_NUM_THREADS and OMP_WAIT_POLICY are read once, when the library is loaded. So the plan's values are put into the
environment for that moment, and taken out again: other libraries and child processes see what the pod spec says.
"""

from __future__ import annotations

import os
from typing import Any, Mapping

from raddle import env, in_c
from raddle.process import current, resolution

WAIT_POLICY = "OMP_WAIT_POLICY"
# never: workers sleep at once. bounded is left to libgomp, which spins for some milliseconds.
_POLICIES = {"never": "PASSIVE", "always": "ACTIVE"}


class OpenMP:
    """The environment of the OpenMP library while it is loaded, and what it came to."""

    def __init__(self, fields: Mapping[str, Any]) -> None:
        self.changed: list[str] = []
        self.values: dict[str, Any] = {}
        self.because: dict[str, str] = {}
        override = fields.get("existing_values") == "override"
        wanted = resolution.resolve(fields, current.read_facts(fields))
        self._count(wanted, override=override)
        self._spinning(wanted, override=override)

    def _count(self, wanted: resolution.Effective, *, override: bool) -> None:
        present = os.environ.get(env.OMP, "")
        if wanted.intra_op is not None and (not present or override):
            self._set(env.OMP, str(wanted.intra_op))
            self.values["intraOp"] = wanted.intra_op
            if "intraOp" in wanted.because:
                self.because["intraOp"] = wanted.because["intraOp"]
            return
        if present:
            self.because["intraOp"] = env.OMP
        first = present.partition(",")[0].strip()
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
            self.values["spinning"], self.because["spinning"] = "code", WAIT_POLICY
        else:
            self.values["spinning"], self.because["spinning"] = "always", "as long as libgomp does by itself"

    def _set(self, name: str, value: str) -> None:
        if env.effective(os.environ).get(name) != value:
            self.changed.append(name)
            os.putenv(name, value)

    def restore(self) -> None:
        """Puts C's environment back: the library has read it."""
        for name in self.changed:
            before = env.effective(os.environ).get(name)
            if before is None:
                os.unsetenv(name)
            else:
                os.putenv(name, before if name in os.environ else in_c(name, before))
        self.changed.clear()

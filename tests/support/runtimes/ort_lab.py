"""Real onnxruntime of several releases under plans: one process per plan, forks of one per release and environment."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from raddle import env
from runtimes import pythons
from support.runtimes import shim_lab

ROW = "ONNX Runtime (Python)"
# One Python a release.
RELEASES = [release for release in pythons.RELEASES if not release.endswith("py3.13")]
CPUS = sorted(os.sched_getaffinity(0))
MARKS = [
    pytest.mark.runtime,
    pytest.mark.skipif(len(CPUS) < 2, reason="needs two CPUs: a pool of one has no threads to count"),
    # The first run on a machine installs all releases.
    pytest.mark.timeout(900),
]


def version(release: str) -> str:
    """ "1.31.1" of "ort-1.31.1-py3.13"."""
    return release.split("-")[1]


def at_least(release: str, wanted: str) -> bool:
    """Whether the release is of this version, such as "1.26", or a later one."""
    return [int(part) for part in version(release).split(".")[:2]] >= [int(part) for part in wanted.split(".")]


class Lab:
    """The tree that a container would mount, and the models, below one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.mounted = shim_lab.mount(folder / "mount")
        self.model = shim_lab.write_model(folder / "chain.onnx")
        self.levels = shim_lab.write_levels_model(folder / "levels.onnx")
        self._probers: dict[object, shim_lab.Prober] = {}

    def close(self) -> None:
        """Ends its processes."""
        for prober in self._probers.values():
            prober.end()

    def wide(self, columns: int) -> Path:
        """A model whose runs take two blocks of columns / 256 MiB each."""
        path = self.folder / f"wide-{columns}.onnx"
        return path if path.exists() else shim_lab.write_wide_model(path, columns)

    def probe(
        self, release: str, plan: str | None, *sessions: Mapping[str, Any] | None, **kwargs: Any
    ) -> dict[str, Any]:
        """What `probe_in` returns, of a release."""
        return self.probe_in(pythons.release(release), plan, *sessions, **kwargs)

    def probe_in(
        self, python: Path | str, plan: str | None, *sessions: Mapping[str, Any] | None, **kwargs: Any
    ) -> dict[str, Any]:
        """What shim_probe.py saw under the plan (None: without Raddle), of `sessions` or one with default options."""
        variables, asked = dict(kwargs.pop("extra", {})), sessions or [None]
        loaded, planned = {}, {}
        if plan is not None:
            loaded = {**shim_lab.python_path(self.mounted), env.PLAN: "v=1"}
            planned = {env.PLAN: variables.pop(env.PLAN, f"v=1;{plan}".rstrip(";"))}
        variables = {**loaded, **variables}
        if "before" in kwargs:
            return shim_lab.probe(python, self.model, asked, env={**variables, **planned}, **kwargs)
        key = (python, *sorted(variables.items()))
        if key not in self._probers:
            self._probers[key] = shim_lab.Prober(python, variables)
        return self._probers[key].probe(self.model, asked, environ=planned, **kwargs)

    def probes(
        self, release: str, plans: Mapping[str, tuple[str | None, Sequence[Mapping[str, Any] | None]]], **kwargs: Any
    ) -> dict[str, Any]:
        """Name -> what was seen under that plan by those sessions."""
        return {name: self.probe(release, plan, *sessions, **kwargs) for name, (plan, sessions) in plans.items()}

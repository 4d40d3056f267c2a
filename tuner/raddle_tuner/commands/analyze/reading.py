"""What is analyzed: the file that the command names, with the inputs that it names, on the CPUs that are here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import click
from rich.console import Console

from raddle.cpus import cpuset
from raddle.process import cgroup
from raddle_operator.cli.manifests import ManifestError
from raddle_tuner.analysis import analysis, measure, onnx_model, torchscript
from raddle_tuner.analysis.analysis import Analysis
from raddle_tuner.analysis.onnx_model import Model
from raddle_tuner.trials import inputs
from raddle_tuner.trials.inputs import Array, InputError


def analysis_of(path: Path, shapes: Sequence[str], npz: Path | None) -> Analysis:
    """The analysis of a model's file. Raises ClickException for bad input, EndedError."""
    if path.suffix not in inputs.TORCHSCRIPT:
        return _of_onnx(path, shapes, npz)
    if shapes or npz:
        raise click.UsageError("--shape and --inputs are for ONNX models: a TorchScript model is not run")
    try:
        return analysis.of_torchscript(torchscript.read(path))
    except InputError as error:
        raise ManifestError(str(error)) from None


def _of_onnx(path: Path, shapes: Sequence[str], npz: Path | None) -> Analysis:
    asked = bool(shapes or npz)
    try:
        model = onnx_model.read(path)
        try:
            arrays = _arrays(model, shapes, npz)
        except InputError as error:
            if asked:
                raise
            return analysis.of_onnx(model, None, (f"nothing was run: {error}",))
        with Console(stderr=True).status("") as status:
            counts = sorted({1, min(2, _cpus()), _cpus()})
            return analysis.of_onnx(model, measure.measured(path, arrays, counts, status.update))
    except InputError as error:
        raise ManifestError(str(error)) from None
    except measure.LoadError as error:
        raise ManifestError(f"{path}: ONNX Runtime can't load it: {error}") from None
    except measure.RunError as error:
        if asked:
            raise ManifestError(f"{path}: it does not run with these inputs: {error}") from None
        hint = "give real ones with --shape or --inputs"
        return analysis.of_onnx(model, None, (f"it does not run with generated inputs ({hint}): {error}",))


def _arrays(model: Model, shapes: Sequence[str], npz: Path | None) -> Mapping[str, Array]:
    if npz is not None:
        return inputs.read_npz(npz, model.inputs)
    return inputs.made(model.inputs, dict(map(inputs.parsed_shape, shapes)))


def _cpus() -> int:
    """How many threads can run at once here: CPUs that this process may use, whole ones of its quota."""
    usable, quota = cgroup.usable_cpus(cgroup.read_limits())
    count = cpuset.count(usable) if usable else 1
    return max(1, min(count, int(quota)) if quota is not None else count)

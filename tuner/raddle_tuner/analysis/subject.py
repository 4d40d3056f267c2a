"""A model to tune, by what its file says."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

from raddle_tuner.analysis import onnx_model
from raddle_tuner.trials import inputs, models, programs
from raddle_tuner.trials.subject import Model, Runner


def model(
    path: Path,
    runner: Runner,
    folder: Path,
    *,
    file: Path | None = None,
    npz: Path | None = None,
    shapes: Mapping[str, inputs.Shape] | None = None,
    start_s: float = programs.START_S,
) -> Model:
    """The model with its inputs in the folder: those of `npz`, without one made. Raises InputError, OSError.

    `file` is the model here, where `path` is elsewhere.
    """
    file = file or path
    models.write_inputs(folder, inputs.asked(file, npz, shapes))
    with file.open("rb") as opened:
        digest = "sha256:" + hashlib.file_digest(opened, "sha256").hexdigest()
    # TorchScript's forks are counted by its runner, which has torch.
    max_inter_op = 1 if path.suffix in inputs.TORCHSCRIPT else onnx_model.max_inter_op(file)
    return Model(path=path, runner=runner, inputs=folder, digest=digest, start_s=start_s, max_inter_op=max_inter_op)

"""The runners of a model alone: in Python, Node.js and C the same program, each in its language's way."""

from __future__ import annotations

import platform
import re
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

import numpy as np

import raddle
from raddle_tuner.trials.inputs import TORCHSCRIPT, Array
from raddle_tuner.trials.words import escaped

RUNNERS: Final = ("python", "node", "c")
# What a runner takes itself, beside what the environment and the shim decide.
_CAN: Final[Mapping[str, tuple[str, ...]]] = {
    "python": ("instances", "ioBinding"),
    "node": ("instances",),
    "c": ("instances", "ioBinding"),
}
_CAN_SCRIPT: Final = ("instances",)
_PROGRAMS: Final[Mapping[str, str]] = {
    "python": "runner/run_model.py",
    "node": "runner/run_model.cjs",
    "c": f"_native/{platform.machine()}/run-model",
}
_PYTHON: Final = re.compile(r"(?:.*/)?python[\d.]*")


def _program(language: str) -> Path:
    return Path(raddle.__file__).parent / _PROGRAMS[language]


def can(language: str, model: Path) -> tuple[str, ...]:
    """What the language's runner takes itself for the model, as in Case."""
    return _CAN_SCRIPT if model.suffix in TORCHSCRIPT else _CAN[language]


class RunnerError(ValueError):
    """A runner can't be had; the message says what is missing, in words for people."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Runner:
    """How a model is run: a language of RUNNERS, and what has the runtime there.

    That is a Python, a folder with node_modules, or a libonnxruntime.so. None: the Python that runs this, the current
    folder, what the loader finds.
    """

    language: str = "python"
    runtime: Path | None = None

    def command(self, model: Path, inputs: Path, *, io_binding: bool = False) -> list[str]:
        """The command line, but for the socket. Raises RunnerError."""
        if model.suffix in TORCHSCRIPT and self.language != "python":
            raise RunnerError(f"{model}: a TorchScript model is run in Python; leave out --runner {self.language}")
        arguments = [str(model.absolute()), str(inputs), "io-binding" if io_binding else "plain"]
        return [*_COMMANDS[self.language](self.runtime), *arguments]


def _python(runtime: Path | None) -> list[str]:
    # Not -I: the image's own site and the shim's are part of what is measured.
    python = sys.executable if runtime is None else str(runtime.absolute())
    if shutil.which(python) is None:
        raise RunnerError(f"{python} is not a Python interpreter")
    return [python, str(_program("python"))]


def _node(runtime: Path | None) -> list[str]:
    node = shutil.which("node")
    if node is None:
        raise RunnerError("node is not on the PATH")
    folder = (runtime or Path()).absolute()
    packages = folder if folder.name == "node_modules" else folder / "node_modules"
    if not (packages / "onnxruntime-node").is_dir():
        raise RunnerError(f"{packages} has no onnxruntime-node; name a folder that has it with --runtime")
    return [node, str(_program("node")), str(packages / "onnxruntime-node")]


def _c(runtime: Path | None) -> list[str]:
    program = _program("c")
    if not program.is_file():
        raise RunnerError(f"this installation has no runner in C for {platform.machine()}: python -m native build")
    if runtime is not None and not runtime.is_file():
        raise RunnerError(f"{runtime} is not a file; the C runner needs a libonnxruntime.so")
    return [str(program), "libonnxruntime.so.1" if runtime is None else str(runtime.absolute())]


_COMMANDS: Final = {"python": _python, "node": _node, "c": _c}


@dataclass(frozen=True, slots=True, kw_only=True)
class PodRunner:
    """How a model is run in a tuning's pod: a language of RUNNERS, and the runner's file in the workload's container.

    `own` is the first word of the container's own command, "" where that is the image's.
    """

    language: str
    file: Path
    own: str = ""

    @classmethod
    def written(cls, language: str, folder: Path, own: str = "") -> Self:
        """The runner, written into the folder. Raises OSError where this installation has none of this language."""
        source = _program(language)
        # Executable, as the one in C has to be.
        file = folder / source.name
        shutil.copy(source, file)
        file.chmod(0o755)
        return cls(language=language, file=file, own=own)

    def command(self, model: Path, inputs: Path, *, io_binding: bool = False) -> list[str]:
        """The command line as a pod spec's, but for the socket."""
        file = escaped(str(self.file))
        first = {
            # The interpreter of a virtual environment is seldom the first one on the PATH.
            "python": [self.own if _PYTHON.fullmatch(self.own) else "python3", file],
            "node": ["node", file, "$(PWD)/node_modules/onnxruntime-node"],
            "c": [file, "libonnxruntime.so.1"],
        }[self.language]
        return [*first, escaped(str(model)), escaped(str(inputs)), "io-binding" if io_binding else "plain"]


def write_inputs(folder: Path, arrays: Mapping[str, Array]) -> None:
    """Writes the arrays as the runners read them (run_model.py). Raises OSError."""
    lines = []
    for number, (name, array) in enumerate(arrays.items()):
        file = f"{number}.raw"
        strings = array.dtype.kind in "USO"
        kind = "str" if strings else array.dtype.name
        if strings:
            content = b"".join(str(value).encode() + b"\0" for value in array.flat)
        else:
            content = np.ascontiguousarray(array).tobytes()
        (folder / file).write_bytes(content)
        lines.append(f"{kind} {','.join(map(str, array.shape)) or '-'} {file} {name}\n")
    (folder / "inputs").write_text("".join(lines))

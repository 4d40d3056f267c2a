"""Models of a few microseconds, for tests of what runs a model."""

from __future__ import annotations

from pathlib import Path

import onnx_models


def write(folder: Path, *, side: int = 8) -> Path:
    """An ONNX file: the product of a matrix with itself, of a batch without a size."""
    return _written(folder / "tiny.onnx", "y = MatMul(x, x)", side)


def write_wide(folder: Path, *, branches: int, side: int = 8) -> Path:
    """An ONNX file: so many products beside each other, and their sum."""
    names = [f"branch{n}" for n in range(branches)]
    steps = [*(f"{name} = MatMul(x, x)" for name in names), f"y = Sum({', '.join(names)})"]
    return _written(folder / "wide.onnx", " ".join(steps), side)


def _written(path: Path, steps: str, side: int) -> Path:
    shape = f"float[batch,{side},{side}]"
    return onnx_models.write(path, f"tiny ({shape} x) => ({shape} y) {{ {steps} }}")

"""Models of a few microseconds, for tests of what runs a model."""

from __future__ import annotations

from pathlib import Path

import onnx
from onnx import TensorProto, helper


def write(folder: Path, *, side: int = 8) -> Path:
    """An ONNX file: the product of a matrix with itself, of a batch without a size."""
    node = helper.make_node("MatMul", ["x", "x"], ["y"])
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", side, side]) for name in "xy")
    graph = helper.make_graph([node], "tiny", [x], [y])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path = folder / "tiny.onnx"
    onnx.save(model, path)
    return path

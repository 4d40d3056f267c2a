"""Models of a few microseconds, for tests of what runs a model."""

from __future__ import annotations

from pathlib import Path

import onnx
from onnx import TensorProto, helper


def write(folder: Path, *, side: int = 8) -> Path:
    """An ONNX file: the product of a matrix with itself, of a batch without a size."""
    return _saved(folder / "tiny.onnx", [helper.make_node("MatMul", ["x", "x"], ["y"])], side)


def write_wide(folder: Path, *, branches: int, side: int = 8) -> Path:
    """An ONNX file: so many products beside each other, and their sum."""
    nodes = [helper.make_node("MatMul", ["x", "x"], [f"branch{n}"]) for n in range(branches)]
    nodes.append(helper.make_node("Sum", [f"branch{n}" for n in range(branches)], ["y"]))
    return _saved(folder / "wide.onnx", nodes, side)


def _saved(path: Path, nodes: list[onnx.NodeProto], side: int) -> Path:
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", side, side]) for name in "xy")
    graph = helper.make_graph(nodes, "tiny", [x], [y])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path

"""`python examples/branches.py FILE`: the network with three branches of docs/how-to/analyze-a-model.md."""

# ruff: noqa: INP001  # a program

from __future__ import annotations

import sys

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

CHANNELS = 32


def main(path: str) -> None:
    """Writes the ONNX file."""
    rng = np.random.default_rng(20261123)
    nodes, weights = [], []

    def convolution(name: str, taken: str, depth: int, side: int) -> None:
        kernel = rng.standard_normal((CHANNELS, depth, side, side), dtype=np.float32) / np.float32(side * depth**0.5)
        weights.append(numpy_helper.from_array(kernel, f"{name} weights"))
        nodes.append(
            helper.make_node("Conv", [taken, f"{name} weights"], [name], name=name, pads=[side // 2] * 4),
        )

    convolution("stem", "image", 3, 3)
    for side in (1, 3, 5):
        convolution(f"branch{side}", "stem", CHANNELS, side)
    nodes.append(helper.make_node("Concat", ["branch1", "branch3", "branch5"], ["concat"], name="concat", axis=1))
    nodes.append(helper.make_node("GlobalAveragePool", ["concat"], ["features"], name="features"))
    image = helper.make_tensor_value_info("image", TensorProto.FLOAT, ["batch", 3, 80, 80])
    features = helper.make_tensor_value_info("features", TensorProto.FLOAT, ["batch", 3 * CHANNELS, 1, 1])
    graph = helper.make_graph(nodes, "branches", [image], [features], weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


if __name__ == "__main__":
    main(*sys.argv[1:])

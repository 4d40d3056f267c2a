"""The model that the guest's application loads: a chain of matrix products whose weights are easy to find again."""

from __future__ import annotations

from pathlib import Path

SIZE = 1024
LAYERS = 2
ROWS = 4
WEIGHTS_MIB = SIZE * SIZE * 4 * LAYERS // 2**20


def write(path: Path) -> Path:
    """Write it to `path`, which is returned. Emulated CPUs are slow: few rows, so that an answer takes little."""
    import numpy as np
    from onnx import TensorProto, helper, numpy_helper

    rng = np.random.default_rng(7)
    nodes, weights, value = [], [], "input"
    for layer in range(LAYERS):
        # So small that numbers stay in range over all layers.
        weight = (rng.standard_normal((SIZE, SIZE)) / SIZE**0.5).astype(np.float32)
        weights.append(numpy_helper.from_array(weight, f"w{layer}"))
        nodes.append(helper.make_node("MatMul", [value, f"w{layer}"], [f"y{layer}"]))
        value = f"y{layer}"
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [ROWS, SIZE]) for name in ("input", value)]
    graph = helper.make_graph(nodes, "chain", ends[:1], ends[1:], weights)
    path.write_bytes(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()
    )
    return path

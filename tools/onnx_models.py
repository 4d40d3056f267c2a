"""Small ONNX models, written in ONNX's own text syntax (onnx.parser)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Weights = NDArray[np.float32]


def write(
    path: Path, graph: str, weights: Mapping[str, Weights] | None = None, *, opset: int = 17, ir_version: int = 8
) -> Path:
    """Write a model to `path`, which is returned; `graph` is such as "g (float[1] x) => (float[1] y) {y = Relu(x)}"."""
    # Here, so that a test's process has no threads of numpy's before it needs a model.
    import onnx.parser
    from onnx import helper, numpy_helper

    made = onnx.parser.parse_graph(graph)
    made.initializer.extend(numpy_helper.from_array(values, name) for name, values in (weights or {}).items())
    model = helper.make_model(made, opset_imports=[helper.make_opsetid("", opset)], ir_version=ir_version)
    path.write_bytes(model.SerializeToString())
    return path


def write_chain(path: Path, rows: int, weights: Sequence[Weights], *, opset: int = 17, ir_version: int = 8) -> Path:
    """Write the products of an input of so many rows with these square matrices, one after another."""
    size, last = len(weights[0]), len(weights) - 1
    steps = [f"y{n} = MatMul({f'y{n - 1}' if n else 'input'}, w{n})" for n in range(len(weights))]
    graph = f"chain (float[{rows},{size}] input) => (float[{rows},{size}] y{last}) {{ {' '.join(steps)} }}"
    named = {f"w{n}": matrix for n, matrix in enumerate(weights)}
    return write(path, graph, named, opset=opset, ir_version=ir_version)

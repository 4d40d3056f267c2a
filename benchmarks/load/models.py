"""The models: plain convolutional networks with random weights from a fixed seed, built on the spot.

A size is (side of the square image, channels, layers); sizes are fixed so that runs on one machine can be compared,
and the time that one costs here is measured and printed with every result (`measure.service_time_s`).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

_OPSET, _IR = 17, 10  # read by every ONNX Runtime since 1.18


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """One kind of request: a network, and the side of the square matrices that numpy multiplies first (0: none)."""

    name: str
    side: int
    channels: int
    layers: int
    blas_side: int = 0

    def file(self, folder: Path) -> Path:
        """The network as an ONNX file in `folder`, written if it is not there."""
        path = folder / f"cnn-{self.side}-{self.channels}-{self.layers}.onnx"
        if not path.exists():
            folder.mkdir(parents=True, exist_ok=True)
            partial = path.with_suffix(".partial")
            partial.write_bytes(_network(self.side, self.channels, self.layers))
            partial.replace(path)
        return path


# Times are of one thread of an AMD EPYC of the Zen 4 generation at 2.6 GHz.
SMALL = Model(name="cnn-1ms", side=40, channels=32, layers=5)  # about 1 ms
LARGE = Model(name="cnn-30ms", side=80, channels=64, layers=8)  # about 30 ms
MIX = Model(name="blas+cnn", side=40, channels=32, layers=5, blas_side=512)  # about 2 ms of BLAS, then 1 ms
ALL = {model.name: model for model in (SMALL, LARGE, MIX)}


def _network(side: int, channels: int, layers: int) -> bytes:
    rng = np.random.default_rng(20261121)
    nodes, weights, tensor, depth = [], [], "image", 3
    for layer in range(layers):
        # He initialisation keeps values of the order of one: denormal numbers would cost time of their own.
        kernel = rng.standard_normal((channels, depth, 3, 3), dtype=np.float32) * np.float32((2 / (9 * depth)) ** 0.5)
        weights.append(numpy_helper.from_array(kernel, f"weight{layer}"))
        convolved, tensor_out = f"conv{layer}", f"relu{layer}"
        nodes.append(helper.make_node("Conv", [tensor, f"weight{layer}"], [convolved], pads=[1] * 4))
        nodes.append(helper.make_node("Relu", [convolved], [tensor_out]))
        tensor, depth = tensor_out, channels
    nodes.append(helper.make_node("GlobalAveragePool", [tensor], ["features"]))
    image = helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, 3, side, side])
    features = helper.make_tensor_value_info("features", TensorProto.FLOAT, [1, channels, 1, 1])
    graph = helper.make_graph(nodes, "cnn", [image], [features], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", _OPSET)], ir_version=_IR)
    onnx.checker.check_model(model)
    return bytes(model.SerializeToString())

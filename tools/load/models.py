"""What a request costs: each model is one run time, in about as many milliseconds of one thread, for every runtime.

Plain convolutional networks with random weights from a fixed seed, built on the spot; a loop for OpenMP; a product of
square matrices beside a smaller network for BLAS. Sizes are fixed so that runs on one machine can be compared, and the
time that one costs here is measured and printed with every result (`measure.service_time_s`).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

_OPSET, _IR = 17, 10  # read by every ONNX Runtime since 1.18


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """A convolutional network: the side of its square image, channels, layers."""

    side: int
    channels: int
    layers: int

    def file(self, folder: Path) -> Path:
        """The network as an ONNX file in `folder`, written if it is not there."""
        path = folder / f"cnn-{self.side}-{self.channels}-{self.layers}.onnx"
        if not path.exists():
            folder.mkdir(parents=True, exist_ok=True)
            partial = path.with_suffix(".partial")
            partial.write_bytes(_bytes(self))
            partial.replace(path)
        return path


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """One run time.

    `loop_values` is the length of OpenMP's loop. Half of a request beside BLAS is a product of matrices of side
    `blas_side`, half the network `beside_blas`.
    """

    name: str
    network: Network
    loop_values: int
    blas_side: int
    beside_blas: Network

    def file(self, folder: Path) -> Path:
        """The network as an ONNX file in `folder`."""
        return self.network.file(folder)


# Names are what one thread of a recent server CPU takes, more or less.
SMALL = Model(
    name="cnn-1ms",
    network=Network(side=40, channels=32, layers=5),
    loop_values=100_000,
    blas_side=330,
    beside_blas=Network(side=28, channels=32, layers=5),
)
BELOW_2MS = Model(
    name="cnn-1.7ms",
    network=Network(side=58, channels=32, layers=5),
    loop_values=200_000,
    blas_side=390,
    beside_blas=Network(side=36, channels=32, layers=5),
)
MEDIUM = Model(
    name="cnn-5ms",
    network=Network(side=80, channels=32, layers=8),
    loop_values=600_000,
    blas_side=570,
    beside_blas=Network(side=60, channels=32, layers=5),
)
LARGE = Model(
    name="cnn-33ms",
    network=Network(side=80, channels=64, layers=13),
    loop_values=3_600_000,
    blas_side=1130,
    beside_blas=Network(side=80, channels=64, layers=5),
)
ALL = {model.name: model for model in (SMALL, BELOW_2MS, MEDIUM, LARGE)}


def _bytes(network: Network) -> bytes:
    rng = np.random.default_rng(20261121)
    nodes, weights, tensor, depth = [], [], "image", 3
    side, channels = network.side, network.channels
    for layer in range(network.layers):
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

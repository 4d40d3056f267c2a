"""Small models with random weights for the programs that take ones of a certain shape, beside those of the shims' tests."""

from __future__ import annotations

import itertools
from pathlib import Path

SIDE = 320
WIDTH = 256
WORDS = ("[PAD]", "[UNK]", "hello", "world")


def write(folder: Path) -> None:
    """picture.onnx, whose answer is a mask of a picture, and words.onnx, an encoder of texts of WORDS."""
    import numpy as np
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    random = np.random.default_rng(7)

    def weights(name: str, *shape: int) -> onnx.TensorProto:
        return numpy_helper.from_array(random.standard_normal(shape).astype(np.float32) / WIDTH, name)

    def end(name: str, kind: int, *shape: str | int) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, kind, shape)

    def save(name: str, graph: onnx.GraphProto) -> None:
        made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        onnx.save(made, folder / name)

    picture = [
        helper.make_node("Conv", ["picture", "wide"], ["features"], pads=[1] * 4),
        helper.make_node("Relu", ["features"], ["some"]),
        helper.make_node("Conv", ["some", "narrow"], ["mask"], pads=[1] * 4),
    ]
    ends = [end("picture", TensorProto.FLOAT, 1, 3, SIDE, SIDE), end("mask", TensorProto.FLOAT, 1, 1, SIDE, SIDE)]
    tables = [weights("wide", 16, 3, 3, 3), weights("narrow", 1, 16, 3, 3)]
    save("picture.onnx", helper.make_graph(picture, "picture", ends[:1], ends[1:], tables))

    layers = ["embedded", *(f"layer{n}" for n in range(4)), "last_hidden_state"]
    words = [
        helper.make_node("Gather", ["table", "input_ids"], layers[:1]),
        *(helper.make_node("MatMul", [old, f"w_{new}"], [new]) for old, new in itertools.pairwise(layers)),
    ]
    inputs = [end(name, TensorProto.INT64, "batch", "tokens") for name in ("input_ids", "attention_mask")]
    output = end(layers[-1], TensorProto.FLOAT, "batch", "tokens", WIDTH)
    tables = [weights("table", len(WORDS), WIDTH), *(weights(f"w_{new}", WIDTH, WIDTH) for new in layers[1:])]
    save("words.onnx", helper.make_graph(words, "words", inputs, [output], tables))

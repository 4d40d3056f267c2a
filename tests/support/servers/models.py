"""Small models with random weights for the programs that take ones of a certain shape, beside those of the shims' tests."""

from __future__ import annotations

import itertools
from pathlib import Path

import onnx_models

SIDE = 320
WIDTH = 256
WORDS = ("[PAD]", "[UNK]", "hello", "world")


def write(folder: Path) -> None:
    """picture.onnx, whose answer is a mask of a picture, and words.onnx, an encoder of texts of WORDS."""
    import numpy as np

    random = np.random.default_rng(7)

    def weights(*shape: int) -> np.ndarray:
        return random.standard_normal(shape).astype(np.float32) / np.float32(WIDTH)

    picture = f"""
    picture (float[1,3,{SIDE},{SIDE}] picture) => (float[1,1,{SIDE},{SIDE}] mask) {{
        features = Conv <pads = [1, 1, 1, 1]> (picture, wide)
        some = Relu(features)
        mask = Conv <pads = [1, 1, 1, 1]> (some, narrow)
    }}"""
    kernels = {"wide": weights(16, 3, 3, 3), "narrow": weights(1, 16, 3, 3)}
    onnx_models.write(folder / "picture.onnx", picture, kernels)

    layers = ["embedded", *(f"layer{n}" for n in range(4)), "last_hidden_state"]
    products = " ".join(f"{new} = MatMul({old}, w_{new})" for old, new in itertools.pairwise(layers))
    words = f"""
    words (int64[batch,tokens] input_ids, int64[batch,tokens] attention_mask)
        => (float[batch,tokens,{WIDTH}] last_hidden_state) {{ embedded = Gather(table, input_ids) {products} }}"""
    tables = {"table": weights(len(WORDS), WIDTH), **{f"w_{new}": weights(WIDTH, WIDTH) for new in layers[1:]}}
    onnx_models.write(folder / "words.onnx", words, tables)

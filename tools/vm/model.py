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

    from onnx_models import write_chain

    rng = np.random.default_rng(7)
    # So small that numbers stay in range over all layers.
    weights = [(rng.standard_normal((SIZE, SIZE)) / SIZE**0.5).astype(np.float32) for _ in range(LAYERS)]
    return write_chain(path, ROWS, weights)

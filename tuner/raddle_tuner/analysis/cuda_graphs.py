"""What in a model forbids that ONNX Runtime captures it as a CUDA graph.

A captured graph replays the same kernels on the same addresses: all nodes must run on the GPU, the host may decide
nothing, and all shapes must be the same each time (ONNX Runtime's documentation, "CUDA Execution Provider", "Using
CUDA Graphs").
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from raddle_tuner.analysis.onnx_model import CONTROL_FLOW, Model
from raddle_tuner.trials.inputs import ModelInput

# Operators of ONNX that the CPU provider has a kernel for and the CUDA provider of 1.31.1 has not: its library
# (libonnxruntime_providers_cuda.so) has no such name. Without those that ONNX defines as functions of others. Of
# ONNX-ML it has LabelEncoder alone.
_CPU_ONLY: Final = frozenset({
    "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "BitCast", "BitShift", "BitwiseAnd", "BitwiseNot",
    "BitwiseOr", "BitwiseXor", "Col2Im", "ConvInteger", "Cosh", "CumProd", "DFT", "Det", "Hardmax", "MaxRoiPool",
    "MelWeightMatrix", "Multinomial", "Optional", "OptionalGetElement", "OptionalHasElement", "QLinearConv",
    "QLinearMatMul", "RegexFullMatch", "STFT", "Sinh", "SplitToSequence", "StringConcat", "StringNormalizer",
    "StringSplit", "Tan", "TfIdfVectorizer", "Unique",
})  # fmt: skip
_DECIDES: Final = "the host decides what runs next"
_ML: Final = "ai.onnx.ml."
_ML_ON_CUDA: Final = f"{_ML}LabelEncoder"
# The shapes of their outputs depend on values, so that the host waits for them.
_SHAPES_BY_VALUES: Final = ("Compress", "NonMaxSuppression", "NonZero", "Unique")


def obstacles(model: Model) -> tuple[str, ...]:
    """Why it can't be captured, a sentence each; () where nothing in the file forbids it."""
    return (*_control_flow(model), *_partition(model), *_shapes(model))


# Operators of PyTorch that the host waits for: it needs their values, or the shape of their outputs.
_WAITED_FOR: Final = ("aten::item", "aten::masked_select", "aten::nonzero", "aten::unique", "aten::unique_consecutive")


def obstacles_of_script(control_flow: Sequence[tuple[str, str]], kinds: Mapping[str, int]) -> tuple[str, ...]:
    """The same of a TorchScript model, as far as its code shows."""
    result = []
    if control_flow:
        result.append(f"control flow ({_counted(Counter(kind for kind, _ in control_flow))}): {_DECIDES}")
    waited = {kind: kinds[kind] for kind in _WAITED_FOR if kinds.get(kind)}
    if waited:
        result.append(f"values or shapes that the host waits for ({_counted(waited)})")
    return tuple(result)


def open_dimensions(one: ModelInput) -> tuple[str, ...]:
    """The names of the dimensions that may differ from run to run, `?2` for the third where it has none."""
    return tuple(
        dim if isinstance(dim, str) else f"?{place}"
        for place, dim in enumerate(one.shape or ())
        if not isinstance(dim, int)
    )


def _control_flow(model: Model) -> Iterator[str]:
    result = {kind: model.kinds[kind] for kind in CONTROL_FLOW if model.kinds.get(kind)}
    if result:
        yield f"control flow ({_counted(result)}): {_DECIDES}"


def _partition(model: Model) -> Iterator[str]:
    result = {
        kind: count
        for kind, count in sorted(model.kinds.items())
        if kind in _CPU_ONLY or (kind.startswith(_ML) and kind != _ML_ON_CUDA)
    }
    if result:
        yield f"operators that run only on the CPU ({_counted(result)}): the model is split between CPU and GPU"
    odd = [f"{one.name} {one.text}" for one in model.inputs if one.type == "tensor(string)" or "tensor" not in one.type]
    if odd:
        yield f"inputs that a GPU can't take ({', '.join(odd)})"


def _shapes(model: Model) -> Iterator[str]:
    dynamic = {one.name: open_dimensions(one) for one in model.inputs}
    result = [f"{name}: {', '.join(dims)}" for name, dims in dynamic.items() if dims]
    result += [f"{one.name}: any" for one in model.inputs if one.shape is None and "tensor" in one.type]
    if result:
        yield f"dynamic shapes ({'; '.join(result)}): a graph is captured for one shape; pad to a few fixed ones"
    by_values = {kind: model.kinds[kind] for kind in _SHAPES_BY_VALUES if model.kinds.get(kind)}
    if by_values:
        yield f"shapes that depend on values ({_counted(by_values)}): the host waits for them"


def _counted(kinds: Mapping[str, int]) -> str:
    return ", ".join(kind if count == 1 else f"{count} {kind}" for kind, count in kinds.items())

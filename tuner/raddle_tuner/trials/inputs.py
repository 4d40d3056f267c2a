"""What a model is asked with: arrays made from the types and shapes of its inputs, or read from an .npz file.

A type is written as ONNX Runtime does: `tensor(float)`. Values are the same each time, so that runs can be compared.
"""

from __future__ import annotations

import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from math import prod
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import onnx
from google.protobuf.message import DecodeError

Array = npt.NDArray[Any]
Shape = tuple[int, ...]

_DTYPES: Final[Mapping[str, type[np.generic]]] = {
    "tensor(float16)": np.float16,
    "tensor(float)": np.float32,
    "tensor(double)": np.float64,
    "tensor(int8)": np.int8,
    "tensor(int16)": np.int16,
    "tensor(int32)": np.int32,
    "tensor(int64)": np.int64,
    "tensor(uint8)": np.uint8,
    "tensor(uint16)": np.uint16,
    "tensor(uint32)": np.uint32,
    "tensor(uint64)": np.uint64,
    "tensor(bool)": np.bool_,
    "tensor(string)": np.str_,
}
_WORDS: Final = ("the", "quick", "brown", "fox", "jumps", "over", "a", "lazy", "dog")
# What torch.jit.save writes; the runner in Python knows it by the same.
TORCHSCRIPT: Final = (".pt", ".pth", ".ts", ".torchscript")
# Inputs whose ones mean "all of it": attention_mask, token lengths.
_ONES: Final = ("mask", "length")
# What one array may take: a dimension that was written wrongly must not fill the memory.
_MAX_BYTES: Final = 8 << 30


class InputError(ValueError):
    """A model or an input that can't be had, in words for people."""


class AnyShapeError(InputError):
    """An input of which the model does not say how many dimensions it has; `problem` is that without the options."""

    def __init__(self, problem: str, options: str) -> None:
        super().__init__(f"{problem}; {options}")
        self.problem = problem


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelInput:
    """An input of a model. A dimension is a number, the name that the model gives it, or None for one without either.

    `shape` is None where the model does not even say how many dimensions there are.
    """

    name: str
    type: str
    shape: tuple[int | str | None, ...] | None

    @property
    def text(self) -> str:
        """Type and shape for people: `float [batch, 3, 224, 224]`, a dimension without number or name as `?`."""
        kind = self.type.removeprefix("tensor(").removesuffix(")") if self.type.startswith("tensor(") else self.type
        if self.shape is None:
            return f"{kind} of any shape" if "tensor" in self.type.lower() else kind
        return f"{kind} [{', '.join('?' if dim is None else str(dim) for dim in self.shape)}]"


def asked(path: Path, npz: Path | None, shapes: Mapping[str, Shape] | None = None) -> dict[str, Array]:
    """What a model is asked with: the arrays of the .npz file, without one those that are made. Raises InputError."""
    if path.suffix in TORCHSCRIPT:
        return _asked_of_script(path, npz, shapes or {})
    wanted = read(path)
    return made(wanted, shapes) if npz is None else read_npz(npz, wanted)


def _asked_of_script(path: Path, npz: Path | None, shapes: Mapping[str, Shape]) -> dict[str, Array]:
    """In the order in which they are given: the file says neither their types nor their shapes."""
    if not path.is_file():
        raise InputError(f"{path}: No such file")
    if npz is None:
        if not shapes:
            raise InputError(
                f"{path}: a TorchScript model does not store the shapes of its inputs; give each, in order, with "
                "--shape image=1,3,224,224 (floats), or give an .npz file with --inputs"
            )
        return made([ModelInput(name=name, type="tensor(float)", shape=None) for name in shapes], shapes)
    arrays = _arrays(npz)
    for name, array in arrays.items():
        if array.dtype.kind in "US":
            raise InputError(f"{npz}: input {name} is text, which no TorchScript model takes")
    return arrays


def read(path: Path) -> tuple[ModelInput, ...]:
    """The inputs that a caller of the ONNX model must give. Raises InputError for a file that is no model."""
    return of_graph(load(path).graph)


def load(path: Path) -> onnx.ModelProto:
    """The ONNX model without the weights that lie in other files. Raises InputError for a file that is no model."""
    try:
        model = onnx.load(path, load_external_data=False)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from None
    except (DecodeError, ValueError) as error:
        raise InputError(f"{path}: is not an ONNX model: {error}") from None
    if not model.graph.node and not model.graph.output:
        raise InputError(f"{path}: is not an ONNX model: it has no nodes and no outputs")
    return model


def of_graph(graph: onnx.GraphProto) -> tuple[ModelInput, ...]:
    """The inputs of a graph that have no value in it."""
    # Before IR version 4 each weight is among the inputs too.
    given = {one.name for one in graph.initializer} | {one.values.name for one in graph.sparse_initializer}
    return tuple(_model_input(one) for one in graph.input if one.name not in given)


def _model_input(one: onnx.ValueInfoProto) -> ModelInput:
    kind = one.type.WhichOneof("value")
    if kind != "tensor_type":
        return ModelInput(name=one.name, type=str(kind).removesuffix("_type"), shape=None)
    tensor = one.type.tensor_type
    element = onnx.TensorProto.DataType.Name(tensor.elem_type).lower()
    shape = tuple(map(_dimension, tensor.shape.dim)) if tensor.HasField("shape") else None
    return ModelInput(name=one.name, type=f"tensor({element})", shape=shape)


def _dimension(dim: onnx.TensorShapeProto.Dimension) -> int | str | None:
    if dim.HasField("dim_value") and dim.dim_value >= 0:
        return int(dim.dim_value)
    return str(dim.dim_param) or None


def parsed_shape(text: str) -> tuple[str, Shape]:
    """The name and the shape of `image=1,3,224,224`; `scale=` is a scalar. Raises InputError."""
    name, sign, dims = text.rpartition("=")
    try:
        shape = tuple(int(dim) for dim in dims.split(",")) if dims.strip() else ()
    except ValueError:
        shape = (-1,)
    if not sign or not name or any(dim < 0 for dim in shape):
        raise InputError(f"{text!r} is not a shape; write NAME=1,3,224,224")
    return name, shape


def made(inputs: Sequence[ModelInput], shapes: Mapping[str, Shape] | None = None) -> dict[str, Array]:
    """An array for each input, of the shape that is given for it, or of its own with 1 for what the model leaves open.

    Floats are normally distributed, uint8 is an image, other integers are 0 or 1 (the ids that every vocabulary has),
    masks and lengths ones, strings words. Raises InputError that names the input.
    """
    shapes = shapes or {}
    unknown = shapes.keys() - {one.name for one in inputs}
    if unknown:
        raise InputError(f"no input is named {', '.join(sorted(unknown))}; the model has {_names(inputs)}")
    rng = np.random.default_rng(20261123)
    return {one.name: _made(one, shapes.get(one.name), rng) for one in inputs}


def _names(inputs: Sequence[ModelInput]) -> str:
    return ", ".join(one.name for one in inputs) or "none"


def _made(one: ModelInput, shape: Shape | None, rng: np.random.Generator) -> Array:
    dtype = _DTYPES.get(one.type)
    if dtype is None:
        allowed = ", ".join(known.removeprefix("tensor(").removesuffix(")") for known in _DTYPES)
        raise InputError(
            f"input {one.name} is {one.text}, which can't be generated; supported are tensors of {allowed}"
        )
    if shape is not None:
        _check_shape(one, shape)
    elif one.shape is None:
        options = f"give --shape {one.name}=1,3,224,224 or an .npz file with --inputs"
        raise AnyShapeError(f"input {one.name} is {one.text}", options)
    else:
        shape = tuple(dim if isinstance(dim, int) else 1 for dim in one.shape)
    if prod(shape) * np.dtype(dtype).itemsize > _MAX_BYTES:
        raise InputError(f"input {one.name}: {list(shape)} would take more than {_MAX_BYTES >> 30} GiB")
    return _values(one, dtype, shape, rng)


def _values(one: ModelInput, dtype: type[np.generic], shape: Shape, rng: np.random.Generator) -> Array:
    if dtype is np.str_:
        return np.array(list(islice(cycle(_WORDS), prod(shape))), dtype=np.str_).reshape(shape)
    if dtype is np.bool_ or any(word in one.name.lower() for word in _ONES):
        return np.ones(shape, dtype)
    if issubclass(dtype, np.floating):
        return np.asarray(rng.standard_normal(shape), dtype)
    return np.asarray(rng.integers(0, 256 if dtype is np.uint8 else 2, shape), dtype)


def write_npz(path: Path, arrays: Mapping[str, Array]) -> None:
    """Writes the arrays by their names. Raises OSError."""
    with zipfile.ZipFile(path, "w") as archive:
        # Not numpy.savez: an input named `file` would be its argument.
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
                np.lib.format.write_array(file, array, allow_pickle=False)


def read_npz(path: Path, inputs: Sequence[ModelInput]) -> dict[str, Array]:
    """The arrays of a file, of the types and shapes that the inputs have. Raises InputError that names the input."""
    arrays = _arrays(path)
    for one in inputs:
        if one.name not in arrays:
            raise InputError(f"{path}: has no input {one.name} ({one.text}); it has {', '.join(arrays) or 'none'}")
        _check(path, one, arrays[one.name])
    unknown = arrays.keys() - {one.name for one in inputs}
    if unknown:
        raise InputError(f"{path}: the model has no input {', '.join(sorted(unknown))}; it has {_names(inputs)}")
    return arrays


def _arrays(path: Path) -> dict[str, Array]:
    """The arrays of an .npz file, in its order. Raises InputError."""
    try:
        # numpy reads an array alone too, and tells of what is no archive by asking for pickle.
        with zipfile.ZipFile(path):
            pass
        with np.load(path, allow_pickle=False) as result:
            return {name: result[name] for name in result.files}
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from None
    except (ValueError, EOFError, zipfile.BadZipFile) as error:
        raise InputError(f"{path}: is not an .npz file of plain arrays: {error}") from None


def _check(path: Path, one: ModelInput, array: Array) -> None:
    dtype = _DTYPES.get(one.type)
    wanted = "a string" if dtype is np.str_ else np.dtype(dtype).name if dtype else None
    if dtype is None or (array.dtype.kind not in "US" if dtype is np.str_ else array.dtype != dtype):
        raise InputError(f"{path}: input {one.name} is {array.dtype.name}, the model takes {wanted or one.text}")
    try:
        _check_shape(one, array.shape)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


def _check_shape(one: ModelInput, shape: Shape) -> None:
    if one.shape is None:
        return
    fits = len(shape) == len(one.shape) and all(
        not isinstance(wanted, int) or wanted == dim for wanted, dim in zip(one.shape, shape, strict=True)
    )
    if not fits:
        raise InputError(f"input {one.name}: {list(shape)} does not fit {one.text}")

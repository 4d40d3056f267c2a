"""What a server of the KServe v2 protocol (Open Inference Protocol) is asked: its model's inputs, made, as a request.

The protocol is kserve/open-inference-protocol's inference_rest.md; tensors as bytes are its extension
binary_tensor_data, extension_binary_data.md of triton-inference-server/server.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np

from raddle_tuner.trials import inputs
from raddle_tuner.trials.inputs import Array, InputError, ModelInput, Shape

BINARY: Final = "binary_tensor_data"
_HEADER_LENGTH: Final = "Inference-Header-Content-Length"
# The protocol's names of types -> ONNX Runtime's.
_TYPES: Final = {
    "BOOL": "tensor(bool)",
    "UINT8": "tensor(uint8)",
    "UINT16": "tensor(uint16)",
    "UINT32": "tensor(uint32)",
    "UINT64": "tensor(uint64)",
    "INT8": "tensor(int8)",
    "INT16": "tensor(int16)",
    "INT32": "tensor(int32)",
    "INT64": "tensor(int64)",
    "FP16": "tensor(float16)",
    "FP32": "tensor(float)",
    "FP64": "tensor(double)",
    "BYTES": "tensor(string)",
}
_DATATYPES: Final = {kind: datatype for datatype, kind in _TYPES.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """Where the model's inputs come from: a file, without one they are made, of these shapes where one is given."""

    npz: Path | None = None
    shapes: Mapping[str, Shape] = field(default_factory=dict)

    def arrays(self, wanted: tuple[ModelInput, ...]) -> dict[str, Array]:
        """An array for each input. Raises InputError."""
        return inputs.made(wanted, self.shapes) if self.npz is None else inputs.read_npz(self.npz, wanted)


def server_url(model_url: str) -> str:
    """The server's own, of a model's: `http://localhost:8000/v2` of `http://localhost:8000/v2/models/resnet`.

    Raises InputError where it is no model's.
    """
    before, sign, name = model_url.partition("/v2/models/")
    if not sign or not name:
        raise InputError(
            f"{model_url!r} is not a model URL of the KServe v2 protocol; write http://HOST:PORT/v2/models/NAME"
        )
    return f"{before}/v2"


def request(server: bytes, model: bytes, given: Inputs) -> tuple[bytes, dict[str, str]]:
    """The body of an infer request and its headers; tensors as bytes where the server says that it takes them.

    `server` and `model` are the answers with their metadata. Raises InputError.
    """
    wanted = _inputs(_object(model, "the model's metadata"))
    binary = BINARY in (_object(server, "the server's metadata").get("extensions") or ())
    result = given.arrays(wanted)
    if not binary:
        halves = [one.name for one in wanted if one.type == "tensor(float16)"]
        if halves:
            raise InputError(f"input {halves[0]} is FP16, which JSON can't carry, and the server has no {BINARY}")
        tensors = [{**_tensor(one, result[one.name]), "data": _values(result[one.name])} for one in wanted]
        return json.dumps({"inputs": tensors}).encode(), {"Content-Type": "application/json"}
    contents = {one.name: _bytes(result[one.name]) for one in wanted}
    tensors = [
        {**_tensor(one, result[one.name]), "parameters": {"binary_data_size": len(contents[one.name])}}
        for one in wanted
    ]
    header = json.dumps({"inputs": tensors, "parameters": {"binary_data_output": True}}).encode()
    headers = {"Content-Type": "application/octet-stream", _HEADER_LENGTH: str(len(header))}
    return header + b"".join(contents.values()), headers


def _inputs(model: Mapping[str, Any]) -> tuple[ModelInput, ...]:
    result = []
    for one in model.get("inputs") or ():
        try:
            name, datatype, shape = str(one["name"]), str(one["datatype"]), [int(dim) for dim in one["shape"]]
        except (KeyError, TypeError, ValueError):
            raise InputError(f"the model's metadata has an input without name, datatype and shape: {one}") from None
        open_shape = tuple(None if dim < 0 else dim for dim in shape)
        result.append(ModelInput(name=name, type=_TYPES.get(datatype, datatype), shape=open_shape))
    if not result:
        raise InputError("the model's metadata names no inputs; give the request by --http URL --request FILE")
    return tuple(result)


def _object(text: bytes, what: str) -> Mapping[str, Any]:
    try:
        result = json.loads(text)
    except ValueError:
        result = None
    if not isinstance(result, dict):
        raise InputError(f"{what} is not a JSON object: {text[:60]!r}")
    return result


def _tensor(one: ModelInput, array: Array) -> dict[str, Any]:
    return {"name": one.name, "shape": list(array.shape), "datatype": _DATATYPES[one.type]}


def _values(array: Array) -> list[Any]:
    result: list[Any] = array.ravel().tolist()
    return result


def _bytes(array: Array) -> bytes:
    if array.dtype.kind in "US":
        words = [str(value).encode() for value in array.flat]
        return b"".join(struct.pack("<I", len(word)) + word for word in words)
    return np.ascontiguousarray(array).tobytes()

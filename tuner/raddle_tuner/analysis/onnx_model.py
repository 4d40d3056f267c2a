"""An ONNX file as values: its nodes and what each needs, inputs, control flow, and how large its weights are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from math import prod
from pathlib import Path
from typing import Final

import onnx

from raddle_tuner.analysis import graph as graphs
from raddle_tuner.analysis.graph import Node
from raddle_tuner.trials import inputs
from raddle_tuner.trials.inputs import InputError, ModelInput

CONTROL_FLOW: Final = ("If", "Loop", "Scan")
_DEFAULT_DOMAINS: Final = ("", "ai.onnx")
# Bits of an element; all else is what it is in numpy.
_BITS: Final = {"INT4": 4, "UINT4": 4, "FLOAT4E2M1": 4, "INT2": 2, "UINT2": 2}


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """What a file says. `nodes` are those of the graph itself, `kinds` counts those in the graphs inside, too.

    A kind of another domain than ONNX's own is written `domain.Kind`. `control_flow` are (kind, node's name).
    `weights_bytes` includes `external_bytes`, what lies in other files.
    """

    nodes: tuple[Node, ...]
    kinds: Mapping[str, int]
    inputs: tuple[ModelInput, ...]
    control_flow: tuple[tuple[str, str], ...]
    opset: int
    weights_bytes: int
    external_bytes: int


def read(path: Path) -> Model:
    """The model in a file. Raises InputError for what is no model, or lacks a file with weights."""
    proto = inputs.load(path)
    every = list(_every(proto.graph))
    for function in proto.functions:
        every += function.node
    weights = list(_weights(proto.graph))
    external = {one.name: _place(one) for one in weights if one.data_location == onnx.TensorProto.EXTERNAL}
    for name, place in external.items():
        if not (path.parent / place).exists():
            raise InputError(f"{path}: weight {name} is stored in {place}, which is not in the model's folder")
    return Model(
        nodes=nodes(proto.graph),
        kinds=Counter(map(_kind, every)),
        inputs=inputs.of_graph(proto.graph),
        control_flow=tuple((one.op_type, one.name or one.output[0]) for one in every if one.op_type in CONTROL_FLOW),
        opset=next((one.version for one in proto.opset_import if one.domain in _DEFAULT_DOMAINS), 0),
        weights_bytes=sum(map(_size, weights)),
        external_bytes=sum(_size(one) for one in weights if one.name in external),
    )


def nodes(graph: onnx.GraphProto) -> tuple[Node, ...]:
    """The nodes of a graph and what each needs, in the file's order where that is one in which they can run.

    Without those of kind Constant: ONNX Runtime takes them for weights.
    """
    every = [node for node in graph.node if node.op_type != "Constant"]
    makers = {output: index for index, node in enumerate(every) for output in node.output if output}
    needs = [sorted({makers[name] for name in _used(node) if name in makers}) for node in every]
    order: Sequence[int] = range(len(needs))
    if any(need >= index for index, item in enumerate(needs) for need in item):
        try:
            order = list(TopologicalSorter(dict(enumerate(needs))).static_order())
        except CycleError:
            raise InputError("the graph has a cycle: a node depends on its own output") from None
    places = {index: place for place, index in enumerate(order)}
    return tuple(
        Node(
            name=every[index].name or next(iter(every[index].output), ""),
            kind=every[index].op_type,
            needs=tuple(sorted(places[need] for need in needs[index])),
        )
        for index in order
    )


def max_inter_op(path: Path) -> int:
    """The most inter-op threads that can help with the model in a file, where each node counts alike; 1: none can.

    Raises InputError.
    """
    return graphs.max_inter_op(graphs.graph(nodes(inputs.load(path).graph)))


def count_kinds(graph: onnx.GraphProto) -> Mapping[str, int]:
    """How many nodes of each kind there are, in the graphs inside too, named as a profile does."""
    return Counter(node.op_type for node in _every(graph))


def _kind(node: onnx.NodeProto) -> str:
    return node.op_type if node.domain in _DEFAULT_DOMAINS else f"{node.domain}.{node.op_type}"


def _inside(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    """Yields the graphs that a node holds."""
    for attribute in node.attribute:
        if attribute.type == onnx.AttributeProto.GRAPH:
            yield attribute.g
        yield from attribute.graphs


def _every(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    for node in graph.node:
        yield node
        for inside in _inside(node):
            yield from _every(inside)


def _used(node: onnx.NodeProto) -> Iterator[str]:
    """Yields the values that a node reads, also those that the graphs inside take from the one around them."""
    yield from node.input
    for inside in _inside(node):
        yield from (output.name for output in inside.output)
        for one in inside.node:
            yield from _used(one)


def _weights(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    yield from graph.initializer
    for sparse in graph.sparse_initializer:
        yield from (sparse.values, sparse.indices)
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.TENSOR:
                yield attribute.t
        for inside in _inside(node):
            yield from _weights(inside)


def _place(tensor: onnx.TensorProto) -> str:
    return next((entry.value for entry in tensor.external_data if entry.key == "location"), "")


def _size(tensor: onnx.TensorProto) -> int:
    """Bytes of a tensor, by its type and shape."""
    if tensor.data_type == onnx.TensorProto.STRING:
        return sum(map(len, tensor.string_data))
    name = onnx.TensorProto.DataType.Name(tensor.data_type)
    bits = _BITS.get(name) or 8 * int(onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize)
    return (prod(map(int, tensor.dims)) * bits + 7) // 8

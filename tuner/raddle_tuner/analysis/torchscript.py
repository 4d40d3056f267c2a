"""A TorchScript file (`torch.jit.save`) as values: its operators, what it forks, its control flow.

TorchScript's interpreter runs one operator after the other; only what `torch.jit.fork` starts runs beside them, on the
inter-op threads, until `torch.jit.wait`. Nothing is run here.
"""

from __future__ import annotations

import importlib
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from raddle_tuner.analysis.graph import Node
from raddle_tuner.trials.inputs import InputError, ModelInput

_FORK: Final = "prim::fork"
_WAIT: Final = "aten::wait"
# Of operators that give neither, such as `len`, none takes time worth counting.
_TENSORS: Final = ("Tensor", "Tensor[]")
_CONTROL_FLOW: Final = {"prim::If": "If", "prim::Loop": "Loop"}
# As in a traceback: `File "/models/model.py", line 9`.
_PLACE: Final = re.compile(r'File "(?:.*/)?([^"/]+)", line (\d+)')


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """What a file says. `nodes` are the operators that give tensors, in the order of the interpreter.

    `kinds` counts all operators. `control_flow` are (kind, where it is in the source). `forks` is how many forks are
    written, `forks_in_loops` how many of these in loops, which are followed once.
    """

    version: str
    nodes: tuple[Node, ...]
    kinds: Mapping[str, int]
    inputs: tuple[ModelInput, ...]
    control_flow: tuple[tuple[str, str], ...]
    forks: int
    forks_in_loops: int
    weights_bytes: int


def read(path: Path) -> Script:
    """The model in a file. Raises InputError where torch isn't installed, or the file is no TorchScript."""
    try:
        torch = importlib.import_module("torch")
    except ImportError as error:
        raise InputError(
            f"{path}: reading a TorchScript model requires torch, which can't be imported: {error}"
        ) from None
    try:
        module = torch.jit.load(str(path), map_location="cpu")
    # What it raises is of no class in common.
    except Exception as error:  # noqa: BLE001
        why = next(iter(str(error).strip().splitlines()), type(error).__name__)
        raise InputError(f"{path}: is not a TorchScript model (as torch.jit.save writes it): {why}") from None
    graph = module.inlined_graph
    walk = _Walk(torch=torch)
    walk.block(graph, frozenset(), in_loop=False)
    tensors = [*module.parameters(), *module.buffers()]
    return Script(
        version=str(torch.__version__),
        nodes=tuple(walk.nodes),
        kinds=walk.kinds,
        # The first one is the module itself.
        inputs=tuple(
            ModelInput(name=one.debugName().rpartition(".")[0] or one.debugName(), type=str(one.type()), shape=None)
            for one in list(graph.inputs())[1:]
        ),
        control_flow=tuple(walk.control_flow),
        forks=walk.forks,
        forks_in_loops=walk.forks_in_loops,
        weights_bytes=sum(tensor.numel() * tensor.element_size() for tensor in tensors),
    )


@dataclass(slots=True)
class _Walk:
    """A way through the graph in the interpreter's order."""

    torch: Any
    nodes: list[Node] = field(default_factory=list)
    kinds: Counter[str] = field(default_factory=Counter)
    control_flow: list[tuple[str, str]] = field(default_factory=list)
    forks: int = 0
    forks_in_loops: int = 0
    # Name of a future -> the last operators of what was forked.
    futures: dict[str, frozenset[int]] = field(default_factory=dict)

    def block(self, block: Any, last: frozenset[int], *, in_loop: bool) -> frozenset[int]:
        """Notes what is in a block, after the operators `last`; returns the last ones in it."""
        for node in block.nodes():
            kind = node.kind()
            if kind == _FORK:
                self.forks += 1
                self.forks_in_loops += in_loop
                inside = node.g("Subgraph").copy()
                self.torch._C._jit_pass_inline(inside)  # noqa: SLF001  (its only name)
                self.futures[node.output().debugName()] = self.block(inside, last, in_loop=in_loop)
            elif kind == _WAIT:
                # A future that was kept in a list could be any.
                awaited = self.futures.get(node.input().debugName())
                last = last.union(*(self.futures.values() if awaited is None else [awaited]))
            elif kind in _CONTROL_FLOW:
                place = _PLACE.search(node.sourceRange())
                self.control_flow.append((_CONTROL_FLOW[kind], ":".join(place.groups()) if place else ""))
                for inner in node.blocks():
                    last = self.block(inner, last, in_loop=in_loop or kind == "prim::Loop")
            elif not kind.startswith("prim::"):
                self.kinds[kind] += 1
                if not any(str(one.type()) in _TENSORS for one in node.outputs()):
                    continue
                name = f"{kind.partition('::')[2]}_{len(self.nodes)}"
                self.nodes.append(Node(name=name, kind=kind, needs=tuple(sorted(last))))
                last = frozenset({len(self.nodes) - 1})
        return last

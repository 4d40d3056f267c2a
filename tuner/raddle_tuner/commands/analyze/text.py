"""An analysis as text, for people."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from rich.markup import escape
from rich.table import Table

from raddle_operator.cli import output
from raddle_operator.cli.manifests import ManifestError
from raddle_operator.cli.picture.model import printable
from raddle_tuner.analysis.analysis import Analysis, Kind
from raddle_tuner.commands.analyze import timeline

# Rows of a table; JSON has all.
_ROWS: Final = 12
# Runs whose median is so much above the fastest were disturbed.
_DISTURBED: Final = 1.25
# What scales less than this, Amdahl's bound is within the noise of.
_SERIAL: Final = 0.95
_NOT: Final = "not told apart"


def facts(found: Analysis) -> Iterator[tuple[str, str]]:
    """Yields (what, sentence)."""
    version = f", opset {found.opset}" if found.opset else ""
    nodes = len(found.graph.nodes)
    yield "runtime", f"{found.runtime}{version}; {nodes} {'node' if nodes == 1 else 'nodes'}"
    yield "inputs", "; ".join(f"{one.name}: {one.text}" for one in found.inputs) or "none"
    if found.runs:
        yield "a run takes", ", ".join(_run_times(found))
        yield "threads", _threads(found)
    yield "graph", _width(found)
    yield "Parallel", _parallel(found)
    if found.forks is None:
        dynamic = [f"{one.name}: {', '.join(one.dimensions) or 'any shape'}" for one in found.dynamic]
        yield "dynamic", "; ".join(dynamic) or "no input: all shapes are fixed"
    yield "control flow", ", ".join(f"{kind} {where}".strip() for kind, where in found.control_flow) or "none"
    against = found.cuda_graph_obstacles
    yield "CUDA graphs", f"forbidden by {'; '.join(against)}" if against else "nothing in the file forbids them"
    yield "memory", "; ".join(_memory(found))


def _run_times(found: Analysis) -> Iterator[str]:
    one = found.runs[1].ms
    for threads, run in found.runs.items():
        said = f"{run.ms:.3g} ms with {threads} {'thread' if threads == 1 else 'threads'}"
        if threads > 1:
            said += f" ({one / run.ms:.2f} times as fast)" if found.told_apart(threads) else f" ({_NOT})"
        yield said


def _threads(found: Analysis) -> str:
    serial = found.serial_share
    if serial is None:
        return "one CPU may be used here, so that what scales can't be measured"
    if not found.told_apart(max(found.runs)):
        return f"1 and {max(found.runs)} are {_NOT}: more don't make it faster, or others used the CPUs meanwhile"
    if not serial:
        return "all of it scales as far as measured"
    if serial > _SERIAL:
        return "more of them don't make it faster"
    return (
        f"{serial * 100:.0f} % is serial by Amdahl's law: never more than {1 / serial:.3g} times as fast, "
        f"and beyond {found.paying_threads} threads less than half of each is used"
    )


def _width(found: Analysis) -> str:
    graph = found.graph
    unit = "ms" if graph.timed else "nodes"
    return f"{graph.width:.3g} wide: work {graph.work:.3g} {unit} by critical path {graph.length:.3g} {unit}"


def _parallel(found: Analysis) -> str:
    if found.forks is not None:
        start = f"{found.forks} {'fork' if found.forks == 1 else 'forks'}: "
        if not found.parallel_can_pay:
            return f"{start}inter-op threads can't pay"
        return f"{start}up to {found.max_inter_op} inter-op threads can pay"
    if not found.parallel_told_apart:
        low, high = min(found.parallel_gains), max(found.parallel_gains)
        return f"{_NOT} from no gain: {low:.3g} to {high:.3g} times as fast at best"
    if not found.parallel_can_pay:
        return "can't pay: nodes side by side gain nothing over one after the other with all threads"
    return f"can pay: {found.parallel_gain:.3g} times as fast at best, with up to {found.max_inter_op} inter-op threads"


def _memory(found: Analysis) -> Iterator[str]:
    external = f", {_size(found.external_bytes)} of them in other files" if found.external_bytes else ""
    yield f"weights {_size(found.weights_bytes)}{external}"
    if found.memory is None:
        return
    yield f"loading adds {_size(found.memory.loaded_bytes)}, a run {_size(found.memory.running_bytes)} (resident)"
    if found.memory.arena_bytes is not None:
        yield f"the arena holds {_size(found.memory.arena_bytes)} with the weights (by ONNX Runtime's profile)"


def _size(count: int) -> str:
    if count < 1024:
        return f"{count} B"
    amount, unit = next(
        (count / size, unit) for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)) if count >= size
    )
    return f"{amount:.3g} {unit}" if amount < 1000 else f"{amount:.0f} {unit}"


def _remarks(found: Analysis) -> Iterator[str]:
    yield from found.remarks
    for threads, run in found.runs.items():
        if run.median_ms > _DISTURBED * run.ms:
            yield (
                f"others used the CPUs: with {threads} {'thread' if threads == 1 else 'threads'} the median of "
                f"{run.count} runs is {run.median_ms:.3g} ms; the numbers are of each round's fastest"
            )


def write(path: Path, found: Analysis) -> None:
    """Writes all of it to standard output."""
    console = output.console()
    console.print(escape(printable(path.name)), style="bold", soft_wrap=True)
    grid = Table.grid(padding=(0, 2))
    for name, said in facts(found):
        grid.add_row(name, escape(printable(said)))
    console.print(grid)
    console.print()
    console.print(_kinds(found))
    if len(found.kinds) > _ROWS:
        console.print(f"and {len(found.kinds) - _ROWS} kinds more")
    if found.graph.timed:
        console.print()
        console.print(_slowest(found))
    for remark in _remarks(found):
        console.print(f"note: {escape(printable(remark))}", style="yellow")


def _kinds(found: Analysis) -> Table:
    """Operators by kind, those that take most first."""
    counts = list(found.runs)
    whole = sum(kind.times_ms.get(1, 0.0) for kind in found.kinds)
    columns = ["kind", "nodes"]
    if counts:
        columns += ["share", *(f"{n} {'thread' if n == 1 else 'threads'}" for n in counts), "serial"]
    made = output.table(*columns)
    for kind in found.kinds[:_ROWS]:
        cells = [escape(printable(kind.name)), str(kind.count)]
        if counts:
            cells.append(f"{kind.times_ms[1] / whole * 100:.0f} %" if whole else "-")
            cells += (f"{kind.times_ms[n]:.3f} ms" for n in counts)
            cells.append(_serial(kind))
        made.add_row(*cells)
    return made


def _serial(kind: Kind) -> str:
    if kind.serial_share is None:
        return "-"
    return f"{kind.serial_share * 100:.0f} %" if kind.told_apart else _NOT


def _slowest(found: Analysis) -> Table:
    """The nodes that take most."""
    graph = found.graph
    made = output.table("slowest nodes", "kind", "time", "critical path")
    path = set(graph.path)
    for index in sorted(range(len(graph.nodes)), key=lambda index: -graph.weights[index])[:8]:
        node = graph.nodes[index]
        cells = (escape(printable(node.name)), node.kind, f"{graph.weights[index]:.3f} ms")
        made.add_row(*cells, "yes" if index in path else "no")
    return made


def write_picture(target: Path, path: Path, found: Analysis) -> None:
    """Draws the critical path into the target. Raises ManifestError."""
    facts = [_width(found), f"Parallel {_parallel(found)}"]
    try:
        target.write_text(timeline.draw(printable(path.name), facts, found.graph))
    except OSError as error:
        raise ManifestError(f"{target}: {error.strerror}") from None

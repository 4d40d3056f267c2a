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
_NOT: Final = "not distinguishable"


def facts(result: Analysis) -> Iterator[tuple[str, str]]:
    """Yields (what, sentence)."""
    version = f", opset {result.opset}" if result.opset else ""
    nodes = len(result.graph.nodes)
    yield "runtime", f"{result.runtime}{version}; {nodes} {'node' if nodes == 1 else 'nodes'}"
    yield "inputs", "; ".join(f"{one.name}: {one.text}" for one in result.inputs) or "none"
    if result.runs:
        yield "a run takes", ", ".join(_run_times(result))
        yield "threads", _threads(result)
    yield "graph", _width(result)
    yield "Parallel", _parallel(result)
    if result.forks is None:
        dynamic = [f"{one.name}: {', '.join(one.dimensions) or 'any shape'}" for one in result.dynamic]
        yield "dynamic", "; ".join(dynamic) or "no input: all shapes are fixed"
    yield "control flow", ", ".join(f"{kind} {where}".strip() for kind, where in result.control_flow) or "none"
    against = result.cuda_graph_obstacles
    yield "CUDA graphs", f"forbidden by {'; '.join(against)}" if against else "nothing in the file forbids them"
    yield "memory", "; ".join(_memory(result))


def _run_times(result: Analysis) -> Iterator[str]:
    one = result.runs[1].ms
    for threads, run in result.runs.items():
        said = f"{run.ms:.3g} ms with {threads} {'thread' if threads == 1 else 'threads'}"
        if threads > 1:
            said += f" ({one / run.ms:.2f} times as fast)" if result.told_apart(threads) else f" ({_NOT})"
        yield said


def _threads(result: Analysis) -> str:
    serial = result.serial_share
    if serial is None:
        return "only one CPU is available, so scaling can't be measured"
    if not result.told_apart(max(result.runs)):
        return f"1 and {max(result.runs)} are {_NOT}: more don't make it faster, or other processes used the CPUs"
    if not serial:
        return "everything scales as far as measured"
    if serial > _SERIAL:
        return "more threads don't make it faster"
    return (
        f"{serial * 100:.0f} % is serial by Amdahl's law: never more than {1 / serial:.3g} times as fast, "
        f"and beyond {result.paying_threads} threads each is used less than half"
    )


def _width(result: Analysis) -> str:
    graph = result.graph
    unit = "ms" if graph.timed else "nodes"
    return f"{graph.width:.3g} wide: work {graph.work:.3g} {unit} by critical path {graph.length:.3g} {unit}"


def _parallel(result: Analysis) -> str:
    if result.forks is not None:
        start = f"{result.forks} {'fork' if result.forks == 1 else 'forks'}: "
        if not result.parallel_can_pay:
            return f"{start}inter-op threads can't pay off"
        return f"{start}up to {result.max_inter_op} inter-op threads can pay off"
    if not result.parallel_told_apart:
        low, high = min(result.parallel_gains), max(result.parallel_gains)
        return f"{_NOT} from no gain: {low:.3g} to {high:.3g} times as fast at best"
    if not result.parallel_can_pay:
        return (
            "can't pay off: running nodes in parallel gains nothing over running them one after another with all "
            "threads"
        )
    return (
        f"can pay off: {result.parallel_gain:.3g} times as fast at best, with up to {result.max_inter_op} inter-op "
        "threads"
    )


def _memory(result: Analysis) -> Iterator[str]:
    external = f", {_size(result.external_bytes)} of them in external files" if result.external_bytes else ""
    yield f"weights {_size(result.weights_bytes)}{external}"
    if result.memory is None:
        return
    yield f"loading adds {_size(result.memory.loaded_bytes)}, a run {_size(result.memory.running_bytes)} (resident)"
    if result.memory.arena_bytes is not None:
        yield f"the arena holds {_size(result.memory.arena_bytes)} with the weights (by ONNX Runtime's profile)"


def _size(count: int) -> str:
    if count < 1024:
        return f"{count} B"
    amount, unit = next(
        (count / size, unit) for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)) if count >= size
    )
    return f"{amount:.3g} {unit}" if amount < 1000 else f"{amount:.0f} {unit}"


def _remarks(result: Analysis) -> Iterator[str]:
    yield from result.remarks
    for threads, run in result.runs.items():
        if run.median_ms > _DISTURBED * run.ms:
            yield (
                f"other processes used the CPUs: with {threads} {'thread' if threads == 1 else 'threads'} the "
                "median of "
                f"{run.count} runs is {run.median_ms:.3g} ms; the numbers are the fastest run of each round"
            )


def write(path: Path, result: Analysis) -> None:
    """Writes all of it to standard output."""
    console = output.console()
    console.print(escape(printable(path.name)), style="bold", soft_wrap=True)
    grid = Table.grid(padding=(0, 2))
    for name, said in facts(result):
        grid.add_row(name, escape(printable(said)))
    console.print(grid)
    console.print()
    console.print(_kinds(result))
    if len(result.kinds) > _ROWS:
        console.print(f"and {len(result.kinds) - _ROWS} more kinds")
    if result.graph.timed:
        console.print()
        console.print(_slowest(result))
    for remark in _remarks(result):
        console.print(f"note: {escape(printable(remark))}", style="yellow")


def _kinds(result: Analysis) -> Table:
    """Operators by kind, those that take most first."""
    counts = list(result.runs)
    whole = sum(kind.times_ms.get(1, 0.0) for kind in result.kinds)
    columns = ["kind", "nodes"]
    if counts:
        columns += ["share", *(f"{n} {'thread' if n == 1 else 'threads'}" for n in counts), "serial"]
    made = output.table(*columns)
    for kind in result.kinds[:_ROWS]:
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


def _slowest(result: Analysis) -> Table:
    """The nodes that take most."""
    graph = result.graph
    made = output.table("slowest nodes", "kind", "time", "critical path")
    path = set(graph.path)
    for index in sorted(range(len(graph.nodes)), key=lambda index: -graph.weights[index])[:8]:
        node = graph.nodes[index]
        cells = (escape(printable(node.name)), node.kind, f"{graph.weights[index]:.3f} ms")
        made.add_row(*cells, "yes" if index in path else "no")
    return made


def write_picture(target: Path, path: Path, result: Analysis) -> None:
    """Draws the critical path into the target. Raises ManifestError."""
    facts = [_width(result), f"Parallel {_parallel(result)}"]
    try:
        target.write_text(timeline.draw(printable(path.name), facts, result.graph))
    except OSError as error:
        raise ManifestError(f"{target}: {error.strerror}") from None

"""`raddle analyze`: what a model is made of, before any trial. Needs no cluster."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from raddle.cpus import cpuset
from raddle.process import cgroup
from raddle_operator.cli import output
from raddle_operator.cli.manifests import ManifestError
from raddle_operator.cli.picture.model import printable

if TYPE_CHECKING:
    from raddle_operator.analysis.analysis import Analysis
    from raddle_operator.analysis.onnx_model import Model
    from raddle_operator.trials.inputs import Array

EPILOG = """\b
Examples:
  raddle analyze model.onnx
  raddle analyze model.onnx --shape image=8,3,224,224
  raddle analyze model.onnx --inputs request.npz -o json
  raddle analyze model.onnx --svg path.svg            the critical path as a picture
  raddle run --limit 4 -- raddle analyze model.onnx   with the CPUs of a container
  raddle analyze model.pt                             TorchScript, where torch can be imported

\b
Exit codes: 0 done, 2 bad input: a model that does not load, inputs that don't fit.
"""

# Rows of a table of the text; JSON has all.
_ROWS: Final = 12
# Runs whose median is so much above the fastest were disturbed.
_DISTURBED: Final = 1.25
# What scales less than this, Amdahl's bound is within the noise of.
_SERIAL: Final = 0.95


@click.command(epilog=EPILOG)
@click.argument("model", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--shape", "shapes", multiple=True, metavar="NAME=DIMS", help="Shape of an input: image=1,3,224,224.")
@click.option(
    "--inputs",
    "npz",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Take the inputs from this .npz file. Absent: they are made of types and shapes, 1 for open dimensions.",
)
@click.option("--svg", type=click.Path(dir_okay=False, path_type=Path), help="Draw the critical path into this file.")
@click.option("-o", "--output", "form", default="text", show_default=True, type=click.Choice(["text", "json", "yaml"]))
def analyze(model: Path, shapes: tuple[str, ...], npz: Path | None, svg: Path | None, form: str) -> None:
    """Show what MODEL (.onnx, or TorchScript) is made of, what scales with threads, and what can run side by side."""
    if shapes and npz:
        raise click.UsageError("--shape and --inputs exclude each other")
    try:
        from raddle_operator.analysis import analysis
        from raddle_operator.trials import inputs
    except ImportError as error:
        raise click.ClickException(f"{error}; pip install 'raddle[tune]' brings what it needs") from None
    if model.suffix in inputs.TORCHSCRIPT:
        if shapes or npz:
            raise click.UsageError("--shape and --inputs are for ONNX models: a TorchScript model is not run")
        found = _of_torchscript(model)
    else:
        found = _of_onnx(model, shapes, npz)
    assert isinstance(found, analysis.Analysis)
    if svg is not None:
        _write_picture(svg, model, found)
    if form == "text":
        _print(model, found)
    else:
        output.write(document(found), form)


# --- what is analysed -----------------------------------------------------------------------------------------------


def _of_torchscript(path: Path) -> Analysis:
    from raddle_operator.analysis import analysis, torchscript
    from raddle_operator.trials.inputs import InputError

    try:
        return analysis.of_torchscript(torchscript.read(path))
    except InputError as error:
        raise ManifestError(str(error)) from None


def _of_onnx(path: Path, shapes: Sequence[str], npz: Path | None) -> Analysis:
    from raddle_operator.analysis import analysis, measure, onnx_model
    from raddle_operator.trials.inputs import InputError

    asked = bool(shapes or npz)
    try:
        model = onnx_model.read(path)
        try:
            arrays = _arrays(model, shapes, npz)
        except InputError as error:
            if asked:
                raise
            return analysis.of_onnx(model, None, (f"nothing was run: {error}",))
        with Console(stderr=True).status("") as status:
            counts = sorted({1, min(2, _cpus()), _cpus()})
            return analysis.of_onnx(model, measure.measured(path, arrays, counts, status.update))
    except InputError as error:
        raise ManifestError(str(error)) from None
    except measure.LoadError as error:
        raise ManifestError(f"{path}: ONNX Runtime does not load it: {error}") from None
    except measure.RunError as error:
        if asked:
            raise ManifestError(f"{path}: it does not run with these inputs: {error}") from None
        hint = "give real ones with --shape or --inputs"
        return analysis.of_onnx(model, None, (f"it does not run with inputs that were made ({hint}): {error}",))


def _arrays(model: Model, shapes: Sequence[str], npz: Path | None) -> Mapping[str, Array]:
    from raddle_operator.trials import inputs

    if npz is not None:
        return inputs.read_npz(npz, model.inputs)
    return inputs.made(model.inputs, dict(map(inputs.parsed_shape, shapes)))


def _cpus() -> int:
    """How many threads can run at once here: CPUs that this process may use, whole ones of its quota."""
    usable, quota = cgroup.usable_cpus(cgroup.read_limits())
    count = cpuset.count(usable) if usable else 1
    return max(1, min(count, int(quota)) if quota is not None else count)


# --- as JSON --------------------------------------------------------------------------------------------------------


def document(found: Analysis) -> dict[str, Any]:
    """All that is known, for tools: times in milliseconds, sizes in bytes, null for what is not known."""
    graph = found.graph
    return {
        "version": 1,
        "runtime": found.runtime,
        "opset": found.opset,
        "inputs": [
            {"name": one.name, "type": one.type, "shape": None if one.shape is None else list(one.shape)}
            for one in found.inputs
        ],
        "dynamic": {one.name: list(one.dimensions) for one in found.dynamic},
        "runs": {
            str(threads): {"fastestMs": run.fastest_ms, "medianMs": run.median_ms, "count": run.count}
            for threads, run in found.runs.items()
        },
        "serialShare": found.serial_share,
        "payingThreads": found.paying_threads,
        "kinds": [
            {
                "name": kind.name,
                "count": kind.count,
                "timesMs": {str(threads): time for threads, time in kind.times_ms.items()},
                "serialShare": kind.serial_share,
            }
            for kind in found.kinds
        ],
        "graph": {
            "unit": "ms" if graph.timed else "nodes",
            "work": graph.work,
            "criticalPath": graph.length,
            "width": graph.width,
            "nodes": [
                {"name": node.name, "kind": node.kind, "needs": list(node.needs), "weight": weight}
                for node, weight in zip(graph.nodes, graph.weights, strict=True)
            ],
            "path": list(graph.path),
        },
        "parallel": {
            "canPay": found.parallel_can_pay,
            "gainAtMost": found.parallel_gain,
            "maxInterOp": found.max_inter_op,
            "forks": found.forks,
        },
        "controlFlow": [{"kind": kind, "where": where} for kind, where in found.control_flow],
        "cudaGraphObstacles": list(found.cuda_graph_obstacles),
        "memory": {
            "weightsBytes": found.weights_bytes,
            "externalBytes": found.external_bytes,
            "loadedBytes": found.memory.loaded_bytes if found.memory else None,
            "runningBytes": found.memory.running_bytes if found.memory else None,
            "arenaBytes": found.memory.arena_bytes if found.memory else None,
        },
        "remarks": list(found.remarks),
    }


# --- for people -----------------------------------------------------------------------------------------------------


def _facts(found: Analysis) -> Iterator[tuple[str, str]]:
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
    one = found.runs[1].fastest_ms
    for threads, run in found.runs.items():
        faster = "" if threads == 1 else f" ({one / run.fastest_ms:.2f} times as fast)"
        yield f"{run.fastest_ms:.3g} ms with {threads} {'thread' if threads == 1 else 'threads'}{faster}"


def _threads(found: Analysis) -> str:
    serial = found.serial_share
    if serial is None:
        return "one CPU may be used here, so that what scales can't be measured"
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
        if run.median_ms > _DISTURBED * run.fastest_ms:
            yield (
                f"others used the CPUs: with {threads} {'thread' if threads == 1 else 'threads'} the median of "
                f"{run.count} runs is {run.median_ms:.3g} ms; the numbers are of the fastest"
            )


def _print(path: Path, found: Analysis) -> None:
    console = output.console()
    console.print(escape(printable(path.name)), style="bold", soft_wrap=True)
    facts = Table.grid(padding=(0, 2))
    for name, said in _facts(found):
        facts.add_row(name, escape(printable(said)))
    console.print(facts)
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
            cells.append("-" if kind.serial_share is None else f"{kind.serial_share * 100:.0f} %")
        made.add_row(*cells)
    return made


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


def _write_picture(target: Path, path: Path, found: Analysis) -> None:
    from raddle_operator.cli.picture import timeline

    facts = [_width(found), f"Parallel {_parallel(found)}"]
    try:
        target.write_text(timeline.draw(printable(path.name), facts, found.graph))
    except OSError as error:
        raise ManifestError(f"{target}: {error.strerror}") from None

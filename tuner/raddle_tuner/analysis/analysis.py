"""`Analysis`: what a model is made of, put together from what its file says and what was measured. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from raddle_tuner.analysis import cuda_graphs, node_times, scaling
from raddle_tuner.analysis import graph as graphs
from raddle_tuner.analysis.graph import Graph
from raddle_tuner.analysis.measured import Measured, Memory, RunTime
from raddle_tuner.analysis.node_times import NodeTimes
from raddle_tuner.analysis.onnx_model import Model
from raddle_tuner.analysis.torchscript import Script
from raddle_tuner.trials.inputs import ModelInput


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """All nodes of a kind: how many, and their own time in a run in milliseconds, by count of threads (else {}).

    `serial_share` is the share of that time that more threads don't shorten, None where it can't be known. `told_apart`
    is whether the time with the most threads differs from that with one by more than the rounds do among themselves.
    """

    name: str
    count: int
    times_ms: Mapping[int, float]
    serial_share: float | None
    told_apart: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Dynamic:
    """An input whose shape may differ from run to run: which dimensions; () where even their number may."""

    name: str
    dimensions: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Analysis:
    """What is known of a model before any trial.

    `runtime` is who runs it. `kinds` are the largest first. `runs` are by count of threads, {} where nothing could be
    run. `serial_share` is Amdahl's, of whole runs; None for fewer than two counts. `parallel_gain` is how many times as
    fast as now it can be at best if nodes run side by side, on the CPUs that were there, `parallel_gains` the same of
    each round. `max_inter_op` is the most threads that can help with that, 1 where it can't pay. `forks` is what
    TorchScript may run side by side, None for ONNX. `cuda_graph_obstacles` are sentences. `memory` is None where
    nothing could be run. `remarks` say what could not be found out, and why.
    """

    runtime: str
    graph: Graph
    kinds: tuple[Kind, ...]
    inputs: tuple[ModelInput, ...]
    runs: Mapping[int, RunTime]
    serial_share: float | None
    parallel_gain: float
    parallel_gains: tuple[float, ...]
    parallel_can_pay: bool
    max_inter_op: int
    dynamic: tuple[Dynamic, ...]
    control_flow: tuple[tuple[str, str], ...]
    forks: int | None
    cuda_graph_obstacles: tuple[str, ...]
    opset: int | None
    weights_bytes: int
    external_bytes: int
    memory: Memory | None
    remarks: tuple[str, ...]

    def told_apart(self, threads: int) -> bool:
        """Whether a run with so many threads differs from one with one by more than the rounds do among themselves."""
        return scaling.told_apart(self.runs[1].rounds_ms, self.runs[threads].rounds_ms)

    @property
    def parallel_told_apart(self) -> bool:
        """Whether all rounds say alike that running nodes side by side is worth a trial, or that it is not."""
        return len({gain >= graphs.WORTH for gain in self.parallel_gains}) < 2

    @property
    def paying_threads(self) -> int | None:
        """The threads of which each is used by half at least (Amdahl); None: any count, or not known."""
        return scaling.paying_threads(self.serial_share) if self.serial_share is not None else None


def of_onnx(model: Model, measured: Measured | None, remarks: tuple[str, ...] = ()) -> Analysis:
    """The analysis of an ONNX model; without measurements each node counts alike."""
    made = graphs.graph(model.nodes)
    gain = made.width
    gains: tuple[float, ...] = ()
    runs = measured.runs if measured else {}
    if measured is not None:
        timed = _timed(measured)
        if timed is None:
            remarks += ("the profile's nodes differ from the graph's, so every node has the same weight",)
        else:
            rounds = [_in_round(measured, place) for place in range(len(measured.profiles[1]))]
            gains = tuple(_parallel_gain(timed, one) for one in rounds)
            made, gain = timed, _parallel_gain(timed, _medians(measured))
    return Analysis(
        runtime=f"ONNX Runtime {measured.version}" if measured else "ONNX",
        graph=made,
        kinds=_kinds(model, measured),
        inputs=model.inputs,
        runs=runs,
        serial_share=scaling.serial_share({threads: run.ms for threads, run in runs.items()}),
        parallel_gain=gain,
        parallel_gains=gains,
        parallel_can_pay=gain >= graphs.WORTH,
        max_inter_op=graphs.useful_threads(made) if gain >= graphs.WORTH else 1,
        dynamic=_dynamic(model),
        control_flow=model.control_flow,
        forks=None,
        cuda_graph_obstacles=cuda_graphs.obstacles(model),
        opset=model.opset,
        weights_bytes=model.weights_bytes,
        external_bytes=model.external_bytes,
        memory=measured.memory if measured else None,
        remarks=remarks,
    )


def _timed(measured: Measured) -> Graph | None:
    """The graph with the times of one thread; None where the profile is of other nodes."""
    times = _medians(measured)[1].nodes
    if [kind for kind, _ in times] != [node.kind for node in measured.nodes]:
        return None
    return graphs.graph(measured.nodes, [time for _, time in times])


def _medians(measured: Measured) -> Mapping[int, NodeTimes]:
    return {threads: node_times.of_rounds(rounds) for threads, rounds in measured.profiles.items()}


def _in_round(measured: Measured, place: int) -> Mapping[int, NodeTimes]:
    return {threads: rounds[place] for threads, rounds in measured.profiles.items()}


def _parallel_gain(timed: Graph, profiles: Mapping[int, NodeTimes]) -> float:
    """How many times as fast nodes side by side can be as one after the other with all threads.

    They take the critical path at least, as fast as its nodes are with all threads, and at least what the CPUs take for
    all the work.
    """
    cpus = max(profiles)
    now = [time for _, time in profiles[cpus].nodes]
    if len(now) != len(timed.nodes):
        return timed.width
    work = sum(time for _, time in profiles[1].nodes)
    at_least = max(graphs.graph(timed.nodes, now).length, work / cpus)
    return sum(now) / at_least if at_least else 1.0


def _kinds(model: Model, measured: Measured | None) -> tuple[Kind, ...]:
    if measured is None:
        return _counted(model.kinds)
    result = []
    medians = _medians(measured)
    for name in medians[1].kinds:
        times = {threads: profile.kinds.get(name, 0.0) for threads, profile in medians.items()}
        one, most = (
            [round_.kinds.get(name, 0.0) for round_ in measured.profiles[threads]] for threads in (1, max(medians))
        )
        result.append(
            Kind(
                name=name,
                count=measured.kinds.get(name, 0),
                times_ms=times,
                serial_share=scaling.serial_share(times),
                told_apart=scaling.told_apart(one, most),
            )
        )
    return tuple(sorted(result, key=lambda kind: (-kind.times_ms[1], kind.name)))


def _dynamic(model: Model) -> tuple[Dynamic, ...]:
    return tuple(
        Dynamic(name=one.name, dimensions=cuda_graphs.open_dimensions(one))
        for one in model.inputs
        if one.shape is None or cuda_graphs.open_dimensions(one)
    )


def of_torchscript(script: Script) -> Analysis:
    """The analysis of a TorchScript model: only what it forks runs side by side; each operator counts alike."""
    made = graphs.graph(script.nodes)
    remarks = ["nothing was run (the file does not state its input shapes), so every operator has the same weight"]
    if script.forks_in_loops:
        remarks.append(f"{script.forks_in_loops} of the forks are in a loop: counted as if the loop ran once")
    return Analysis(
        runtime=f"PyTorch {script.version}",
        graph=made,
        kinds=_counted(Counter(node.kind for node in script.nodes)),
        inputs=script.inputs,
        runs={},
        serial_share=None,
        parallel_gain=made.width,
        parallel_gains=(),
        parallel_can_pay=bool(script.forks) and made.width >= graphs.WORTH,
        max_inter_op=graphs.max_inter_op(made),
        dynamic=(),
        control_flow=script.control_flow,
        forks=script.forks,
        cuda_graph_obstacles=cuda_graphs.obstacles_of_script(script.control_flow, script.kinds),
        opset=None,
        weights_bytes=script.weights_bytes,
        external_bytes=0,
        memory=None,
        remarks=tuple(remarks),
    )


def _counted(kinds: Mapping[str, int]) -> tuple[Kind, ...]:
    counted = sorted(kinds.items(), key=lambda item: (-item[1], item[0]))
    return tuple(
        Kind(name=name, count=count, times_ms={}, serial_share=None, told_apart=False) for name, count in counted
    )

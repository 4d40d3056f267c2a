"""What is to be done for a tuning: which Jobs to start and to stop, and what is known of each class of nodes.

The first node of a class searches; other nodes try its winner again, until as many agree as were asked for. A decision
depends on what there is and not on what happened when, so it may be made again at any time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum, unique
from typing import Final

from raddle_operator.jobs.places import LOST_AFTER_S, Node, Places, is_lost
from raddle_operator.jobs.run import POD_WITHIN_S, START_WITHIN_S, Run, State
from raddle_operator.objects.tuning import MAX_CLASSES, TuningObject
from raddle_operator.results.candidate import Candidate
from raddle_operator.results.key import mismatch
from raddle_operator.results.phrases import improved_percent, signed
from raddle_operator.results.summary import Summary
from raddle_operator.results.verdict import Verdict

MOST_TRIES: Final = 3
"""So many pods a node gets, where something came in the way of the last one."""
MOST_FAILED: Final = 3
"""After so many nodes that failed a class is given up: the next would fail too."""


@unique
class NodeState(StrEnum):
    """Where a node of a class stands."""

    PENDING = "Pending"
    RUNNING = "Running"
    MEASURED = "Measured"
    FAILED = "Failed"


_ENDED: Final = (NodeState.MEASURED, NodeState.FAILED)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRecord:
    """One node of a class. `tries` is how many pods it had; `outcome` is there once it is measured.

    `image` is what was measured, as its pod named it; "" before. `message` says why it waits, or why it failed.
    """

    name: str
    state: NodeState = NodeState.PENDING
    tries: int = 0
    outcome: Summary | None = None
    image: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassRecord:
    """One class of nodes and what is known of it.

    `verdict` None: it is not known yet. `decided_by` is the node whose outcome counts for the class, None without one.
    `message` says what a class without a verdict waits for, and of an inconclusive one why it is.
    """

    title: str
    nodes: tuple[NodeRecord, ...] = ()
    verdict: Verdict | None = None
    decided_by: NodeRecord | None = None
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """A Job to be made. `winner` None: it searches; else it compares that with the plan."""

    node: str
    attempt: int
    winner: Candidate | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """A Job to be deleted, and why."""

    job: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JobChanges:
    """What is to be done now. `again_s`: after so long, changes or not, None: only when something changes."""

    classes: tuple[ClassRecord, ...]
    start: tuple[Start, ...] = ()
    stop: tuple[Stop, ...] = ()
    again_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningInputs:
    """What there is. `runs` are all Jobs of the tuning, `nodes` all nodes by name, `places` those that can be measured.

    `known` is what the status says, () for another generation's. `busy` are nodes where other tunings
    measure, with the time by which they have ended. `refused` says of nodes why the API server did not take their Job.
    """

    known: tuple[ClassRecord, ...]
    places: Places
    nodes: Mapping[str, Node]
    runs: Sequence[Run]
    now_s: float
    busy: Mapping[str, float] = field(default_factory=dict)
    refused: Mapping[str, str] = field(default_factory=dict)


def decide(tuning: TuningObject, inputs: TuningInputs) -> JobChanges:
    """What is to be done for a tuning that can be carried out."""
    ours = {}
    for run in sorted(inputs.runs, key=lambda run: run.job.attempt):
        if run.job.generation == tuning.generation:
            ours[run.job.node] = run
    before = {one.title: one.nodes for one in inputs.known}
    titles = sorted({*before, *inputs.places.classes}, key=lambda title: (title not in before, title))[:MAX_CLASSES]
    classes = []
    for title in sorted(titles):
        nodes = [_with_job_outcome(one, ours.get(one.name), inputs) for one in before.get(title, ())]
        # One that is lost is as if it had never been there, and may come back.
        there = tuple(one for one in nodes if one.state in _ENDED or not _is_lost(one.name, inputs))
        classes.append(_with_verdict(title, there, inputs.places.classes.get(title, ()), tuning.nodes_per_class))
    wanted = {one.name: one for each in classes for one in each.nodes}
    classes, start = _started(classes, tuning, inputs)
    return JobChanges(
        classes=tuple(classes),
        start=tuple(start),
        stop=_stops(inputs.runs, lambda run: _unwanted(run, ours, wanted, inputs)),
        again_s=_again_s(ours.values(), wanted, inputs),
    )


def stopped(tuning: TuningObject | None, inputs: TuningInputs) -> JobChanges:
    """What is to be done for a tuning that can't be carried out: nothing runs, and what was found stays.

    None: it can't be read.
    """
    classes = []
    if tuning is not None:
        for one in inputs.known:
            result = _concluded_by_nodes(one.title, _ended(one.nodes), tuning.nodes_per_class)
            classes.append(result if result.verdict else replace(result, message="see condition Accepted"))
    return JobChanges(classes=tuple(classes), stop=_stops(inputs.runs, lambda _: "the tuning can't run"))


def failures(before: Iterable[ClassRecord], after: Iterable[ClassRecord]) -> list[NodeRecord]:
    """The nodes that have failed since, which had not before."""
    known = {node.name for one in before for node in one.nodes if node.state is NodeState.FAILED}
    failed = (node for one in after for node in one.nodes if node.state is NodeState.FAILED)
    return [node for node in failed if node.name not in known]


def _stops(runs: Iterable[Run], why: Callable[[Run], str]) -> tuple[Stop, ...]:
    """The Jobs that have not ended and that there is a reason to delete, in the order of their names."""
    active = sorted((run for run in runs if run.state.is_active), key=lambda run: run.job.name)
    return tuple(Stop(job=run.job.name, why=why(run)) for run in active if run.state is not State.ENDING and why(run))


def _is_lost(node: str, inputs: TuningInputs) -> bool:
    return is_lost(inputs.nodes.get(node), inputs.now_s)


# --- a node ---------------------------------------------------------------------------------------------------------


def _with_job_outcome(node: NodeRecord, run: Run | None, inputs: TuningInputs) -> NodeRecord:
    """The record of a node by what became of its newest Job."""
    if node.state in _ENDED:
        return node
    if run is not None and run.outcome is not None:
        measured = replace(node, state=NodeState.MEASURED, tries=run.job.attempt, message="")
        return replace(measured, outcome=run.outcome, image=run.image)
    if run is None or run.state is State.ENDING:
        return replace(node, state=NodeState.PENDING, message="")
    node = replace(node, tries=run.job.attempt, message=run.message)
    waited_s = inputs.now_s - run.since_s
    match run.state:
        case State.FAILED:
            return replace(node, state=NodeState.FAILED)
        case State.DISRUPTED:
            if run.job.attempt < MOST_TRIES:
                return replace(node, state=NodeState.PENDING, message=f"{run.message}; its pod is recreated")
            message = f"{run.message}; this was the last of {MOST_TRIES} attempts"
            return replace(node, state=NodeState.FAILED, message=message)
        case State.RUNNING:
            return replace(node, state=NodeState.RUNNING, message="")
        case State.WAITING if waited_s >= START_WITHIN_S:
            unknown = f"for example a volume is missing; see `kubectl describe pods -l job-name={run.job.name}`"
            message = f"its pod did not start in {START_WITHIN_S // 60} minutes: {run.message or unknown}"
            return replace(node, state=NodeState.FAILED, message=message)
        case State.NO_POD:
            # This pod was never made, and its number is free. A Job gets one at once, or there is something in the way.
            message = run.message if waited_s >= POD_WITHIN_S else ""
            return replace(node, state=NodeState.PENDING, tries=run.job.attempt - 1, message=message)
    return replace(node, state=NodeState.PENDING)


def _unwanted(run: Run, ours: Mapping[str, Run], wanted: Mapping[str, NodeRecord], inputs: TuningInputs) -> str:
    """Why a Job is not to go on, "" where it is."""
    node = wanted.get(run.job.node)
    if ours.get(run.job.node) is not run:
        return "the tuning's spec has changed"
    if _is_lost(run.job.node, inputs):
        return f"node {run.job.node} is lost: it is gone or not Ready"
    if node is None or node.state in _ENDED:
        return node.message if node is not None and node.message else "its node class has a result"
    if run.state is State.NO_POD and inputs.now_s - run.since_s >= START_WITHIN_S:
        return "no pod was created for it; the Job is recreated"  # so that its time begins anew
    return ""


# --- a class --------------------------------------------------------------------------------------------------------


def _with_verdict(title: str, nodes: tuple[NodeRecord, ...], places: Sequence[str], needed: int) -> ClassRecord:
    """The class with its verdict, or with the nodes that it takes next."""
    result = _concluded_by_nodes(title, nodes, needed)
    alive = [one for one in nodes if one.state is not NodeState.FAILED]
    measured = [one for one in alive if one.outcome is not None]
    if result.verdict is not None or alive[:1] != measured[:1]:
        return result  # without a verdict the first one searches
    free = [name for name in places if all(one.name != name for one in nodes)]
    missing = needed - len(alive)
    if missing > len(free):
        count = len(alive) + len(free)
        there = f"{count} of the {needed} nodes that nodeClasses.nodesPerClass requires can be measured"
        failed = [f"{one.name} failed: {one.message}" for one in nodes if one.state is NodeState.FAILED]
        if failed:
            ended = _concluded(result, measured, Verdict.INCONCLUSIVE)
            return replace(ended, message="; ".join((there, *failed)))
        return replace(result, message=f"{there}; waiting for more nodes, or for a smaller nodesPerClass")
    more = free[: max(0, missing) if measured else 1]
    return replace(result, nodes=nodes + tuple(NodeRecord(name=name) for name in more))


def _concluded_by_nodes(title: str, nodes: tuple[NodeRecord, ...], needed: int) -> ClassRecord:
    """The class with the verdict that its nodes come to, whatever other nodes there are; None: more are needed."""
    result = ClassRecord(title=title, nodes=nodes)
    failed = [one for one in nodes if one.state is NodeState.FAILED]
    alive = [one for one in nodes if one.state is not NodeState.FAILED]
    measured = [one for one in alive if one.outcome is not None]
    if alive[:1] != measured[:1]:
        return result
    verdict = _verdict(measured, needed) if measured else None
    if verdict is not None:
        return _concluded(result, measured, verdict)
    if len(failed) >= MOST_FAILED:
        why = "; ".join(f"{one.name}: {one.message}" for one in failed)
        return replace(_concluded(result, measured, Verdict.INCONCLUSIVE), message=f"{len(failed)} nodes failed: {why}")
    return result


def _verdict(measured: Sequence[NodeRecord], needed: int) -> Verdict | None:
    """What the outcomes come to, the first of which is the search's; None: more nodes are needed."""
    first, *others = measured
    assert first.outcome is not None, "only measured nodes are judged"
    if first.outcome.verdict is not Verdict.BETTER:
        return first.outcome.verdict
    if any(_dissent(first, other) for other in others):
        return Verdict.INCONCLUSIVE
    return Verdict.BETTER if len(measured) >= needed else None


def _dissent(first: NodeRecord, other: NodeRecord) -> str:
    """What keeps a node from agreeing with what another has found, in words; "" where it agrees."""
    result, tried = first.outcome, other.outcome
    assert result is not None, "only measured nodes are compared"
    assert tried is not None, "only measured nodes are compared"
    differs = mismatch(result.key, tried.key)
    if not (result.key.image and tried.key.image) and first.image != other.image:
        # Without both digests the names are all that tells.
        differs = "; ".join(filter(None, (f"the image is {other.image}, but the tuning is for {first.image}", differs)))
    if differs:
        return f"measured something else: {differs}"
    return "" if tried.verdict is Verdict.BETTER else f"did not find it better ({tried.verdict})"


def _concluded(result: ClassRecord, measured: Sequence[NodeRecord], verdict: Verdict) -> ClassRecord:
    """The class with a verdict; of its nodes those that came to an end."""
    decided_by, message = next(iter(measured), None), ""
    if verdict is Verdict.BETTER:
        decided_by = min(measured, key=_improved_percent)
    elif verdict is Verdict.INCONCLUSIVE and decided_by is not None:
        message = _why_inconclusive(measured)
    return replace(result, nodes=_ended(result.nodes), verdict=verdict, decided_by=decided_by, message=message)


def _ended(nodes: Iterable[NodeRecord]) -> tuple[NodeRecord, ...]:
    """Those that came to an end."""
    return tuple(one for one in nodes if one.state in _ENDED)


def _why_inconclusive(measured: Sequence[NodeRecord]) -> str:
    first, *others = measured
    assert first.outcome is not None, "only measured nodes are judged"
    if first.outcome.verdict is not Verdict.BETTER:
        result = first.outcome
        better = f"whether {result.winner.title} is better than the plan ({signed(result.gain)})" if result.gain else ""
        return f"the budget ran out before it was certain {better or 'what is better'}; raise budget.minutes"
    dissents = [f"{other.name} {why}" for other in others if (why := _dissent(first, other))]
    return f"{first.name} found {first.outcome.winner.title} to be better than the plan, {'; '.join(dissents)}"


def _improved_percent(node: NodeRecord) -> float:
    assert node.outcome is not None, "only measured nodes are compared"
    return improved_percent(node.outcome.figure, node.outcome.gain)


# --- starting -------------------------------------------------------------------------------------------------------


def _started(
    classes: Iterable[ClassRecord], tuning: TuningObject, inputs: TuningInputs
) -> tuple[list[ClassRecord], list[Start]]:
    """The classes, and the Jobs to be made now: a node has one at a time, all tunings' taken together."""
    # A lost node does not tell that a pod has ended there.
    active = [run.job.node for run in inputs.runs if run.state.is_active and not _is_lost(run.job.node, inputs)]
    ending = {run.job.node: run.job.name for run in inputs.runs if run.state is State.ENDING}
    slots = tuning.parallelism - len(active)
    result: list[ClassRecord] = []
    start: list[Start] = []
    for one in classes:
        searched = next((node for node in one.nodes if node.state is not NodeState.FAILED), None)
        winner = searched.outcome.winner if searched is not None and searched.outcome is not None else None
        nodes = []
        for node in one.nodes:
            waits = node.state is NodeState.PENDING and node.name not in active
            if node.state is NodeState.PENDING and node.name in ending:
                # Somebody's finalizer may hold it for ever.
                node = replace(node, message=f"job/{ending[node.name]} is being deleted")  # noqa: PLW2901
            elif waits and node.name in inputs.busy:
                # It may be of another namespace, of which nothing is told.
                node = replace(node, message="another tuning is measuring on it")  # noqa: PLW2901
            elif waits and len(start) < slots:
                start.append(Start(node=node.name, attempt=node.tries + 1, winner=winner))
                node = replace(node, message=inputs.refused.get(node.name, node.message))  # noqa: PLW2901
            nodes.append(node)
        result.append(replace(one, nodes=tuple(nodes)))
    return result, start


def _again_s(runs: Iterable[Run], wanted: Mapping[str, NodeRecord], inputs: TuningInputs) -> float | None:
    """When time alone may change the decision."""
    due: list[float] = []
    for run in runs:
        if run.state in (State.NO_POD, State.WAITING):
            due += [run.since_s + after for after in (POD_WITHIN_S, START_WITHIN_S)]
    for name, node in wanted.items():
        there = inputs.nodes.get(name)
        if node.state not in _ENDED and there is not None and there.unready_s is not None:
            due.append(there.unready_s + LOST_AFTER_S)
        if node.state is NodeState.PENDING and name in inputs.busy:
            due.append(inputs.busy[name])
    return min((at - inputs.now_s for at in due if at > inputs.now_s), default=None)

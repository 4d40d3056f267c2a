"""What an InferenceTuning's status says, and reading it back: results live there, since Jobs go."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from raddle_operator.jobs.changes import ClassRecord, JobChanges, NodeRecord, NodeState
from raddle_operator.jobs.places import Places
from raddle_operator.jobs.run import GONE_WITHIN_S, Job, lasts_s
from raddle_operator.jobs.template import RefusedError
from raddle_operator.objects.reading import SpecError, as_object, sequence, text
from raddle_operator.objects.tuning import MAX_MINUTES, TuningObject
from raddle_operator.results import phrases, summary
from raddle_operator.results.candidate import Candidate
from raddle_operator.results.key import Key
from raddle_operator.results.summary import DocumentError, Summary
from raddle_operator.results.verdict import Verdict

ACCEPTED, RUNNING, VALID, INCONCLUSIVE = "Accepted", "Running", "Valid", "Inconclusive"
MIXED: Final = "Mixed"
_NAMES_SHOWN: Final = 5
_MESSAGE_CHARACTERS: Final = 1024
_MOST_SETTINGS: Final = 32
_UNFINISHED: Final = (NodeState.PENDING, NodeState.RUNNING)


# --- reading --------------------------------------------------------------------------------------------------------


def known(status: Mapping[str, Any], generation: int) -> tuple[ClassRecord, ...]:
    """What a status of ours says of each class; () where it speaks of another generation of the tuning.

    A part that can't be read is left out, so that it is measured again.
    """
    if status.get("observedGeneration") != generation:
        return ()
    try:
        classes = [as_object(one, "status.classes") for one in sequence(status, "classes", "status")]
        return tuple(
            ClassRecord(title=text(one, "nodeClass", "status.classes"), nodes=tuple(_nodes(one))) for one in classes
        )
    except SpecError:
        return ()


def unfinished(status: Mapping[str, Any]) -> frozenset[str]:
    """The nodes that a status of ours names as those where something runs, or is to."""
    try:
        classes = [as_object(one, "status.classes") for one in sequence(status, "classes", "status")]
        nodes = [node for one in classes for node in sequence(one, "nodes", "status.classes") if isinstance(node, dict)]
    except SpecError:
        return frozenset()
    return frozenset(str(node.get("name")) for node in nodes if node.get("state") in _UNFINISHED)


def taken_until_s(job: Job, status: Mapping[str, Any], tuning: TuningObject | None) -> float:
    """Until when, at the latest, a Job keeps others off its node, in seconds since the epoch; 0: it does not.

    `status` and `tuning` are those of the InferenceTuning that owns it, None for one that can't be read. Who may make
    Jobs can keep one for ever, by a finalizer or a pod that never ends: it has no longer than the tuning allows.
    """
    if job.node not in unfinished(status):
        return 0.0
    return job.created_s + lasts_s(MAX_MINUTES if tuning is None else tuning.minutes) + GONE_WITHIN_S


def _nodes(one: Mapping[str, Any]) -> Iterator[NodeRecord]:
    for item in sequence(one, "nodes", "status.classes"):
        node = as_object(item, "status.classes.nodes")
        outcome = _outcome(text(node, "outcome", "status.classes.nodes"))
        state = node.get("state")
        if state not in list(NodeState) or (state == NodeState.MEASURED and outcome is None):
            continue
        yield NodeRecord(
            name=text(node, "name", "status.classes.nodes"),
            state=NodeState(state),
            tries=int(node.get("tries") or 0),
            outcome=outcome,
            image=text(node, "image", "status.classes.nodes"),
            message=text(node, "message", "status.classes.nodes"),
        )


def _outcome(said: str) -> Summary | None:
    try:
        result = summary.from_text(said)
    except DocumentError:
        return None
    return result if isinstance(result, Summary) else None


# --- writing --------------------------------------------------------------------------------------------------------


def tuning_status(
    plan: JobChanges, *, generation: int, places: Places | None, refused: RefusedError | None
) -> dict[str, Any]:
    """The whole status but for the conditions' times.

    `places` are the nodes that can be measured, None where that was not looked at; `refused` says why the tuning can't
    run, or is None.
    """
    classes = plan.classes
    status: dict[str, Any] = {
        "observedGeneration": generation,
        "trials": sum(node.outcome.trials for one in classes for node in one.nodes if node.outcome),
        "classes": [_class(one) for one in classes],
        "conditions": list(_conditions(classes, places, refused)),
    }
    if classes:
        status["nodeClass"] = classes[0].title if len(classes) == 1 else f"{len(classes)} classes"
    verdicts = {one.verdict for one in classes}
    if classes and None not in verdicts:
        status["verdict"] = str(classes[0].verdict) if len(verdicts) == 1 else MIXED
    if better := list(_better(classes)):
        status["gain"] = _gained(min(better, key=lambda result: phrases.improved_percent(result.figure, result.gain)))
    return status


def _better(classes: Iterable[ClassRecord]) -> Iterator[Summary]:
    """Yields the outcome that counts of each class whose winner is better than the plan."""
    for one in classes:
        decided = one.decided_by.outcome if one.decided_by is not None else None
        if one.verdict is Verdict.BETTER and decided is not None and decided.gain is not None:
            yield decided


def _gained(better: Summary) -> str:
    assert better.gain is not None, "settings better than the plan were compared with it"
    return phrases.gained(better.figure, better.gain, better.bound)


def _class(one: ClassRecord) -> dict[str, Any]:
    result: dict[str, Any] = {"nodeClass": one.title, "nodes": [_node(node) for node in one.nodes]}
    result["message"] = _said(one)[:_MESSAGE_CHARACTERS]
    outcomes = [node.outcome for node in one.nodes if node.outcome is not None]
    if outcomes:
        result["trials"] = sum(outcome.trials for outcome in outcomes)
    decided = one.decided_by.outcome if one.decided_by is not None else None
    if one.verdict is not None:
        result["verdict"] = str(one.verdict)
    if one.decided_by is None or decided is None:
        return result
    result |= {
        "decidedBy": one.decided_by.name,
        "figure": decided.figure,
        "noisePercent": decided.noise_percent,
        "baseline": _settings(decided.baseline),
        "winner": _settings(decided.winner),
        "key": _key(decided.key, one.decided_by.image),
        "measured": max(outcome.finished for outcome in outcomes),
    }
    # Of a winner that is better by the bound alone the figure may even be worse.
    if decided.gain is not None and phrases.improved_percent(decided.figure, decided.gain):
        result["gain"] = {"percent": decided.gain.percent, "low": decided.gain.low, "high": decided.gain.high}
    return result


def _node(node: NodeRecord) -> dict[str, Any]:
    result: dict[str, Any] = {"name": node.name, "state": str(node.state), "tries": node.tries}
    if node.outcome is not None:
        result["outcome"] = summary.to_text(node.outcome)
    if node.image:
        result["image"] = node.image[:_MESSAGE_CHARACTERS]
    if node.message:
        result["message"] = node.message[:_MESSAGE_CHARACTERS]
    return result


def _settings(candidate: Candidate) -> list[dict[str, str]]:
    return [{"path": path, "value": _value(value)} for path, value in candidate.settings[:_MOST_SETTINGS]]


def _value(value: object) -> str:
    return value[:64] if isinstance(value, str) else json.dumps(value)


def _key(key: Key, image: str) -> dict[str, str]:
    """The key for people and the webhook. `image` is the pod's that measured: the workload may have another by now."""
    said = {
        "image": image,
        "imageID": key.image,
        "cpus": "" if key.limit_cpus is None else f"{key.limit_cpus:g}",
        "objective": str(key.objective.kind),
        "runtime": f"{key.runtime} {key.runtime_version}".strip(),
        "model": key.model,
    }
    return {name: value for name, value in said.items() if value}


# --- conditions -----------------------------------------------------------------------------------------------------


def _conditions(
    classes: Sequence[ClassRecord], places: Places | None, refused: RefusedError | None
) -> Iterator[dict[str, str]]:
    refused = refused or (None if places is None else _no_place(places))
    if refused is not None:
        yield _condition(ACCEPTED, "False", refused.reason, refused.message)
    else:
        yield _condition(ACCEPTED, "True", "Accepted", _accepted(places))
    yield _running(classes, refused)
    undecided = [one for one in classes if one.verdict is Verdict.INCONCLUSIVE]
    open_ones = [one for one in classes if one.verdict is None]
    if undecided:
        yield _condition(VALID, "False", "Inconclusive", _all_said(undecided))
    elif open_ones or not classes:
        yield _condition(VALID, "False", "NotMeasuredYet", _all_said(open_ones) or "see condition Accepted")
    else:
        yield _condition(VALID, "True", "Measured", _all_said(classes))
    if undecided:
        yield _condition(INCONCLUSIVE, "True", "Inconclusive", _all_said(undecided))
    else:
        yield _condition(INCONCLUSIVE, "False", "Conclusive", "no node class ended without a result")


def _no_place(places: Places) -> RefusedError | None:
    """Why there is no node to measure on; None where there is one."""
    if places.classes:
        return None
    if not places.left_out:
        return RefusedError("NoNodeMatches", "no node has the labels of spec.nodeClasses.selector")
    without = [why for why in places.left_out.values() if "NodeCPUTopology" in why]
    reason = "TopologyMissing" if len(without) == len(places.left_out) else "NoNodeFits"
    advice_there = "; check that the agent runs there" if without else ""
    return RefusedError(reason, f"no node can be measured: {_listed(places.left_out)}{advice_there}")


def _accepted(places: Places | None) -> str:
    if places is None:
        return "the tuning can run"
    nodes = sum(map(len, places.classes.values()))
    said = f"{_counted(nodes, 'node')} of {_counted(len(places.classes), 'class', 'es')} can be measured"
    return f"{said}; excluded: {_listed(places.left_out)}" if places.left_out else said


def _running(classes: Sequence[ClassRecord], refused: RefusedError | None) -> dict[str, str]:
    at_work = [
        f"{node.name} {_role(one, node)}" for one in classes for node in one.nodes if _is(node, NodeState.RUNNING)
    ]
    if at_work:
        return _condition(RUNNING, "True", "Measuring", "; ".join(at_work))
    waiting = [one for one in classes if one.verdict is None]
    if waiting:
        said = [node.message for one in waiting for node in one.nodes if node.state in _UNFINISHED]
        reason = "Blocked" if any(said) or any(one.message for one in waiting) else "Waiting"
        return _condition(RUNNING, "False", reason, _all_said(waiting))
    if refused is not None:
        return _condition(RUNNING, "False", refused.reason, "nothing is measured: see condition Accepted")
    return _condition(RUNNING, "False", "Finished", "nothing is left to measure")


def _role(one: ClassRecord, node: NodeRecord) -> str:
    others = [other for other in one.nodes if other.state is not NodeState.FAILED]
    return "searches" if others[:1] == [node] else f"verifies the winner of {others[0].name}"


def _all_said(classes: Iterable[ClassRecord]) -> str:
    return "; ".join(f"{one.title}: {_said(one)}" for one in classes)


def _at(one: ClassRecord, node: NodeRecord) -> str:
    if _is(node, NodeState.RUNNING):
        return _role(one, node)
    if node.message:
        return f"waits: {node.message}"
    return "waits for its pod to start" if node.tries else "waits for its turn"


def _is(node: NodeRecord, state: NodeState) -> bool:
    return node.state is state


def _said(one: ClassRecord) -> str:
    """What a class has come to, or what it is at or waits for, for people."""
    if one.message:
        return one.message
    if one.verdict is None:
        nodes = [f"{node.name} {_at(one, node)}" for node in one.nodes if node.state in _UNFINISHED]
        failed = [f"{node.name} failed: {node.message}" for node in one.nodes if _is(node, NodeState.FAILED)]
        return "; ".join(nodes + failed)
    decided = one.decided_by.outcome if one.decided_by is not None else None
    if one.verdict is Verdict.BETTER and decided is not None and decided.gain is not None:
        measured = [node for node in one.nodes if node.outcome is not None]
        return f"{decided.winner.title}{_instead(decided)}: {_gained(decided)} on {_counted(len(measured), 'node')}"
    if one.verdict is Verdict.BOUND_NOT_MET and decided is not None:
        objective, winner, trials = decided.key.objective, decided.winner, decided.trials
        return phrases.bound_not_met(objective, decided.bound, winner, decided.capacity, trials)
    return "no setting is better than the plan"


def _instead(result: Summary) -> str:
    """What the plan has in the place of the winner's settings; "" where that is not known."""
    won = dict(result.winner.settings)
    planned = Candidate(tuple(pair for pair in result.planned.settings if won.get(pair[0], pair[1]) != pair[1]))
    return f" (the plan has {planned.title})" if planned.settings else ""


def _listed(left_out: Mapping[str, str]) -> str:
    """Some nodes with the reason, and how many more there are."""
    shown = [f"{name}, because {why}" for name, why in list(left_out.items())[:_NAMES_SHOWN]]
    more = len(left_out) - len(shown)
    return "; ".join(shown) + (f"; and {more} more" if more > 0 else "")


def _counted(count: int, name: str, plural: str = "s") -> str:
    return f"{count} {name}{'' if count == 1 else plural}"


def _condition(kind: str, status: str, reason: str, message: str) -> dict[str, str]:
    return {"type": kind, "status": status, "reason": reason, "message": message[:_MESSAGE_CHARACTERS]}

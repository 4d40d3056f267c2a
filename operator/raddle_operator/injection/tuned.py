"""What a tuning's result changes of a plan: the winner's settings where the result is valid, and what is said of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from raddle.cpus.topology import Machine
from raddle.planning.capacity import is_exclusive
from raddle.planning.kinds import PolicyError
from raddle.planning.planner import Budget
from raddle.planning.policy import AUTO, Policy, overlaid
from raddle.planning.wire import Tuned
from raddle_operator.objects.tuning import ClassResult, TuningResults
from raddle_operator.tuning.advice import signed
from raddle_operator.tuning.candidate import PROGRAM, Candidate
from raddle_operator.tuning.figure import FIGURES
from raddle_operator.tuning.key import Key, NodeClass, misfit
from raddle_operator.tuning.objective import Kind, Objective
from raddle_operator.tuning.result import Verdict
from raddle_operator.tuning.summary import Summary

Tunings = Mapping[tuple[str, str], TuningResults]
"""What tunings have found, by namespace and name."""

NOT_READ: Final = "InferenceTunings are not read (chart value tuning.enabled)"
_INSTANCES: Final = f"{PROGRAM}.instances"
_WORKERS: Final = "budget.workersPerContainer"
_MAX_TITLE: Final = 160
_MAX_CLASSES: Final = 3


class Followed(NamedTuple):
    """What the policy's `tuning` comes to for one container.

    `policy` is what is planned with: the winner's values in place of the policy's own where `tuned.by` is not "".
    `because` says which they are and what they gained, or why there are none.
    """

    policy: Policy
    tuned: Tuned
    because: str


class Place(NamedTuple):
    """The container that is planned for, and its node; None where that is not known.

    `image_id` is the digest of its image as the node runs it, `runtime` what its process has loaded, with the version;
    "" where nobody has told.
    """

    namespace: str
    container: str
    tuned: Tuned
    machine: Machine | None
    image_id: str = ""
    runtime: str = ""
    runtime_version: str = ""


def follow(policy: Policy, budget: Budget, place: Place, tunings: Tunings | None) -> Followed | None:
    """The policy with what its tuning found; None for a policy that names none. `tunings` None: nobody reads them.

    Of several that `Auto` could mean the newest that is valid here wins.
    """
    if policy.tuning is None:
        return None
    found = _named(policy.tuning, place, tunings)
    reasons = [found] if isinstance(found, str) else []
    for one in found if isinstance(found, list) else ():
        followed = _followed(policy, budget, place, *one)
        if isinstance(followed, Followed):
            return followed
        reasons.append(f"InferenceTuning {one[0].name}: {followed}")
    return Followed(policy, place.tuned._replace(by=""), reasons[0])


_Result = tuple[TuningResults, ClassResult, Summary]


def _named(name: str, place: Place, tunings: Tunings | None) -> str | list[_Result]:
    """The results on the node's class, the newest first, at least one; or why there are none."""
    if tunings is None:
        return NOT_READ
    if place.machine is None:
        return "the node is not known yet"
    if name == AUTO:
        workload = place.tuned.workload
        meant = [
            tuning
            for (namespace, _), tuning in tunings.items()
            if namespace == place.namespace and tuning.workload is not None and tuning.workload.reference == workload
        ]
        if not workload:
            return "no Deployment, StatefulSet or DaemonSet owns the pod"
        nobody = f"there is no InferenceTuning of {workload}"
    else:
        named = tunings.get((place.namespace, name))
        meant = [] if named is None else [named]
        nobody = f"there is no InferenceTuning {name}"
    if not meant:
        return f"{nobody} in namespace {place.namespace}"
    node_class = NodeClass.of(place.machine)
    found: list[_Result] = []
    for tuning in meant:
        ended = [(tuning, one, one.summary) for one in tuning.classes if one.summary is not None]
        found += [one for one in ended if one[2].key.node_class == node_class]
    if found:
        return sorted(found, key=lambda one: one[2].finished, reverse=True)
    return "; ".join(f"InferenceTuning {tuning.name}: {_no_class(tuning, node_class)}" for tuning in meant)


def _no_class(tuning: TuningResults, there: NodeClass) -> str:
    found = [one.summary.key.node_class for one in tuning.classes if one.summary is not None]
    if not found:
        return "it has no result yet"
    shown = "; ".join(one.title for one in found[:_MAX_CLASSES])
    return f"the node is {there.title}, it was tuned for {shown}"


def _followed(
    policy: Policy, budget: Budget, place: Place, tuning: TuningResults, result: ClassResult, summary: Summary
) -> Followed | str:
    """What the tuning comes to on a node of the result's class, or why it comes to nothing."""
    reason = "; ".join(_misfits(policy, budget, place, tuning, result, summary))
    if reason:
        return reason
    tuned, source = place.tuned._replace(by=tuning.name), f"{summary.finished[:10]} (InferenceTuning {tuning.name})"
    where = summary.key.node_class.title[:_MAX_TITLE]
    if result.verdict is Verdict.NO_DIFFERENCE:
        return Followed(policy, tuned, f"the plan is best on {where}, {source}")
    if result.verdict is not Verdict.BETTER:
        return f"its result on this class of nodes is {result.verdict or 'not there yet'}"
    winner = summary.winner
    try:
        made = overlaid(policy, winner.spec())
    except PolicyError as error:
        return f"the policy does not allow the winner: {error}"
    gain = "" if summary.gain is None else f", {FIGURES[summary.figure].title} {signed(summary.gain)}"
    return Followed(made, tuned, f"{_title(winner)}{gain} on {where}, {source}{_left_to_the_program(winner)}")


def _misfits(
    policy: Policy, budget: Budget, place: Place, tuning: TuningResults, result: ClassResult, summary: Summary
) -> Iterator[str]:
    """Yields what makes the result invalid here."""
    assert place.machine is not None
    key = summary.key
    measured = tuning.workload.container if tuning.workload is not None else ""
    if measured and measured != place.container:
        yield f"the container is {place.container}, it was tuned for {measured}"
    image = place.tuned.image
    digest = place.image_id or image.partition("@")[2]
    if not (digest and key.image) and result.image and image != result.image:
        yield f"the image is {image}, it was tuned for {result.image}"
    # A server has the processes that it has, a model alone those of the winner: no policy starts any.
    instances = summary.winner.program().get("instances", 1) if key.model else budget.workers
    if instances != budget.workers:
        yield f"the container has {_processes(budget.workers)}, it was tuned for {_processes(instances)}"
    # A policy has no word for Cost.
    kind = key.objective.kind if key.objective.kind is Kind.COST else Kind(policy.objective)
    there = Key(
        model="",
        image=digest,
        node_class=NodeClass.of(place.machine),
        limit_cpus=budget.quota_cpus,
        exclusive=is_exclusive(place.machine, budget),
        objective=Objective(kind=kind, rate=policy.request_rate),
        runtime=place.runtime,
        runtime_version=place.runtime_version,
    )
    yield from filter(None, [misfit(key, there)])


def _processes(count: object) -> str:
    return f"{count} process{'' if count == 1 else 'es'}"


def _title(winner: Candidate) -> str:
    """The winner's settings that a policy makes."""
    settings = tuple(pair for pair in winner.settings if pair[0] not in {*_program(winner), _WORKERS})
    return Candidate(settings).title[:_MAX_TITLE]


def _left_to_the_program(winner: Candidate) -> str:
    """What else the winner has, for the end of a sentence; "" for nothing."""
    settings = tuple(pair for pair in winner.settings if pair[0] in _program(winner) - {_INSTANCES})
    return f"; the program has to have {Candidate(settings).title} for it" if settings else ""


def _program(winner: Candidate) -> set[str]:
    return {f"{PROGRAM}.{name}" for name in winner.program()}

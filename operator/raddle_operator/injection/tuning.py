"""What a tuning's result changes of a plan: the winner's settings where the result is valid, and what is said of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from raddle import env
from raddle.cpus.topology import Machine
from raddle.planning.capacity import is_exclusive
from raddle.planning.kinds import PolicyError
from raddle.planning.planner import Budget, plan
from raddle.planning.policy import AUTO, OBSERVED, Policy, overlaid
from raddle.planning.wire import TuningTarget
from raddle_operator.injection.literals import literals
from raddle_operator.objects.tuning import ClassResult, TuningResults, Workload
from raddle_operator.results.candidate import PROGRAM, Candidate
from raddle_operator.results.key import Key, NodeClass, mismatch
from raddle_operator.results.objective import Kind, Objective
from raddle_operator.results.phrases import gained
from raddle_operator.results.verdict import Verdict

Tunings = Mapping[tuple[str, str], TuningResults]
"""What tunings have found, by namespace and name."""

_UNOWNED: Final = "no Deployment, StatefulSet or DaemonSet owns the pod"
NOT_READ: Final = "InferenceTunings are not read (chart value tuning.enabled)"
_INSTANCES: Final = f"{PROGRAM}.instances"
_WORKERS: Final = "budget.workersPerContainer"
_MAX_TITLE: Final = 160
_MAX_CLASSES: Final = 3
# Its threads are told by annotations and the shim, which a binding still changes; OpenMP's variables are not theirs.
_BY_ITSELF: Final = "onnxruntime"
# Families whose threads are OpenMP's.
_BY_OPENMP: Final = frozenset(("torch", "openmp"))


class TuningOverlay(NamedTuple):
    """What the policy's `tuning` comes to for one container.

    `policy` is what is planned with: the winner's values in place of the policy's own where `target.by` is not "".
    `because` says which they are and what they gained, or why there are none.
    """

    policy: Policy
    target: TuningTarget
    because: str


class TuningContext(NamedTuple):
    """The container that is planned for, and its node; None where that is not known.

    `image_id` is the digest of its image as the node runs it, `runtime` what its process has loaded, with the version;
    "" where nobody has told. `own` are variables that stay as the pod spec sets them. `created`: the pod is there, and
    only annotations can change; `given` are the families' variables that it has of Raddle, "" for references, None:
    those of a pod whose node was not known.
    """

    namespace: str
    container: str
    target: TuningTarget
    machine: Machine | None
    image_id: str = ""
    runtime: str = ""
    runtime_version: str = ""
    own: tuple[str, ...] = ()
    created: bool = True
    given: Mapping[str, str] | None = None


class _Result(NamedTuple):
    """What a tuning has found for one class of nodes."""

    tuning: TuningResults
    result: ClassResult


def overlay(policy: Policy, budget: Budget, context: TuningContext, tunings: Tunings | None) -> TuningOverlay | None:
    """The policy with what its tuning found; None for a policy that names none. `tunings` None: nobody reads them.

    Of several that `Auto` could mean the newest that is valid here wins.
    """
    if policy.tuning is None:
        return None
    results = _results(policy.tuning, context, tunings)
    reasons = [results] if isinstance(results, str) else []
    for result in results if isinstance(results, list) else ():
        outcome = _overlay_by(policy, budget, context, result)
        if isinstance(outcome, TuningOverlay):
            return outcome
        reasons.append(f"InferenceTuning {result.tuning.name}: {outcome}")
    return TuningOverlay(policy, context.target._replace(by=""), reasons[0])


def _results(name: str, context: TuningContext, tunings: Tunings | None) -> list[_Result] | str:
    """What was found for the node's class, the newest first, at least one; or why there is nothing."""
    if tunings is None:
        return NOT_READ
    if context.machine is None:
        return "the node is not known yet"
    workload = context.target.workload
    if name != AUTO:
        meant = [tuning for key, tuning in tunings.items() if key == (context.namespace, name)]
    elif workload:
        own = (tuning for (namespace, _), tuning in tunings.items() if namespace == context.namespace)
        meant = [tuning for tuning in own if tuning.workload is not None and tuning.workload.reference == workload]
    else:
        return f"{_UNOWNED}; for other pods the policy must name a tuning of their image"
    if not meant:
        return (
            f"there is no InferenceTuning {name if name != AUTO else f'of {workload}'} in namespace {context.namespace}"
        )
    there = NodeClass.of(context.machine)
    results = [_Result(tuning, item) for tuning in meant for item in tuning.classes]
    of_class = [result for result in results if result.result.summary.key.node_class == there]
    if of_class:
        return sorted(of_class, key=lambda result: result.result.summary.finished, reverse=True)
    names = f"InferenceTuning {', '.join(tuning.name for tuning in meant)}"
    if not results:
        return f"{names}: it has no result yet"
    shown = "; ".join(result.result.summary.key.node_class.title for result in results[:_MAX_CLASSES])
    return f"{names}: the node is {there.title}, but the tuning is for {shown}"


def _overlay_by(policy: Policy, budget: Budget, context: TuningContext, result: _Result) -> TuningOverlay | str:
    """What a result for the node's class comes to, or why to nothing."""
    summary, verdict = result.result.summary, result.result.verdict
    reason = "; ".join(_mismatches(policy, budget, context, result))
    if reason:
        return reason
    target = context.target._replace(by=result.tuning.name)
    where = summary.key.node_class.title[:_MAX_TITLE]
    source = f"on {where}, {summary.finished[:10]} (InferenceTuning {result.tuning.name})"
    if verdict is Verdict.NO_DIFFERENCE:
        return TuningOverlay(policy, target, f"the plan is best {source}")
    if verdict is not Verdict.BETTER:
        return f"its result for this node class is {verdict}"
    try:
        made = overlaid(policy, summary.winner.spec())
    except PolicyError as error:
        return f"the policy does not allow the winner: {error}"
    hidden = ", ".join(_hidden(policy, made, budget, context, summary.key.runtime))
    if hidden:
        way = "remove it there, or set existingValues: Override in the policy"
        return f"{_title(summary.winner)} has no effect, because the pod spec sets {hidden}: {way}"
    needed = ", ".join(_needed(policy, made, budget, context, summary.key.runtime))
    if needed:
        return (
            f"{_title(summary.winner)} requires {needed}, set only when a pod is created, from the policy's own "
            "settings"
        )
    gain = "" if summary.gain is None else f", {gained(summary.figure, summary.gain, summary.bound)}"
    return TuningOverlay(made, target, f"{_title(summary.winner)}{gain} {source}{_left_to_the_program(summary.winner)}")


def _hidden(policy: Policy, made: Policy, budget: Budget, context: TuningContext, runtime: str) -> Iterator[str]:
    """Yields the variables of the pod spec's own by which the winner, `made`, would differ, and can't."""
    without, wanted = (_decisive(context.machine, budget, one, runtime) for one in (policy, made))
    for name in context.own:
        if wanted.get(name) != without.get(name):
            yield name


def _decisive(machine: Machine | None, budget: Budget, policy: Policy, runtime: str) -> dict[str, object]:
    """What the variables that the runtime goes by would say."""
    planned = plan(machine, budget, policy)
    if runtime == _BY_ITSELF:
        return {env.ORT_INTRA: planned.intra_op, env.ORT_INTER: planned.inter_op}
    values = literals(planned, policy, sets={}).values
    if _BY_OPENMP & set(policy.runtimes):
        # Others' variables were there when the winner was measured, and its gain is one beside them.
        return {
            env.OMP: planned.omp,
            **{name: one for name, one in values.items() if name.startswith(("OMP_", "KMP_"))},
        }
    return {env.OMP: planned.omp, env.OPENBLAS: planned.blas, **values}


def _needed(policy: Policy, made: Policy, budget: Budget, context: TuningContext, runtime: str) -> Iterator[str]:
    """Yields the variables that the winner, `made`, was measured with and that the pod can't be given."""
    if made.allocator != policy.allocator and not context.target.door:
        yield "the shim"
    if not context.created or runtime == _BY_ITSELF:
        return
    given = _variables(None, budget, policy) if context.given is None else context.given
    without, wanted = (_variables(context.machine, budget, one) for one in (policy, made))
    for name in dict.fromkeys([*wanted, *given]):
        if name in context.own:
            continue  # it stays as it was when the winner was measured, or hides it, which `_hidden` says
        # Where it is the same without the winner, it is not what made the difference.
        if wanted.get(name, "") not in (given.get(name), without.get(name)):
            yield name


def _variables(machine: Machine | None, budget: Budget, policy: Policy) -> dict[str, str]:
    """What is set when a pod is created; "" for references, whose values still change."""
    planned = plan(machine, budget, policy)
    result = literals(planned, policy, sets={})
    references = {env.OMP: planned.omp is not None, env.OPENBLAS: planned.blas not in (None, planned.omp)}
    return {**result.values, **result.added, **{name: "" for name, is_given in references.items() if is_given}}


def _mismatches(policy: Policy, budget: Budget, context: TuningContext, result: _Result) -> Iterator[str]:
    """Yields what makes the result invalid here."""
    assert context.machine is not None
    workload, key = result.tuning.workload, result.result.summary.key
    if workload is not None:
        yield from _others(workload, context)
    image, tuned_image = context.target.image, result.result.image
    digest = context.image_id or image.partition("@")[2]
    if not (digest and key.image):
        if not tuned_image:
            yield "the image that was measured is not known"
        elif image != tuned_image:
            yield f"the image is {image}, but the tuning is for {tuned_image}"
    # A server has the processes that it has, a model alone those of the winner: no policy starts any.
    instances = result.result.summary.winner.program().get("instances", 1) if key.model else budget.workers
    if instances != budget.workers:
        yield f"the container has {_processes(budget.workers)}, but the tuning is for {_processes(instances)}"
    # A policy has no word for Cost.
    kind = key.objective.kind if key.objective.kind is Kind.COST else Kind(policy.objective)
    # One that was observed changes from day to day.
    stated_rate = None if policy.load_source == OBSERVED else policy.request_rate
    there = Key(
        model="",
        image=digest,
        node_class=NodeClass.of(context.machine),
        limit_cpus=budget.quota_cpus,
        exclusive=is_exclusive(context.machine, budget),
        objective=Objective(kind=kind, rate=stated_rate),
        runtime=context.runtime,
        runtime_version=context.runtime_version,
    )
    yield from filter(None, [mismatch(key, there)])


def _others(workload: Workload, context: TuningContext) -> Iterator[str]:
    """Yields what says that the container is not the one that was measured."""
    if workload.reference != context.target.workload:
        result = f"the workload is {context.target.workload}" if context.target.workload else _UNOWNED
        yield f"{result}, but the tuning is for {workload.reference}"
    if workload.container and workload.container != context.container:
        yield f"the container is {context.container}, but the tuning is for {workload.container}"
    if not workload.container and not context.target.first:
        yield f"the container is {context.container}, but the tuning is for the first one"


def _processes(count: object) -> str:
    return f"{count} process{'' if count == 1 else 'es'}"


def _title(winner: Candidate) -> str:
    """The winner's settings that a policy makes."""
    others = {_WORKERS, *_program(winner)}
    return Candidate(tuple(pair for pair in winner.settings if pair[0] not in others)).title[:_MAX_TITLE]


def _left_to_the_program(winner: Candidate) -> str:
    """What else the winner has, for the end of a sentence; "" for nothing. Instances are there, or it doesn't fit."""
    settings = tuple(pair for pair in winner.settings if pair[0] in _program(winner) - {_INSTANCES})
    return f"; the program has to have {Candidate(settings).title} for it" if settings else ""


def _program(winner: Candidate) -> set[str]:
    return {f"{PROGRAM}.{name}" for name in winner.program()}

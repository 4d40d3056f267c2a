"""From what is known to what a policy's status says. Pure: no clock, no I/O; the time is an argument.

Counting is per namespace (:func:`tally`), so that a change of one pod recounts one namespace; a policy's status is the
sum over the namespaces that it reaches (:func:`policy_status`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from raddle_operator.controller.facts import Labels, NamespaceFacts, PodFacts, PolicyRecord
from raddle_operator.controller.running import Total, document
from raddle_operator.injection import matching
from raddle_operator.injection.matching import Policies
from raddle_operator.objects import load
from raddle_operator.objects.policy import PolicyObject
from raddle_operator.objects.reasons import SkipReason
from raddle_operator.objects.running import BY_HARM, PolicyKey
from raddle_operator.objects.times import rfc3339

Case = tuple[str, Labels, str, int]
"""(namespace, the pod's labels, the policy's UID, its generation)."""


NAMES_SHOWN: Final = 5
LAYOUTS_SHOWN: Final = 16
MESSAGE_CHARACTERS: Final = 1024
ACCEPTED, READY, DEGRADED, TUNED, DRIFTED = "Accepted", "Ready", "Degraded", "Tuned", "Drifted"
# What a status has at times only; all else is always there.
_AT_TIMES: Final = ("threads", "running", "load")


def case_of(namespace: str, labels: Labels, policy: PolicyObject) -> Case:
    """What decides alike."""
    return namespace, labels, policy.uid, policy.generation


@dataclass(slots=True, kw_only=True)
class Tally:
    """Pods that one policy governs. Sums of tallies are tallies. It is changed only while its pods are counted.

    ``stale``: injected with other settings than the policy gives now. ``shimless``: injected, but out of the shim's
    reach. ``resized``: injected, and their CPUs changed in place since. ``older``: created before the policy reached
    them, so they have no values until they restart. ``missed``: those that should have got values, by name;
    ``rivals``: the policies that win over this one for some pod, at the same rank and priority. ``pending``: pods of
    which it is not known yet why they have no values. ``layouts``: how many pods have each advice for Throughput.
    ``threads``: how many have containers with each count; ``tuned``: how many follow each InferenceTuning, by name;
    ``untuned``: how many follow none for each reason.
    """

    matched: int = 0
    injected: int = 0
    safe: int = 0
    stale: int = 0
    shimless: int = 0
    resized: int = 0
    older: int = 0
    skipped: Counter[str] = field(default_factory=Counter)
    missed: list[str] = field(default_factory=list)
    rivals: set[str] = field(default_factory=set)
    pending: int = 0
    layouts: Counter[str] = field(default_factory=Counter)
    threads: Counter[int] = field(default_factory=Counter)
    tuned: Counter[str] = field(default_factory=Counter)
    untuned: Counter[str] = field(default_factory=Counter)

    def __add__(self, other: Tally) -> Tally:
        """The tally of both sets of pods; of the names as many as are shown."""
        return Tally(
            matched=self.matched + other.matched,
            injected=self.injected + other.injected,
            safe=self.safe + other.safe,
            stale=self.stale + other.stale,
            shimless=self.shimless + other.shimless,
            resized=self.resized + other.resized,
            older=self.older + other.older,
            skipped=self.skipped + other.skipped,
            missed=(self.missed + other.missed)[:NAMES_SHOWN],
            rivals=self.rivals | other.rivals,
            pending=self.pending + other.pending,
            layouts=self.layouts + other.layouts,
            threads=self.threads + other.threads,
            tuned=self.tuned + other.tuned,
            untuned=self.untuned + other.untuned,
        )

    def skip(self, name: str, reason: SkipReason | None) -> None:
        """Counts a pod that should have values and has none; None: the reason is not known yet."""
        if reason is None:
            self.pending += 1
            return
        self.skipped[str(reason)] += 1
        if reason is SkipReason.WEBHOOK_MISSED:
            self.missed.append(name)


@dataclass(frozen=True, slots=True, kw_only=True)
class NamespaceTally:
    """One namespace's pods by policy; ``unattributed`` counts reasons of pods that no policy governs.

    ``oldest_injected_s``: creation of the oldest pod with values, None where there is none. ``valueless`` names one
    pod of each kind that should have values and has none.
    """

    policies: Mapping[PolicyKey, Tally] = field(default_factory=dict)
    unattributed: Mapping[str, int] = field(default_factory=dict)
    oldest_injected_s: int | None = None
    valueless: Mapping[Case, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Match:
    """What the labels alone decide, the same for all pods that carry them."""

    policy: PolicyObject | None
    reason: str
    pairs: tuple[tuple[PolicyObject, PolicyObject], ...]


def key_of(policy: PolicyObject) -> PolicyKey:
    """The key of a policy."""
    return policy.kind, policy.namespace, policy.name


def tally(
    namespace: str,
    facts: NamespaceFacts,
    pods: Iterable[tuple[str, PodFacts]],
    policies: Policies,
    changed_s: Mapping[PolicyKey, int],
    verdicts: Mapping[Case, SkipReason],
    *,
    unlabelled: str = matching.DISABLED,
) -> NamespaceTally:
    """Counts one namespace's (name, pod) pairs by the policy that governs each.

    ``changed_s`` is when each policy was last written; ``verdicts`` why pods have no values, as far as that has been
    examined; ``unlabelled`` what a namespace without the label counts as.
    """
    counts: dict[PolicyKey, Tally] = {}
    unattributed: Counter[str] = Counter()
    valueless: dict[Case, str] = {}
    matches: dict[Labels, _Match | None] = {}
    oldest_s: int | None = None
    for name, pod in pods:
        if pod.injected and (oldest_s is None or pod.created_s < oldest_s):
            oldest_s = pod.created_s
        if pod.labels not in matches:
            matches[pod.labels] = _match(dict(pod.labels), namespace, facts, policies, unlabelled)
        match = matches[pod.labels]
        if match is None:
            continue
        for younger, older in match.pairs:
            counts.setdefault(key_of(younger), Tally()).rivals.add(older.reference)
        if match.policy is None:
            unattributed[match.reason] += 1
            continue
        key = key_of(match.policy)
        count = counts.setdefault(key, Tally())
        reached_s = max(changed_s.get(key, 0), facts.opted_in_s)
        if _count(count, match.policy, pod, reached_s):
            case = case_of(namespace, pod.labels, match.policy)
            valueless.setdefault(case, name)
            count.skip(f"{namespace}/{name}", verdicts.get(case))
    for count in counts.values():
        count.missed = sorted(count.missed)[:NAMES_SHOWN]
    return NamespaceTally(
        policies=counts,
        unattributed=dict(unattributed),
        oldest_injected_s=oldest_s,
        valueless=valueless,
    )


def _match(
    labels: Mapping[str, str], namespace: str, facts: NamespaceFacts, policies: Policies, unlabelled: str
) -> _Match | None:
    if matching.opted_in(labels, facts.labels, unlabelled=unlabelled) is not None:
        return None
    governed = matching.select(labels, namespace, facts.labels, policies)
    pairs = tuple(matching.conflicts(labels, namespace, facts.labels, policies))
    return _Match(governed.policy, str(governed.skip.reason) if governed.skip else "", pairs)


def _count(counts: Tally, policy: PolicyObject, pod: PodFacts, reached_s: int) -> bool:
    """Counts one pod; returns whether the reason for its having no values is to be looked up."""
    counts.matched += 1
    if pod.injected:
        counts.injected += 1
        counts.safe += pod.safe_values
        counts.stale += pod.settings_hash != policy.settings_hash
        counts.shimless += pod.shimless
        counts.resized += pod.resized
        counts.layouts.update(pod.layouts)
        counts.threads.update(pod.threads)
        counts.tuned.update(filter(None, (pod.tuned,)))
        counts.untuned.update(filter(None, (pod.untuned,)))
    elif policy.mode == "Observe":
        counts.skipped[SkipReason.OBSERVED] += 1
    elif pod.created_s <= reached_s:  # times are whole seconds: the same second may have been before
        counts.older += 1
    else:
        return True
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Something that makes a policy less than fully effective: a word for programs and a sentence for people."""

    reason: str
    message: str


def policy_status(
    record: PolicyRecord,
    tally: Tally,
    *,
    too_many: bool = False,
    shimless: Sequence[str] = (),
    running: Total | None = None,
    now_s: float,
) -> dict[str, Any]:
    """The whole status of a policy as it is applied.

    ``too_many``: the policy is beyond the number that is evaluated in its namespace. ``shimless``: namespaces with
    governed pods where the shim's ConfigMap could not be written. ``running``: what agents say of its
    containers, None where none looks; a load that was observed once stays, for workloads that come back. A condition
    whose status does not change keeps its time, so an unchanged cluster gives an equal status.
    """
    accepted = _accepted(record, tally, too_many=too_many)
    wanted = [_ready(record, tally, accepted), accepted, _degraded(record, tally, shimless)]
    if record.policy is not None and record.policy.policy.tuning is not None:
        wanted.append(_tuned(tally))
    if running is not None:
        wanted.append(_drifted(running))
    observed = load.held(load.read(record.status), running.load if running is not None else None)
    skipped = [{"reason": reason, "count": count} for reason, count in sorted(tally.skipped.items()) if count]
    return {
        "observedGeneration": record.generation,
        "matchedPods": tally.matched,
        "injectedPods": tally.injected,
        "safeValuePods": tally.safe,
        "stalePods": tally.stale,
        "skippedPods": skipped,
        "layouts": _layouts(tally.layouts),
        **({"threads": _span(tally.threads)} if tally.threads else {}),
        **({"running": document(running)} if running is not None else {}),
        **({"load": load.to_document(observed)} if observed is not None else {}),
        "conditions": with_times(wanted, record.status, record.generation, now_s),
    }


def _layouts(counts: Mapping[str, int]) -> list[dict[str, Any]]:
    """The commonest layouts, by size, so that a change of one pod moves no others."""
    shown = sorted(counts, key=lambda layout: (-counts[layout], layout))[:LAYOUTS_SHOWN]
    result = []
    for sizes in sorted(tuple(tuple(map(int, kind.split("x"))) for kind in layout.split("+")) for layout in shown):
        layout = "+".join("x".join(map(str, kind)) for kind in sizes)
        workers, threads = sizes[0]
        result.append({"layout": layout, "workers": workers, "threads": threads, "pods": counts[layout]})
    return result


def _span(counts: Mapping[int, int]) -> str:
    """The fewest and the most, ``1-4``; one number where they are the same."""
    fewest, most = min(counts), max(counts)
    return str(fewest) if fewest == most else f"{fewest}-{most}"


def _accepted(record: PolicyRecord, tally: Tally, *, too_many: bool) -> dict[str, str]:
    if record.policy is None:
        return condition(ACCEPTED, "False", "Invalid", record.problem)
    if too_many:
        limit = matching.MAX_POLICIES_PER_NAMESPACE
        message = f"the namespace has more than {limit} policies and only the oldest {limit} are evaluated; remove some"
        return condition(ACCEPTED, "False", SkipReason.TOO_MANY_POLICIES, message)
    if tally.rivals:
        names = _listed(sorted(tally.rivals))
        message = (
            f"{names} has the same rank and priority, selects some of the same pods and is older, so it takes "
            "precedence"
        )
        return condition(ACCEPTED, "False", SkipReason.CONFLICT, f"{message}; give one of them another priority")
    return condition(ACCEPTED, "True", "Accepted", "the policy can be used")


def _ready(record: PolicyRecord, tally: Tally, accepted: Mapping[str, str]) -> dict[str, str]:
    if record.policy is None or (accepted["status"] == "False" and not tally.matched):
        return condition(READY, "False", accepted["reason"], "the policy governs no pod: see condition Accepted")
    if not tally.matched:
        message = (
            "the policy selects no opted-in pod; check podSelector and the label raddle.dev/inject on the namespace"
        )
        return condition(READY, "False", "NoPodsMatched", message)
    message = f"{tally.injected} of {_pods(tally.matched)} have values"
    if tally.older:
        message += f"; {_pods(tally.older)} created before the policy or the opt-in get them when restarted"
    if tally.stale:
        message += f"; {_pods(tally.stale)} with outdated settings get the current ones when restarted"
    if record.policy.mode == "Observe":
        return condition(READY, "True", "Observing", f"mode Observe: {_pods(tally.matched)} planned, none changed")
    return condition(READY, "True", "InForce", message)


def _tuned(tally: Tally) -> dict[str, str]:
    """Whether pods follow the tuning that the policy names, by what their plans say of it."""
    tuned, untuned = sum(tally.tuned.values()), sum(tally.untuned.values())
    names = f"InferenceTuning {_listed(sorted(tally.tuned))}"
    by_count = sorted(tally.untuned.items(), key=lambda result: (-result[1], result[0]))
    reasons = _listed([f"{reason} ({_pods(count)})" for reason, count in by_count], separator="; ")
    anew = "the tuning is evaluated when a pod is bound; restart pods to evaluate it again"
    if not tuned + untuned:
        return condition(TUNED, "False", "NoPodsYet", "no pod has been created since the policy names this tuning")
    if not untuned:
        return condition(TUNED, "True", "Tuned", f"{_pods(tuned)} follow {names}")
    if not tuned:
        return condition(TUNED, "False", "NotTuned", f"{_pods(untuned)} use the plan: {reasons}; {anew}")
    message = f"{tuned} of {_pods(tuned + untuned)} follow {names}; the others use the plan: {reasons}; {anew}"
    return condition(TUNED, "True", "PartlyTuned", message)


def _drifted(running: Total) -> dict[str, str]:
    """Whether containers run otherwise than planned; the reason is the cause that costs most as a rule."""
    if running.cause is None or not running.drifted:
        message = f"{_containers(running.containers)} run as planned, as far as agents can observe"
        return condition(DRIFTED, "False", "AsPlanned", message)
    causes = ", ".join(f"{cause} {running.causes[cause]}" for cause in BY_HARM if running.causes[cause] > 0)
    message = f"{running.drifted} of {running.containers} containers not as planned ({causes})"
    if running.worst:
        _, one = running.worst[0]
        message += f"; {one.namespace}/{one.pod} {one.container}: {one.detail}"
    return condition(DRIFTED, "True", running.cause, f"{message}; `kubectl raddle explain` says what to do")


def _degraded(record: PolicyRecord, tally: Tally, shimless: Sequence[str]) -> dict[str, str]:
    problems = list(_problems(record, tally, shimless))
    if not problems:
        return condition(DEGRADED, "False", "AsExpected", "all settings of the policy are in effect")
    return condition(DEGRADED, "True", problems[0].reason, "; ".join(problem.message for problem in problems))


def _problems(record: PolicyRecord, tally: Tally, shimless: Sequence[str]) -> Iterable[Problem]:
    """Yields what is wrong, the worst first."""
    missed = tally.skipped.get(SkipReason.WEBHOOK_MISSED, 0)
    if missed:
        names = _listed(tally.missed, missed)
        message = (
            f"{_pods(missed)} should have values and do not ({names}); check that the webhook is available, "
            "and restart them"
        )
        yield Problem(reason=SkipReason.WEBHOOK_MISSED, message=message)
    if shimless:
        message = (
            f"the shim's ConfigMap can't be written in {_listed(shimless)}, so pods there have environment "
            "variables only"
        )
        yield Problem(reason=SkipReason.SHIM_MISSING, message=message)
    policy = record.policy
    if policy is None:
        return
    unreached = "shim None" if policy.policy.shim == "None" else ""
    if tally.shimless and not unreached:
        unreached = f"no shim reaches the processes of {_pods(tally.shimless)} (`raddle explain` says why)"
    if unreached and policy.policy.spinning != "Always" and policy.mode != "Observe":
        message = f"{unreached}: spinning is the runtime's default; thread counts are lower to compensate"
        yield Problem(reason="SpinningNotControlled", message=message)


def condition(kind: str, status: str, reason: str, message: str) -> dict[str, str]:
    """A condition that has no time yet."""
    return {"type": kind, "status": status, "reason": str(reason), "message": message[:MESSAGE_CHARACTERS]}


def with_times(
    wanted: Iterable[Mapping[str, str]], previous: Mapping[str, Any], generation: int, now_s: float
) -> list[dict[str, Any]]:
    """The conditions with lastTransitionTime: the previous one where the status is the same, else now."""
    before = {item.get("type"): item for item in previous.get("conditions") or ()}
    result = []
    for item in wanted:
        old = before.get(item["type"], {})
        same = old.get("status") == item["status"] and old.get("lastTransitionTime")
        time = old["lastTransitionTime"] if same else rfc3339(now_s)
        result.append({**item, "observedGeneration": generation, "lastTransitionTime": time})
    return result


def status_matches(previous: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    """Whether a status that is there says all that is wanted; others' fields and conditions do not matter."""
    there = {item.get("type"): item for item in previous.get("conditions") or ()}
    if any(there.get(item["type"]) != item for item in wanted["conditions"]):
        return False
    if any(name in previous and name not in wanted for name in _AT_TIMES):
        return False
    return all(previous.get(name) == value for name, value in wanted.items() if name != "conditions")


def _containers(count: int) -> str:
    return "1 container" if count == 1 else f"{count} containers"


def _pods(count: int) -> str:
    return "1 pod" if count == 1 else f"{count} pods"


def _listed(names: Sequence[str], total: int | None = None, separator: str = ", ") -> str:
    """Some names and how many more there are."""
    shown = names[:NAMES_SHOWN]
    more = (len(names) if total is None else total) - len(shown)
    return separator.join(shown) + (f" and {more} more" if more > 0 else "")

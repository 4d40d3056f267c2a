"""Which policy governs a pod: opt-in first, then one sort key.

Rank 0 is a cluster policy of tier Admin, 1 the policy that the pod's label names, 2 a policy of the pod's namespace,
3 a cluster policy of tier Baseline. Within a rank the higher priority wins, then the older, then the name. One policy
governs a pod; policies do not merge.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Final

from raddle import env
from raddle_operator.objects.pods import Pod
from raddle_operator.objects.policy import ADMIN, PolicyObject
from raddle_operator.objects.reasons import Skip, SkipReason

ENABLED: Final = "enabled"
LABELLED: Final = "labelled"
DISABLED: Final = "disabled"
MAX_POLICIES_PER_NAMESPACE: Final = 100
# Policies beyond the bound give no values, only the reason why there are none: that is worth so many looks per pod.
_LOOKED_AT_BEYOND: Final = 1000

ADMIN_RANK: Final = 0
NAMED_RANK: Final = 1
NAMESPACED_RANK: Final = 2
BASELINE_RANK: Final = 3


def sort_key(policy: PolicyObject, *, named: bool = False) -> tuple[int, int, str, str, str]:
    """The place of a policy among those that select one pod: the lowest governs. `named`: the pod's label names it."""
    if policy.tier:
        rank = ADMIN_RANK if policy.tier == ADMIN else BASELINE_RANK
    else:
        rank = NAMED_RANK if named else NAMESPACED_RANK
    return rank, -policy.priority, policy.created, policy.name, policy.uid


@dataclass(frozen=True, slots=True)
class NamespacePolicies:
    """The policies of one namespace: those that are evaluated, in order, and by name; and those beyond the bound."""

    ordered: tuple[PolicyObject, ...] = ()
    by_name: Mapping[str, PolicyObject] | None = None
    too_many: tuple[PolicyObject, ...] = ()

    def is_beyond(self, policy: PolicyObject) -> bool:
        """Whether a policy of this namespace is not evaluated."""
        return bool(self.too_many) and policy.name not in (self.by_name or {})


_NONE: Final = NamespacePolicies()


class Policies:
    """All policies of a cluster, arranged for looking up. A change makes a new one; reading needs no lock.

    Of a namespace with more than 100 policies the oldest 100 are evaluated, so that a new one displaces none.
    """

    __slots__ = ("_namespaces", "_unarranged", "admin", "baseline")

    def __init__(self, policies: Iterable[PolicyObject] = ()) -> None:
        cluster: list[PolicyObject] = []
        namespaces: dict[str, list[PolicyObject]] = {}
        for policy in policies:
            (cluster if policy.tier else namespaces.setdefault(policy.namespace, [])).append(policy)
        cluster.sort(key=sort_key)
        self.admin = tuple(policy for policy in cluster if policy.tier == ADMIN)
        self.baseline = tuple(policy for policy in cluster if policy.tier != ADMIN)
        # Arranged when first asked for: the tenant with ten thousand policies pays for them, and no other.
        self._unarranged = namespaces
        self._namespaces: dict[str, NamespacePolicies] = {}

    def of_namespace(self, namespace: str) -> NamespacePolicies:
        """The policies of one namespace; empty where it has none."""
        result = self._unarranged.get(namespace)
        if result is None:
            return _NONE
        arranged = self._namespaces.get(namespace)
        if arranged is None:
            arranged = self._namespaces[namespace] = _arrange(result)
        return arranged

    def __iter__(self) -> Iterator[PolicyObject]:
        yield from self.admin
        yield from self.baseline
        for item in map(self.of_namespace, self._unarranged):
            yield from item.ordered
            yield from item.too_many


def _arrange(policies: list[PolicyObject]) -> NamespacePolicies:
    by_age = sorted(policies, key=lambda policy: (policy.created, policy.name, policy.uid))
    kept, too_many = by_age[:MAX_POLICIES_PER_NAMESPACE], by_age[MAX_POLICIES_PER_NAMESPACE:]
    ordered = tuple(sorted(kept, key=sort_key))
    return NamespacePolicies(ordered, {policy.name: policy for policy in ordered}, tuple(too_many))


@dataclass(frozen=True, slots=True)
class Governed:
    """The policy that governs a pod, or why none does."""

    policy: PolicyObject | None
    skip: Skip | None = None


def opted_in(
    pod_labels: Mapping[str, str], namespace_labels: Mapping[str, str], *, unlabelled: str = DISABLED
) -> Skip | None:
    """None when the pod is opted in, else what says that it is not.

    `unlabelled` is what a namespace without the label counts as: enabled, labelled or disabled.
    """
    scope = namespace_labels.get(env.INJECT_LABEL)
    wish = pod_labels.get(env.INJECT_LABEL)
    result = unlabelled if scope is None else scope
    if result == ENABLED:
        if wish != DISABLED:
            return None
        return Skip(reason=SkipReason.OPTED_OUT, detail=f"pod label {env.INJECT_LABEL}: {DISABLED}")
    if result == LABELLED:
        if wish == ENABLED:
            return None
        return Skip(
            reason=SkipReason.OPTED_OUT,
            detail=f"the namespace requires the pod label {env.INJECT_LABEL}: {ENABLED}",
        )
    there = "has no label" if scope is None else f"has {scope[:63]!r} for label"
    return Skip(reason=SkipReason.OPTED_OUT, detail=f"the namespace {there} {env.INJECT_LABEL}")


def govern(
    pod: Pod,
    namespace: str,
    namespace_labels: Mapping[str, str],
    policies: Policies,
    *,
    unlabelled: str = DISABLED,
) -> Governed:
    """The policy that governs the pod, or the reason why none does."""
    skip = opted_in(pod.labels, namespace_labels, unlabelled=unlabelled)
    if skip is not None:
        return Governed(None, skip)
    return select(pod.labels, namespace, namespace_labels, policies)


def select(
    pod_labels: Mapping[str, str], namespace: str, namespace_labels: Mapping[str, str], policies: Policies
) -> Governed:
    """As `govern`, for a pod that is known to be opted in, of which only the labels are known."""
    for policy in policies.admin:
        if policy.pod_selector.matches(pod_labels) and policy.namespace_selector.matches(namespace_labels):
            return Governed(policy)
    local = policies.of_namespace(namespace)
    name = pod_labels.get(env.POLICY_LABEL)
    if name is not None:
        return _named(name, pod_labels, local)
    for policy in local.ordered:
        if policy.pod_selector.matches(pod_labels):
            return Governed(policy)
    for policy in policies.baseline:
        if policy.pod_selector.matches(pod_labels) and policy.namespace_selector.matches(namespace_labels):
            return Governed(policy)
    beyond = local.too_many[:_LOOKED_AT_BEYOND]
    if any(policy.pod_selector.matches(pod_labels) for policy in beyond):
        return Governed(None, _too_many(local))
    return Governed(None, Skip(reason=SkipReason.NO_POLICY, detail="no policy selects the pod"))


def _named(name: str, pod_labels: Mapping[str, str], local: NamespacePolicies) -> Governed:
    policy = (local.by_name or {}).get(name)
    if policy is None:
        if any(other.name == name for other in local.too_many):
            return Governed(None, _too_many(local))
        detail = f"label {env.POLICY_LABEL} names {name[:63]!r}, which is not in the namespace"
        return Governed(None, Skip(reason=SkipReason.POLICY_NOT_FOUND, detail=detail))
    if not policy.pod_selector.matches(pod_labels):
        detail = f"label {env.POLICY_LABEL} names {name[:63]!r}, whose podSelector does not select the pod"
        return Governed(None, Skip(reason=SkipReason.POLICY_NOT_FOUND, detail=detail))
    return Governed(policy)


def _too_many(local: NamespacePolicies) -> Skip:
    total = len(local.ordered) + len(local.too_many)
    detail = f"the namespace has {total} policies; the oldest {MAX_POLICIES_PER_NAMESPACE} are evaluated"
    return Skip(reason=SkipReason.TOO_MANY_POLICIES, detail=detail)


def conflicts(
    pod_labels: Mapping[str, str], namespace: str, namespace_labels: Mapping[str, str], policies: Policies
) -> Iterator[tuple[PolicyObject, PolicyObject]]:
    """Each (younger, oldest) pair of policies of one rank and one priority that both select the pod.

    The younger is to be told Conflict, naming the oldest. A policy that the pod names conflicts with none.
    """
    local = policies.of_namespace(namespace).ordered if env.POLICY_LABEL not in pod_labels else ()
    for candidates in (policies.admin, local, policies.baseline):
        selecting = [
            policy
            for policy in candidates
            if policy.pod_selector.matches(pod_labels) and policy.namespace_selector.matches(namespace_labels)
        ]
        for _, rivals in groupby(selecting, key=lambda policy: policy.priority):
            oldest, *younger = rivals
            for policy in younger:
                yield policy, oldest

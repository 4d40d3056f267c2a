"""What every policy's status must say, worked out from a plain list of pods without the controller's own code.

Only what this benchmark's policies use is understood: matchLabels, matchExpressions with In, one policy per pod.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from raddle import env
from raddle_operator.objects.policy import policy_from_object

Object = dict[str, Any]
PolicyKey = tuple[str, str]
"""(namespace, name); the namespace of a ClusterInferenceThreading is empty."""


class Counts(NamedTuple):
    """The numbers of a policy's status. `injected`, `safe` and `stale` are among `matched`."""

    matched: int = 0
    injected: int = 0
    safe: int = 0
    stale: int = 0


class PodRow(NamedTuple):
    """What counts of a pod: `safe` where a plan on it was made for no node."""

    namespace: str
    labels: Mapping[str, str]
    injected: bool
    safe: bool
    settings_hash: str


class PolicyRow(NamedTuple):
    """What counts of a policy, with the generation that its status must be about."""

    key: PolicyKey
    selector: Mapping[str, Any]
    settings_hash: str
    generation: int


def pod_row(obj: Object) -> PodRow:
    """The row of a pod, from its metadata."""
    metadata = obj["metadata"]
    labels, annotations = metadata.get("labels") or {}, metadata.get("annotations") or {}
    plans = [json.loads(text) for key, text in annotations.items() if key.startswith(env.PLAN_PREFIX)]
    return PodRow(
        namespace=metadata["namespace"],
        labels=labels,
        injected=labels.get(env.INJECTED_LABEL) == "true",
        safe=any(plan.get("node") is None for plan in plans),
        settings_hash=annotations.get(env.SETTINGS_HASH, ""),
    )


def policy_row(obj: Object, kind: str) -> PolicyRow:
    """The row of a policy of a kind."""
    metadata = obj["metadata"]
    return PolicyRow(
        key=(metadata.get("namespace") or "", metadata["name"]),
        selector=obj["spec"]["podSelector"],
        settings_hash=policy_from_object({**obj, "kind": kind}).settings_hash,
        generation=metadata["generation"],
    )


def selects(selector: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    """Tell whether a selector of this benchmark selects a pod. Raises ValueError for one that it has not."""
    wanted: Mapping[str, str] = selector.get("matchLabels") or {}
    if any(labels.get(key) != value for key, value in wanted.items()):
        return False
    for expression in selector.get("matchExpressions") or ():
        if expression["operator"] != "In":
            raise ValueError(f"operator {expression['operator']!r}: only In is understood here")
        if labels.get(expression["key"]) not in expression["values"]:
            return False
    return True


def expected(pods: Iterable[PodRow], policies: Iterable[PolicyRow]) -> dict[PolicyKey, Counts]:
    """The counts of each policy: a cluster policy (of tier Admin here) comes before the namespace's own.

    Raises ValueError when two policies of a namespace select one pod.
    """
    result = {policy.key: Counts() for policy in policies}
    by_namespace: dict[str, list[PolicyRow]] = {}
    for policy in policies:
        by_namespace.setdefault(policy.key[0], []).append(policy)
    for pod in pods:
        governing: list[PolicyRow] = []
        for namespace in ("", pod.namespace):
            governing = governing or [
                policy for policy in by_namespace.get(namespace, ()) if selects(policy.selector, pod.labels)
            ]
        if len(governing) > 1:
            raise ValueError(f"a pod of {pod.namespace} is selected by {[policy.key for policy in governing]}")
        for policy in governing:
            old = result[policy.key]
            result[policy.key] = Counts(
                matched=old.matched + 1,
                injected=old.injected + pod.injected,
                safe=old.safe + (pod.injected and pod.safe),
                stale=old.stale + (pod.injected and pod.settings_hash != policy.settings_hash),
            )
    return result


def is_right(status: Mapping[str, Any], counts: Counts, generation: int) -> bool:
    """Tell whether a policy's status is about this generation and gives these counts.

    Pods that are skipped can only be those without values; from before a change of the policy they are not skipped.
    """
    skipped = sum(item["count"] for item in status.get("skippedPods") or ())
    reported = tuple(status.get(name) for name in ("matchedPods", "injectedPods", "safeValuePods", "stalePods"))
    return (
        status.get("observedGeneration") == generation
        and reported == counts
        and skipped <= counts.matched - counts.injected
        and {"Accepted", "Ready", "Degraded"} <= {item["type"] for item in status.get("conditions") or ()}
    )

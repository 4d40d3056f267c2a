"""Why a governed pod has no values: the webhook's own decision, asked again.

The pods' metadata does not say whether the webhook was down or had a reason to leave a pod alone. So one pod of each
kind (same namespace, same labels, same policy: the pods of one Deployment) is read in full and decided again.
"""

from __future__ import annotations

from collections.abc import Mapping

from raddle_operator.controller.settings import ControllerSettings
from raddle_operator.controller.state import ClusterState
from raddle_operator.controller.status import Case, case_of
from raddle_operator.injection import matching
from raddle_operator.injection.decide import Facts, Settings, decide_object
from raddle_operator.injection.matching import Policies
from raddle_operator.injection.volumes import ShimDelivery
from raddle_operator.kube import PODS, Kube, NotFound, Object
from raddle_operator.kube.informer import Key
from raddle_operator.objects.reasons import SkipReason


def verdict(
    pod: Object,
    namespace: str,
    namespace_labels: Mapping[str, str],
    policies: Policies,
    facts: Facts,
    *,
    shim: ShimDelivery,
    door: bool,
    unlabelled: str,
) -> SkipReason:
    """The reason why a pod without values has none: WebhookMissed when the webhook would have given some.

    ``shim`` and ``door`` are what the webhook could have mounted: a container with envFrom gets nothing but the shim.
    """
    settings = Settings(shim=shim, door=door, unlabelled=unlabelled)
    decision = decide_object(pod, namespace, namespace_labels, policies, facts, settings)
    return SkipReason.WEBHOOK_MISSED if decision.skip is None else decision.skip.reason


async def examine(
    kube: Kube, state: ClusterState, settings: ControllerSettings, shim: ShimDelivery, key: Key
) -> tuple[Case, SkipReason] | None:
    """Reads one pod and returns the verdict on all pods like it; None where it is gone. Raises KubeError."""
    namespace, name = key
    pod, facts, policies = state.pods.store.get(key), state.namespaces.get(("", namespace)), state.arranged()
    if pod is None or facts is None:
        return None
    policy = matching.select(dict(pod.labels), namespace, facts.labels, policies).policy
    if policy is None:
        return None
    try:
        obj = await kube.get(PODS, name, namespace)
    except NotFound:
        return None
    reason = verdict(
        obj,
        namespace,
        facts.labels,
        policies,
        state.machines(),
        shim=shim,
        door=settings.door,
        unlabelled=settings.unlabelled,
    )
    return case_of(namespace, pod.labels, policy), reason

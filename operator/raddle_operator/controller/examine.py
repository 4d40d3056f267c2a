"""Why a governed pod has no values: the webhook's own decision, asked again.

The pods' metadata does not say whether the webhook was down or had a reason to leave a pod alone. So one pod of each
kind (same namespace, same labels, same policy: the pods of one Deployment) is read in full and decided upon anew.
"""

from __future__ import annotations

from collections.abc import Mapping

from raddle_operator.controller.world import Labels
from raddle_operator.injection.decide import Facts, Settings, decide_object
from raddle_operator.injection.matching import Policies
from raddle_operator.injection.volumes import ShimDelivery
from raddle_operator.kube import Object
from raddle_operator.objects.policy import PolicyObject
from raddle_operator.objects.reasons import SkipReason

Case = tuple[str, Labels, str, int]
"""(namespace, the pod's labels, the policy's UID, its generation)."""


def case_of(namespace: str, labels: Labels, policy: PolicyObject) -> Case:
    """Return what decides alike."""
    return namespace, labels, policy.uid, policy.generation


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
    """Return the reason why a pod without values has none: WebhookMissed when the webhook would have given some.

    ``shim`` and ``door`` are what the webhook could have mounted: a container with envFrom gets nothing but the shim.
    """
    settings = Settings(shim=shim, door=door, unlabelled=unlabelled)
    decision = decide_object(pod, namespace, namespace_labels, policies, facts, settings)
    return SkipReason.WEBHOOK_MISSED if decision.skip is None else decision.skip.reason

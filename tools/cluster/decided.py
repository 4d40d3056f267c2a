"""What the webhook makes of a pod, decided by its own functions without a cluster."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jsonpatch

from raddle import env
from raddle_operator.injection.decide import Decision, Facts, Settings, decide_object
from raddle_operator.injection.matching import Policies
from raddle_operator.objects.policy import policy_from_object


def decide(
    pod: Mapping[str, Any], policy: Mapping[str, Any], facts: Facts, settings: Settings, opt_in: str = "enabled"
) -> Decision:
    """The decision on a pod in the policy's namespace, whose label says `opt_in`; the policy is the only one."""
    policies = Policies([policy_from_object(policy)])
    labels = {env.INJECT_LABEL: opt_in}
    return decide_object(pod, policy["metadata"].get("namespace", ""), labels, policies, facts, settings)


def injected(pod: Mapping[str, Any], policy: Mapping[str, Any], facts: Facts, settings: Settings) -> dict[str, Any]:
    """The pod as it would be stored. Raises AssertionError where the webhook would leave it as it is."""
    decision = decide(pod, policy, facts, settings)
    assert decision.injected, decision
    return dict(jsonpatch.apply_patch(pod, decision.operations))

"""What the webhook gives a pod: its decision at CREATE, the values at binding, and the container's environment.

The real functions of the operator; the API server and the kubelet are left out, so annotations are resolved here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jsonpatch

import machines
from raddle import env
from raddle.cpus import cpuset
from raddle.cpus.topology import Kubelet, Machine
from raddle.machine.sysfs import read_machine
from raddle.planning import wire
from raddle.planning.planner import Budget, Plan, plan
from raddle.planning.policy import Policy
from raddle_operator.injection import binding, decide, matching, shipped
from raddle_operator.objects import policy as spec

NODE = "node"
CONTAINER = "serve"
# The guest starts a program with the pod's variables; it makes no mounts of its own.
_BY_VARIABLES = {"shim": "ConfigMap", "imageEnv": {"PYTHONPATH": ""}}
_ANNOTATION = re.compile(r"metadata\.annotations\['([^']+)'\]")


def machine(shape: str, reserved: str = "") -> Machine:
    """The recorded machine of a shape as a node with the static CPU manager, with these CPUs reserved."""
    kubelet = Kubelet("static", reserved_cpus=cpuset.parse_list(reserved) if reserved else None)
    return read_machine(str(machines.path(shape)))._replace(kubelet=kubelet)


def pod(resources: Mapping[str, Any], command: list[str]) -> dict[str, Any]:
    """A pod of one container."""
    container = {"name": CONTAINER, "image": "models/serve:1", "command": command, "resources": resources}
    return {"metadata": {"name": "serve", "namespace": "models"}, "spec": {"containers": [container]}}


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """A container on a node: the variables that it starts with, and what its plan was made of."""

    environ: Mapping[str, str]
    machine: Machine
    budget: Budget
    policy: Policy

    def planned(self) -> dict[str, Any]:
        """The fields of RADDLE_PLAN."""
        return dict(env.decode(self.environ[env.PLAN]))

    def within(self, cpus: str, quota_cpus: float | None) -> Plan:
        """What the planner makes of it once the container's CPUs and its quota are known."""
        budget = self.budget._replace(cpus=cpuset.parse_list(cpus), quota_cpus=quota_cpus)
        return plan(self.machine, budget, self.policy)


def bind(created: Mapping[str, Any], node: Machine, policy: Mapping[str, Any] | None = None) -> Bound:
    """A pod's container on this node, under a policy with these fields.

    Raises AssertionError where the webhook would not have changed the pod or would have kept safe values.
    """
    governing = spec.policy_from_object(
        {
            "apiVersion": "raddle.dev/v1alpha1",
            "kind": "InferenceThreading",
            "metadata": {"name": "all", "namespace": "models"},
            "spec": {"podSelector": {}, **_BY_VARIABLES, "reports": True, **(policy or {})},
        }
    )
    facts = decide.Facts(smallest_cores=len(node.cores), architectures=frozenset({node.architecture}))
    decision = decide.decide_object(
        created,
        "models",
        {"raddle.dev/inject": "enabled"},
        matching.Policies([governing]),
        facts,
        decide.Settings(shim=shipped.shim()),
    )
    assert decision.injected, decision
    changed = jsonpatch.apply_patch(created, decision.operations)
    annotations = changed["metadata"]["annotations"]
    bound = binding.rebind(annotations, NODE, node)
    assert bound.outcome is binding.BindingOutcome.NODE_SPECIFIC, bound
    final = {**annotations, **bound.annotations}
    recorded = wire.read_plan_text(final[env.PLAN_PREFIX + CONTAINER])
    return Bound(environ=_resolved(changed, final), machine=node, budget=recorded.budget, policy=recorded.policy)


def _resolved(changed: Mapping[str, Any], annotations: Mapping[str, str]) -> dict[str, str]:
    """As the kubelet resolves them: makeEnvironmentVariables in pkg/kubelet/kubelet_pods.go."""
    found: dict[str, str] = {}
    for entry in changed["spec"]["containers"][0]["env"]:
        if "valueFrom" in entry:
            key = _ANNOTATION.fullmatch(entry["valueFrom"]["fieldRef"]["fieldPath"])
            assert key is not None, entry
            found[entry["name"]] = annotations.get(key[1], "")
        else:
            found[entry["name"]] = entry["value"]
    return found

"""What the webhook gives a pod: its decision at CREATE, the values at binding, and the container's environment.

The real functions of the operator; the API server and the kubelet are left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import machines
from cluster import decided, kubelet_env, objects
from raddle import delivery, env
from raddle.cpus import cpuset
from raddle.cpus.topology import Kubelet, Machine
from raddle.machine.sysfs import read_machine
from raddle.planning import wire
from raddle.planning.planner import Budget, Plan, plan
from raddle.planning.policy import Policy
from raddle_operator.injection import binding, decide, shipped

NODE = "node"
NAMESPACE = "models"
CONTAINER = "serve"


def machine(shape: str, reserved: str = "") -> Machine:
    """The recorded machine of a shape as a node with the static CPU manager, with these CPUs reserved."""
    kubelet = Kubelet("static", reserved_cpus=cpuset.parse_list(reserved) if reserved else None)
    return read_machine(str(machines.path(shape)))._replace(kubelet=kubelet)


def pod(resources: Mapping[str, Any], command: list[str]) -> dict[str, Any]:
    """A pod of one container."""
    container = objects.container(CONTAINER, command=command, resources=resources)
    return objects.pod(container, name="serve", namespace=NAMESPACE)


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
    governing = objects.policy("all", NAMESPACE, **policy or {})
    facts = decide.Facts(smallest_cores=len(node.cores), architectures=frozenset({node.architecture}))
    changed = decided.injected(created, governing, facts, decide.Settings(shim=shipped.shim()))
    annotations = changed["metadata"]["annotations"]
    bound = binding.rebind(annotations, NODE, node)
    assert bound.outcome is binding.BindingOutcome.NODE_SPECIFIC, bound
    final = {**annotations, **bound.annotations}
    recorded = wire.read_plan_text(final[env.PLAN_PREFIX + CONTAINER])
    changed["metadata"]["annotations"] = final
    # The guest makes no mounts: in a pod a mounted file lists what is preloaded.
    environ = {**kubelet_env.variables(changed, CONTAINER), "LD_PRELOAD": delivery.LIBRARY}
    return Bound(environ=environ, machine=node, budget=recorded.budget, policy=recorded.policy)

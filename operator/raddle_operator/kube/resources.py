"""The kinds of objects that Raddle asks the API server for, and where they lie there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

Object = dict[str, Any]
"""A Kubernetes object as JSON."""
Operations = list[Object]
"""The operations of a JSON patch."""


@dataclass(frozen=True, slots=True)
class Resource:
    """A kind as the API server addresses it. ``group`` is empty for the core group."""

    group: str
    version: str
    plural: str
    namespaced: bool
    kind: str

    @property
    def api_version(self) -> str:
        """``group/version``, or ``version`` for the core group."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """The URL path. An empty ``namespace`` means all of them (lists) or a cluster-scoped object."""
        parts = ["/apis", self.group, self.version] if self.group else ["/api", self.version]
        if self.namespaced and namespace:
            parts += ["namespaces", namespace]
        parts.append(self.plural)
        parts += [part for part in (name, subresource) if part]
        return "/".join(parts)


PODS: Final = Resource("", "v1", "pods", namespaced=True, kind="Pod")
NAMESPACES: Final = Resource("", "v1", "namespaces", namespaced=False, kind="Namespace")
NODES: Final = Resource("", "v1", "nodes", namespaced=False, kind="Node")
CONFIG_MAPS: Final = Resource("", "v1", "configmaps", namespaced=True, kind="ConfigMap")
SECRETS: Final = Resource("", "v1", "secrets", namespaced=True, kind="Secret")
SERVICE_ACCOUNTS: Final = Resource("", "v1", "serviceaccounts", namespaced=True, kind="ServiceAccount")
DEPLOYMENTS: Final = Resource("apps", "v1", "deployments", namespaced=True, kind="Deployment")
STATEFUL_SETS: Final = Resource("apps", "v1", "statefulsets", namespaced=True, kind="StatefulSet")
DAEMON_SETS: Final = Resource("apps", "v1", "daemonsets", namespaced=True, kind="DaemonSet")
REPLICA_SETS: Final = Resource("apps", "v1", "replicasets", namespaced=True, kind="ReplicaSet")
JOBS: Final = Resource("batch", "v1", "jobs", namespaced=True, kind="Job")
RESOURCE_CLAIMS: Final = Resource("resource.k8s.io", "v1", "resourceclaims", namespaced=True, kind="ResourceClaim")
LEASES: Final = Resource("coordination.k8s.io", "v1", "leases", namespaced=True, kind="Lease")
EVENTS: Final = Resource("events.k8s.io", "v1", "events", namespaced=True, kind="Event")
MUTATING_WEBHOOKS: Final = Resource(
    "admissionregistration.k8s.io",
    "v1",
    "mutatingwebhookconfigurations",
    namespaced=False,
    kind="MutatingWebhookConfiguration",
)
CUSTOM_RESOURCE_DEFINITIONS: Final = Resource(
    "apiextensions.k8s.io", "v1", "customresourcedefinitions", namespaced=False, kind="CustomResourceDefinition"
)
INFERENCE_THREADINGS: Final = Resource(
    "raddle.dev", "v1alpha1", "inferencethreadings", namespaced=True, kind="InferenceThreading"
)
CLUSTER_INFERENCE_THREADINGS: Final = Resource(
    "raddle.dev", "v1alpha1", "clusterinferencethreadings", namespaced=False, kind="ClusterInferenceThreading"
)
INFERENCE_TUNINGS: Final = Resource(
    "raddle.dev", "v1alpha1", "inferencetunings", namespaced=True, kind="InferenceTuning"
)
NODE_CPU_TOPOLOGIES: Final = Resource(
    "raddle.dev", "v1alpha1", "nodecputopologies", namespaced=False, kind="NodeCPUTopology"
)

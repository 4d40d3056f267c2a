"""Real autoscalers beside the cluster: metrics-server, the controller manager's HPA controller, VPA's recommender.

metrics-server and the recommender are processes of this machine, as the control plane's are. Their periods are
shortened by their own flags, so that minutes show what takes hours.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

from cluster import Cluster, binaries
from cluster.components import free_port, wait_alive
from cluster.progress import Progress
from e2e import settings, waiting
from raddle_operator.objects import quantities

ADDRESS = settings.HOST.host_address
PORT = 4443
SERVICE = "metrics-server"
METRICS = "metrics.k8s.io/v1beta1"
GROUP = "autoscaling.k8s.io"
WAIT_SECONDS = 120.0
# The kubelet's own figures are not renewed more often.
RESOLUTION_SECONDS = 10


@contextmanager
def running(cluster: Cluster, progress: Progress) -> Iterator[None]:
    """metrics-server and the recommender, once metrics are served.

    Raises DevclusterError with what they say when that fails; builds them where they are not yet.
    """
    server = binaries.find(binaries.metrics_server(), ["metrics-server"], progress)["metrics-server"]
    recommender = binaries.find(binaries.vpa_recommender(), ["vpa-recommender"], progress)["vpa-recommender"]
    for manifest in (*_metrics_service(), *_definitions()):
        cluster.client.apply(manifest)
    identity = str(cluster.user("autoscalers", ["system:masters"]))
    components = [cluster.component("metrics-server"), cluster.component("vpa-recommender")]
    try:
        components[0].start([str(server), *_metrics_flags(cluster, identity)])
        components[1].start([str(recommender), *_recommender_flags(identity)])
        wait_alive(
            lambda: cluster.client.get(f"/apis/{METRICS}/nodes")["items"],
            "metrics of the node are served",
            WAIT_SECONDS,
            components,
            refusals=waiting.REFUSALS,
            progress=progress,
        )
        yield
    finally:
        for component in components:
            component.kill()


def _metrics_flags(cluster: Cluster, identity: str) -> list[str]:
    return [
        *(f"--{kind}kubeconfig={identity}" for kind in ("", "authentication-", "authorization-")),
        f"--bind-address={ADDRESS}",
        f"--secure-port={PORT}",
        f"--cert-dir={cluster.directory / 'metrics-server'}",
        f"--kubelet-certificate-authority={cluster.ca_file}",
        "--kubelet-preferred-address-types=InternalIP",
        f"--metric-resolution={RESOLUTION_SECONDS}s",
        # It must be less than that.
        f"--kubelet-request-timeout={RESOLUTION_SECONDS // 2}s",
    ]


def _recommender_flags(identity: str) -> list[str]:
    return [
        f"--kubeconfig={identity}",
        f"--address=127.0.0.1:{free_port()}",
        f"--recommender-interval={RESOLUTION_SECONDS}s",
        # What a pod used before it had a VPA, at its start, is not looked at.
        "--memory-saver",
    ]


def _metrics_service() -> list[dict[str, Any]]:
    metadata = {"name": SERVICE, "namespace": "kube-system"}
    ports = [{"name": "https", "port": 443, "targetPort": PORT, "protocol": "TCP"}]
    slice_metadata = {**metadata, "labels": {"kubernetes.io/service-name": SERVICE}}
    return [
        {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": {"ports": ports}},
        {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": slice_metadata,
            "addressType": "IPv4",
            "ports": [{"name": "https", "port": PORT, "protocol": "TCP"}],
            "endpoints": [{"addresses": [ADDRESS], "conditions": {"ready": True}}],
        },
        {
            "apiVersion": "apiregistration.k8s.io/v1",
            "kind": "APIService",
            "metadata": {"name": "v1beta1.metrics.k8s.io"},
            "spec": {
                "group": "metrics.k8s.io",
                "version": "v1beta1",
                "groupPriorityMinimum": 100,
                "versionPriority": 100,
                "service": {"name": SERVICE, "namespace": "kube-system"},
                # As in metrics-server's own manifests: its certificate is signed by itself.
                "insecureSkipTLSVerify": True,
            },
        },
    ]


def _definitions() -> list[dict[str, Any]]:
    """The two kinds that the recommender reads and writes, without upstream's checks of their fields."""
    return [_definition(kind) for kind in ("VerticalPodAutoscaler", "VerticalPodAutoscalerCheckpoint")]


def _definition(kind: str) -> dict[str, Any]:
    plural = f"{kind.lower()}s"
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
        "subresources": {"status": {}},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{plural}.{GROUP}",
            # The group is Kubernetes' own; the API server asks for this.
            "annotations": {"api-approved.kubernetes.io": "unapproved, a local test without upstream's schema"},
        },
        "spec": {
            "group": GROUP,
            "names": {"kind": kind, "plural": plural, "singular": kind.lower()},
            "scope": "Namespaced",
            "versions": [version],
        },
    }


def horizontal(name: str, namespace: str, *, target_percent: int, most: int) -> dict[str, Any]:
    """An HPA of the Deployment of this name: CPU in per cent of the request, one replica to `most`."""
    target = {"type": "Utilization", "averageUtilization": target_percent}
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
            "minReplicas": 1,
            "maxReplicas": most,
            "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": target}}],
        },
    }


class Scaled(NamedTuple):
    """What an HPA says: the replicas that it wants, those that it has, and the utilization it saw (None: none yet)."""

    desired: int
    current: int
    utilization_percent: int | None


def scaled(autoscaler: Mapping[str, Any]) -> Scaled:
    """Read an autoscaling/v2 HorizontalPodAutoscaler's status."""
    status = autoscaler.get("status", {})
    metrics = status.get("currentMetrics") or []
    percents = [one.get("resource", {}).get("current", {}).get("averageUtilization") for one in metrics if one]
    return Scaled(status.get("desiredReplicas", 0), status.get("currentReplicas", 0), percents[0] if percents else None)


def vertical(name: str, namespace: str) -> dict[str, Any]:
    """A VPA of the Deployment of this name that recommends CPU and changes nothing."""
    return {
        "apiVersion": f"{GROUP}/v1",
        "kind": "VerticalPodAutoscaler",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "targetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
            "updatePolicy": {"updateMode": "Off"},
            "resourcePolicy": {"containerPolicies": [{"containerName": "*", "controlledResources": ["cpu"]}]},
        },
    }


def recommended_m(autoscaler: Mapping[str, Any]) -> int | None:
    """The target, in millicpus, that a VPA recommends for its first container; None: none yet."""
    recommendation = autoscaler.get("status", {}).get("recommendation", {})
    for one in recommendation.get("containerRecommendations") or []:
        return int(1000 * quantities.parse(one["target"]["cpu"]))
    return None

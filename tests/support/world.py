"""What the integration tests share: pods as users write them, and a namespace of the cluster to create them in."""

from __future__ import annotations

import copy
import time
from typing import Any

from cluster import Client, Cluster
from cluster.waiting import wait
from raddle import env
from raddle.planning import wire

TOPOLOGIES = "/apis/raddle.dev/v1alpha1/nodecputopologies"


def container(name="serve", cpu=None, request=None, **more):
    """A container; `cpu` is its limit, `request` its request, both CPU quantities."""
    resources = {}
    if cpu is not None:
        resources["limits"] = {"cpu": cpu}
    if request is not None:
        resources["requests"] = {"cpu": request}
    return {"name": name, "image": "registry.example/app:1", "resources": resources, **more}


def guaranteed(name="serve", cpu="4", memory="1Gi", **more):
    """A container whose requests are its limits."""
    same = {"cpu": cpu, "memory": memory}
    return {"name": name, "image": "registry.example/app:1", "resources": {"limits": same, "requests": same}, **more}


def pod(*containers, name="app", labels=None, annotations=None, **spec):
    """A pod; without containers it has one with a limit of 2 CPUs."""
    metadata: dict[str, Any] = {"name": name, "labels": {"app": "app", **(labels or {})}}
    if annotations:
        metadata["annotations"] = annotations
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {"containers": list(containers) or [container(cpu="2")], **copy.deepcopy(spec)},
    }


def policy(name="policy", namespace=None, kind="InferenceThreading", **spec):
    """A policy that selects every pod unless `podSelector` says otherwise."""
    metadata = {"name": name}
    if namespace:
        metadata["namespace"] = namespace
    body = {"podSelector": {}, **spec}
    return {"apiVersion": "raddle.dev/v1alpha1", "kind": kind, "metadata": metadata, "spec": body}


class Space:
    """One namespace of the cluster."""

    def __init__(self, cluster: Cluster, raddle: Any, name: str) -> None:
        self.cluster, self.raddle, self.name = cluster, raddle, name
        self.client: Client = cluster.client
        self._pods = f"/api/v1/namespaces/{name}/pods"

    # --- writing ----------------------------------------------------------------------------------------------------

    def apply(self, *objects):
        """Apply objects into the namespace; policies are known to the webhook when this returns."""
        for obj in objects:
            obj["metadata"].setdefault("namespace", self.name)
            self.client.apply(obj)
        self.wait_for_webhook()

    def create(self, body) -> dict[str, Any]:
        """Create a pod and return it as the API server has stored it."""
        return self.client.post(self._pods, body)

    def delete(self, name):
        """Delete a pod at once."""
        self.client.delete(f"{self._pods}/{name}")

    def label(self, **labels):
        """Set labels of the namespace."""
        self.client.merge(f"/api/v1/namespaces/{self.name}", {"metadata": {"labels": labels}})
        self.wait_for_webhook()

    # --- reading ----------------------------------------------------------------------------------------------------

    def get(self, name="app"):
        """Return a pod as it is now."""
        return self.client.get(f"{self._pods}/{name}")

    def list(self):
        """Return all pods."""
        return self.client.get(self._pods)["items"]

    def bound(self, name="app"):
        """Return a pod once the scheduler has bound it."""
        return wait(lambda: found if (found := self.get(name))["spec"].get("nodeName") else None)

    def policy_status(self, name="policy", kind="inferencethreadings"):
        """Return the status of a policy, {} before the first."""
        scope = f"/namespaces/{self.name}" if kind == "inferencethreadings" else ""
        return self.client.get(f"/apis/raddle.dev/v1alpha1{scope}/{kind}/{name}").get("status", {})

    def knows(self, node):
        """Tell whether the webhook has facts of a node: then a pod that names it has its values at CREATE."""
        probe = pod(container(cpu="1"), name="probe", nodeName=node)
        return plan_of(self.client.request("POST", self._pods, probe, query={"dryRun": "All"})).node == node

    def wait_for_webhook(self):
        """Wait until the webhook has seen all that was written before, by a probe that only the newest state answers."""
        marker = policy(
            "seen", self.name, podSelector={"matchLabels": {"raddle-test/marker": str(time.monotonic_ns())}}
        )
        self.client.apply(marker)
        labels = marker["spec"]["podSelector"]["matchLabels"] | {"raddle.dev/policy": "seen"}
        namespace = self.client.get(f"/api/v1/namespaces/{self.name}")
        if namespace["metadata"].get("labels", {}).get(env.INJECT_LABEL) not in {"enabled", "labelled"}:
            return
        probe = pod(name="probe", labels=labels | {env.INJECT_LABEL: "enabled"})

        def seen():
            answer = self.client.request("POST", self._pods, probe, query={"dryRun": "All"})
            return answer["metadata"]["labels"].get(env.INJECTED_LABEL) == "true"

        wait(seen)
        self.client.delete(f"/apis/raddle.dev/v1alpha1/namespaces/{self.name}/inferencethreadings/seen")


def unregister(cluster, handle):
    """Delete a node and its topology, which the garbage collector would take away some time later."""
    handle.delete()
    cluster.client.delete(f"{TOPOLOGIES}/{handle.name}", missing_ok=True)


def plan_of(the_pod, name="serve"):
    """The plan annotation of a container, read; None where there is none."""
    text = the_pod["metadata"].get("annotations", {}).get(env.PLAN_PREFIX + name)
    return wire.read_plan_text(text) if text is not None else None


def env_of(the_pod, name="serve"):
    """Variable -> entry of a container."""
    spec = the_pod["spec"]
    found = next(c for c in [*spec["containers"], *spec.get("initContainers", [])] if c["name"] == name)
    return {entry["name"]: entry for entry in found.get("env", [])}


def injected(the_pod):
    """Whether Raddle has marked the pod."""
    return the_pod["metadata"].get("labels", {}).get(env.INJECTED_LABEL) == "true"


def threads(the_pod, name="serve"):
    """How many threads a container is planned with, None where it has no plan."""
    recorded = plan_of(the_pod, name)
    return recorded.values["intraOp"] if recorded is not None else None

"""Where checks run: a cluster that they share, clusters of their own, Raddle's processes, and namespaces.

A check that ends or hurts part of the control plane takes a cluster of its own (`fresh_cluster`); one that only touches
Raddle's processes may use the shared one, since `raddle` starts again whatever of them is down.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

import machines
from cluster import Client, Cluster
from cluster.local_raddle import LocalRaddle
from cluster.progress import Progress
from cluster.waiting import WAIT_SECONDS, settled, wait
from raddle import env
from raddle.planning import wire

OPTED_IN: Mapping[str, str] = {env.INJECT_LABEL: "enabled"}
# Two sockets of 8 cores: fewer than a pod's limit of 20 CPUs, so that the values that are safe everywhere (20) and
# those of this node (16) differ.
NODE, SHAPE, LIMIT_CPUS, NODE_THREADS = "steady", "2s16c32t", 20, 16
# webhook.timeoutSeconds.pods of the chart, and what a call may take beyond it on a machine that has more to do.
CREATE_TIMEOUT_SECONDS, NOISE_SECONDS = 2, 2
TOPOLOGIES = "/apis/raddle.dev/v1alpha1/nodecputopologies"
CONFIGURATION_PATH = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/raddle"
# A group of its own for the shared webhook, so that its packets can be told from others'; several runs on one machine
# have several.
WEBHOOK_GROUP = 50_000 + os.getpid() % 10_000
_numbers = itertools.count()


class World:
    """What a check is given. `progress` is for what is going on; figures go into the Result."""

    def __init__(self, progress: Progress) -> None:
        """Describe it; nothing is started before it is asked for."""
        self.progress = progress
        self._shared = contextlib.ExitStack()
        self._cluster: Cluster | None = None
        self._raddle: LocalRaddle | None = None

    def __enter__(self) -> Self:
        """Return the world itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Stop what the checks have shared."""
        self._shared.close()

    def say(self, text: str) -> None:
        """Print a line about what goes on."""
        self.progress.say(f"  {text}")

    @property
    def cluster(self) -> Cluster:
        """Return the cluster that checks share, started at its first use: control plane, scheduler, controllers."""
        if self._cluster is None:
            self._cluster = self._shared.enter_context(Cluster(name="reliability", progress=self.progress))
        return self._cluster

    @property
    def raddle(self) -> LocalRaddle:
        """Return Raddle on the shared cluster, webhook and controller ready, one node (`NODE`) registered."""
        if self._raddle is None:
            prefixes = {"webhook": _in_group(WEBHOOK_GROUP)}
            self._raddle = self._shared.enter_context(self.raddle_on(self.cluster, prefixes=prefixes))
        for process in (self._raddle.webhook, self._raddle.controller):
            if process.pid is None:
                process.start()
            process.wait_ready()
        return self._raddle

    @contextlib.contextmanager
    def fresh_cluster(self, **options: Any) -> Iterator[Cluster]:
        """A cluster of a check's own; `options` are those of devcluster.Cluster."""
        with Cluster(name="reliability-own", progress=self.progress, **options) as cluster:
            yield cluster

    @contextlib.contextmanager
    def raddle_on(self, cluster: Cluster, *, node: bool = True, **options: Any) -> Iterator[LocalRaddle]:
        """Raddle on a cluster, with the registered node `NODE` unless told not to; `options` are LocalRaddle's.

        Unless told otherwise, its controller writes a policy's status every 0.5 s at most instead of every 10 s.
        """
        options.setdefault("controller_options", ["--status-interval-s", "0.5"])
        with LocalRaddle(cluster, **options) as raddle:
            if node:
                self.register_node(raddle)
                wait(
                    lambda: raddle.webhook.metric("raddle_webhook_cache_objects", kind="NodeCPUTopology") == 1,
                    "the webhook knows the node",
                )
            yield raddle

    def register_node(self, raddle: LocalRaddle) -> None:
        """Register `NODE` with its topology."""
        raddle.register_machine(NODE, machines.path(SHAPE), labels={"node": NODE}, pods=2000)

    @contextlib.contextmanager
    def governed_namespace(self, raddle: LocalRaddle) -> Iterator[Space]:
        """A new namespace whose pods get the values of a policy that the webhook knows; a pod made now is newer."""
        with self.namespace(raddle) as space:
            space.apply(policy())
            space.governed()
            next_second()
            yield space

    @contextlib.contextmanager
    def namespace(self, raddle: LocalRaddle, labels: Mapping[str, str] = OPTED_IN) -> Iterator[Space]:
        """A new namespace, opted in unless other labels are given; its pods are deleted at the end."""
        space = Space(raddle, f"check-{next(_numbers)}")
        space.client.apply(
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": space.name, "labels": dict(labels)}}
        )
        accounts = f"/api/v1/namespaces/{space.name}/serviceaccounts"
        # Without the account, which the controller manager makes, no pod is admitted.
        wait(
            lambda: any(one["metadata"]["name"] == "default" for one in space.client.get(accounts)["items"]),
            f"namespace {space.name} has its service account",
        )
        try:
            yield space
        finally:
            space.remove()


class Space:
    """One namespace of a cluster with Raddle."""

    def __init__(self, raddle: LocalRaddle, name: str) -> None:
        """Describe it; `World.namespace` makes it."""
        self.raddle, self.cluster, self.name = raddle, raddle.cluster, name
        self.client: Client = raddle.cluster.client
        self.pods_path = f"/api/v1/namespaces/{name}/pods"

    def apply(self, *objects: Mapping[str, Any]) -> None:
        """Apply objects into the namespace; the webhook has not seen them yet (see `governed`)."""
        for one in objects:
            self.client.apply({**one, "metadata": {"namespace": self.name, **one["metadata"]}})

    def governed(self, policy_name: str = "policy") -> None:
        """Wait until the webhook gives values of this policy to a pod without labels of its own."""
        wait(
            lambda: governed_by(self.probe(pod("probe"))) == f"InferenceThreading/{policy_name}",
            f"the webhook knows the policy {policy_name}",
        )

    def probe(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Return what would be stored of a pod that is created now, by a dry run."""
        return self.client.request("POST", self.pods_path, body, query={"dryRun": "All"})

    def create(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Create a pod and return it as the API server has stored it."""
        return self.client.post(self.pods_path, body)

    def get(self, name: str) -> dict[str, Any]:
        """Return a pod as it is now."""
        return self.client.get(f"{self.pods_path}/{name}")

    def list(self) -> list[dict[str, Any]]:
        """Return all pods."""
        return list(self.client.get(self.pods_path)["items"])

    def bound(self, name: str, seconds: float = WAIT_SECONDS) -> dict[str, Any]:
        """Return a pod once the scheduler has bound it."""

        def found() -> dict[str, Any] | None:
            one = self.get(name)
            return one if one["spec"].get("nodeName") else None

        return wait(found, f"pod {name} is bound", seconds)

    def policy_status(self, name: str = "policy") -> dict[str, Any]:
        """Return the status of a policy, {} before the first."""
        path = f"/apis/raddle.dev/v1alpha1/namespaces/{self.name}/inferencethreadings/{name}"
        return dict(self.client.get(path).get("status", {}))

    def missed(self, name: str = "policy") -> int:
        """How many pods the status of a policy counts that the webhook has missed."""
        skipped = self.policy_status(name).get("skippedPods", [])
        return sum(int(item["count"]) for item in skipped if item["reason"] == "WebhookMissed")

    def remove_workloads(self) -> None:
        """Delete Deployments and pods at once: without a kubelet nobody would confirm a pod's end."""
        self.client.delete(f"/apis/apps/v1/namespaces/{self.name}/deployments")
        wait(
            lambda: not self.client.get(f"/apis/apps/v1/namespaces/{self.name}/replicasets")["items"],
            "the ReplicaSets are gone",
        )
        self.client.delete(self.pods_path)

    def remove(self) -> None:
        """Delete the namespace with all that is in it."""
        self.remove_workloads()
        self.client.delete(f"/api/v1/namespaces/{self.name}")


def count_missed(space: Space, wanted: int) -> int:
    """Return how many missed pods the policy's status counts, once that is as wanted or 30 s have passed."""

    def counted() -> int:
        # On a machine that is far too busy it may lose its Lease, and ends; a kubelet would start it again.
        if space.raddle.controller.pid is None:
            space.raddle.controller.start()
        return space.missed()

    return settled(counted, wanted)


def _in_group(group: int) -> list[str]:
    """A command's prefix that runs it in this group, nothing where that can't be had."""
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        return []
    return ["setpriv", "--regid", str(group), "--clear-groups"]


def next_second() -> None:
    """Wait for the next second: creation times are whole seconds, and a pod of its policy's own counts as older."""
    time.sleep(1.0 - time.time() % 1.0)


# --- objects as users write them --------------------------------------------------------------------------------------


def policy(name: str = "policy", **spec: Any) -> dict[str, Any]:
    """An InferenceThreading that selects every pod unless `podSelector` says otherwise."""
    return {
        "apiVersion": "raddle.dev/v1alpha1",
        "kind": "InferenceThreading",
        "metadata": {"name": name},
        "spec": {"podSelector": {}, **spec},
    }


def pod(
    name: str,
    *,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    containers: Sequence[Mapping[str, Any]] = (),
    **spec: Any,
) -> dict[str, Any]:
    """A pod for the node `NODE`; without containers it has one, `serve`, with a limit of `LIMIT_CPUS`."""
    metadata: dict[str, Any] = {"name": name, "labels": {"app": "app", **(labels or {})}}
    if annotations:
        metadata["annotations"] = dict(annotations)
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": _pod_spec(containers, spec)}


def deployment(name: str, replicas: int, **spec: Any) -> dict[str, Any]:
    """A Deployment of such pods; `spec` is more of the pod's."""
    template = {"metadata": {"labels": {"app": name}}, "spec": _pod_spec((), spec)}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": template},
    }


def _pod_spec(containers: Sequence[Mapping[str, Any]], spec: Mapping[str, Any]) -> dict[str, Any]:
    resources = {"limits": {"cpu": str(LIMIT_CPUS)}, "requests": {"cpu": "1m"}}
    serve = {"name": "serve", "image": "registry.example/app:1", "resources": resources}
    # Without a kubelet nobody would confirm the end of a pod that has time to end.
    own = {"nodeSelector": {"node": NODE}, "terminationGracePeriodSeconds": 0}
    return {"containers": [dict(one) for one in containers] or [serve], **own, **spec}


# --- what Raddle has made of them -------------------------------------------------------------------------------------


def injected(one: Mapping[str, Any]) -> bool:
    """Whether Raddle has marked the pod."""
    return bool(one["metadata"].get("labels", {}).get(env.INJECTED_LABEL) == "true")


def governed_by(one: Mapping[str, Any]) -> str:
    """Kind and name of the policy that governs the pod, "" where none does."""
    return str(one["metadata"].get("annotations", {}).get(env.GOVERNED_BY, ""))


def threads(one: Mapping[str, Any], container: str = "serve") -> int | None:
    """How many threads a container is planned with, None where it has no plan."""
    text = one["metadata"].get("annotations", {}).get(env.PLAN_PREFIX + container)
    return wire.read_plan_text(text).values["intraOp"] if text else None


def planned_for(one: Mapping[str, Any], container: str = "serve") -> str | None:
    """The node that a container's values are for, None where they are the safe ones or there are none."""
    text = one["metadata"].get("annotations", {}).get(env.PLAN_PREFIX + container)
    return wire.read_plan_text(text).node if text else None

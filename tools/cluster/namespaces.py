"""One namespace of a cluster with Raddle, for tests and checks."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping
from typing import Any

from cluster.client import Client
from cluster.local_raddle import LocalRaddle
from cluster.objects import governed_by, namespace, plan_of, pod, policy
from cluster.waiting import WAIT_SECONDS, wait
from raddle import env

POLICIES = "/apis/raddle.dev/v1alpha1"
TOPOLOGIES = f"{POLICIES}/nodecputopologies"


class TestNamespace:
    """What is written to it and read from it. `made` makes a new one; the namespace of a name may be there already."""

    __test__ = False  # pytest takes a class of this name for tests

    def __init__(self, raddle: LocalRaddle, name: str) -> None:
        """Describes it; nothing is made."""
        self.raddle, self.cluster, self.name = raddle, raddle.cluster, name
        self.client: Client = raddle.cluster.client
        self.pods_path = f"/api/v1/namespaces/{name}/pods"

    # --- writing ------------------------------------------------------------------------------------------------------

    def store(self, *objects: Mapping[str, Any]) -> None:
        """Applies objects into the namespace; the webhook has not seen them yet (see `governed`)."""
        for one in objects:
            self.client.apply({**one, "metadata": {"namespace": self.name, **one["metadata"]}})

    def apply(self, *objects: Mapping[str, Any]) -> None:
        """Applies objects into the namespace; policies are known to the webhook when this returns."""
        self.store(*objects)
        self.wait_for_webhook()

    def create(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Creates a pod and returns it as the API server has stored it."""
        return self.client.post(self.pods_path, body)

    def delete(self, name: str) -> None:
        """Deletes a pod at once."""
        self.client.delete(f"{self.pods_path}/{name}")

    def label(self, **labels: str | None) -> None:
        """Sets labels of the namespace."""
        self.client.merge(f"/api/v1/namespaces/{self.name}", {"metadata": {"labels": labels}})
        self.wait_for_webhook()

    def remove_workloads(self) -> None:
        """Deletes Deployments and pods at once: without a kubelet nobody would confirm a pod's end."""
        self.client.delete(f"/apis/apps/v1/namespaces/{self.name}/deployments")
        wait(
            lambda: not self.client.get(f"/apis/apps/v1/namespaces/{self.name}/replicasets")["items"],
            "the ReplicaSets are gone",
        )
        self.client.delete(self.pods_path)

    def remove(self) -> None:
        """Deletes the namespace with all that is in it."""
        self.remove_workloads()
        self.client.delete(f"/api/v1/namespaces/{self.name}")

    # --- reading ------------------------------------------------------------------------------------------------------

    def probe(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """What would be stored of a pod that is created now, by a dry run."""
        return self.client.request("POST", self.pods_path, body, query={"dryRun": "All"})

    def get(self, name: str = "app") -> dict[str, Any]:
        """A pod as it is now."""
        return self.client.get(f"{self.pods_path}/{name}")

    def list(self) -> list[dict[str, Any]]:
        """All pods."""
        return list(self.client.get(self.pods_path)["items"])

    def bound(self, name: str = "app", seconds: float = WAIT_SECONDS) -> dict[str, Any]:
        """A pod once the scheduler has bound it."""

        def scheduled() -> dict[str, Any] | None:
            one = self.get(name)
            return one if one["spec"].get("nodeName") else None

        return wait(scheduled, f"pod {name} is bound", seconds)

    def policy_status(self, name: str = "policy", kind: str = "inferencethreadings") -> dict[str, Any]:
        """The status of a policy, {} before the first."""
        scope = f"/namespaces/{self.name}" if kind == "inferencethreadings" else ""
        return dict(self.client.get(f"{POLICIES}{scope}/{kind}/{name}").get("status", {}))

    def missed(self, name: str = "policy") -> int:
        """How many pods the status of a policy counts that the webhook has missed."""
        skipped = self.policy_status(name).get("skippedPods", [])
        return sum(int(item["count"]) for item in skipped if item["reason"] == "WebhookMissed")

    # --- what the webhook knows ---------------------------------------------------------------------------------------

    def knows(self, node: str) -> bool:
        """Whether the webhook has facts of a node: then a pod that names it has its values at CREATE."""
        plan = plan_of(self.probe(pod(name="probe", nodeName=node)))
        return plan is not None and plan.node == node

    def governed(self, policy_name: str = "policy") -> None:
        """Waits until the webhook gives values of this policy to a pod of the app `app`."""
        probe = pod(name="probe", labels={"app": "app"})
        wait(
            lambda: governed_by(self.probe(probe)) == f"InferenceThreading/{policy_name}",
            f"the webhook knows the policy {policy_name}",
        )

    def wait_for_webhook(self) -> None:
        """Waits until the webhook has seen all that was written before, by a probe that needs the newest state."""
        labels = {"raddle-test/marker": str(time.monotonic_ns())}
        self.store(policy("seen", podSelector={"matchLabels": labels}))
        result = self.client.get(f"/api/v1/namespaces/{self.name}")
        if result["metadata"].get("labels", {}).get(env.INJECT_LABEL) not in {"enabled", "labelled"}:
            return
        probe = pod(name="probe", labels={**labels, env.POLICY_LABEL: "seen", env.INJECT_LABEL: "enabled"})
        wait(
            lambda: self.probe(probe)["metadata"]["labels"].get(env.INJECTED_LABEL) == "true",
            f"the webhook has seen what was written to {self.name}",
        )
        self.client.delete(f"{POLICIES}/namespaces/{self.name}/inferencethreadings/seen")


def made(raddle: LocalRaddle, name: str, labels: Mapping[str, str] | None = None) -> TestNamespace:
    """A namespace, opted in unless other labels are given, once it admits pods."""
    result = TestNamespace(raddle, name)
    result.client.apply(namespace(name, labels))
    accounts = f"/api/v1/namespaces/{name}/serviceaccounts"
    # Without the account, which the controller manager makes, no pod is admitted.
    wait(
        lambda: any(one["metadata"]["name"] == "default" for one in result.client.get(accounts)["items"]),
        f"namespace {name} has its service account",
    )
    return result


@contextlib.contextmanager
def fresh(raddle: LocalRaddle, name: str, labels: Mapping[str, str] | None = None) -> Iterator[TestNamespace]:
    """Such a namespace; it is deleted with all that is in it at the end."""
    result = made(raddle, name, labels)
    try:
        yield result
    finally:
        result.remove()

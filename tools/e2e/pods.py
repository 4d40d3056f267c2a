"""Runs one scenario's pod on the cluster and reads what its containers show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from devcluster import Cluster
from devcluster.client import ApiError
from devcluster.progress import Progress
from e2e import release, verdict
from e2e.errors import E2EError
from e2e.scenarios import REPORT, SHOW, Scenario

POD_SECONDS = 120.0
GONE_SECONDS = 60.0
STOCK = "stock"


class Runner:
    """Runs scenarios one after another: on a node this small a pod with exclusive CPUs changes all others' share."""

    def __init__(self, cluster: Cluster, progress: Progress) -> None:
        """Make the namespace without Raddle."""
        self._cluster = cluster
        self._progress = progress
        self._opted_in: dict[tuple[tuple[str, str], ...], str] = {}
        cluster.client.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": STOCK}})

    def run(self, scenario: Scenario) -> list[verdict.Verdict]:
        """The scenario's verdicts; one that fails has its reason there."""
        self._progress.say(f"{scenario.name}: {scenario.why}")
        try:
            # First, so that the webhook has long heard of the policies.
            namespace = self._namespace(scenario)
            _, logs = self._pod(scenario, STOCK, look_inside=False)
            stock = {name: verdict.look(seen.log) for name, seen in logs.items()}
            pod, seen = self._pod(scenario, namespace, look_inside=True)
        except (E2EError, ApiError) as error:
            return verdict.failed(scenario, str(error))
        return verdict.judge(scenario, pod, seen, stock)

    def _namespace(self, scenario: Scenario) -> str:
        labels = dict(scenario.namespace_labels)
        key = tuple(sorted(labels.items()))
        if key not in self._opted_in:
            name = f"e2e-{len(self._opted_in)}"
            release.opt_in(self._cluster, name, labels, self._progress)
            self._opted_in[key] = name
        for one in scenario.policies(self._opted_in[key]):
            self._cluster.client.apply(one)
        return self._opted_in[key]

    def _pod(
        self, scenario: Scenario, namespace: str, *, look_inside: bool
    ) -> tuple[dict[str, Any], Mapping[str, verdict.Seen]]:
        client, manifest = self._cluster.client, scenario.manifest(namespace)
        names = [one.name for one in scenario.containers]
        client.apply(manifest)
        try:
            release.wait(
                lambda: any(self._answered(pod, names) for pod in self._pods(scenario, namespace)),
                f"{namespace}/{scenario.name} has made its sessions",
                POD_SECONDS,
                self._progress,
            )
            pod = next(pod for pod in self._pods(scenario, namespace) if self._answered(pod, names))
            return pod, {name: self._seen(pod["metadata"], name, look_inside=look_inside) for name in names}
        except E2EError as error:
            raise E2EError(f"{error}\n{self._describe(namespace)}") from error
        finally:
            client.request("DELETE", client.path_of(manifest), {"propagationPolicy": "Background"})
            release.wait(
                lambda: not self._pods(scenario, namespace),
                f"{namespace}/{scenario.name} is gone",
                GONE_SECONDS,
                self._progress,
            )

    def _pods(self, scenario: Scenario, namespace: str) -> list[dict[str, Any]]:
        query = ",".join(f"{name}={value}" for name, value in scenario.labels.items())
        found: list[dict[str, Any]] = self._cluster.client.get(
            f"/api/v1/namespaces/{namespace}/pods", labelSelector=query
        )["items"]
        return found

    def _answered(self, pod: Mapping[str, Any], names: Sequence[str]) -> bool:
        return all(verdict.look(self._log(pod["metadata"], name)) for name in names)

    def _seen(self, pod: Mapping[str, Any], container: str, *, look_inside: bool) -> verdict.Seen:
        report = show = (0, "{}")
        if look_inside:
            report, show = self._inside(pod, container, *REPORT), self._inside(pod, container, *SHOW)
        return verdict.Seen(log=self._log(pod, container), report=report, show=show)

    def _inside(self, pod: Mapping[str, Any], container: str, *command: str) -> tuple[int, str]:
        arguments = ["-n", pod["namespace"], "exec", pod["name"], "-c", container, "--", *command]
        done = self._cluster.kubectl(*arguments, check=False)
        return done.returncode, done.stdout if done.returncode == 0 else done.stdout + done.stderr

    def _log(self, pod: Mapping[str, Any], container: str) -> str:
        path = f"/api/v1/namespaces/{pod['namespace']}/pods/{pod['name']}/log"
        try:
            answer = self._cluster.client.get(path, container=container)
        except ApiError:
            # It has not started yet.
            return ""
        return str(answer.get("text", ""))

    def _describe(self, namespace: str) -> str:
        return self._cluster.kubectl("-n", namespace, "describe", "pods", check=False).stdout[-1500:]

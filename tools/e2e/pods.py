"""Runs one scenario's pod on the cluster and reads what its containers show."""

from __future__ import annotations

from collections.abc import Mapping
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
            _, logs = self._pod(scenario, STOCK, look_inside=False)
            stock = {name: verdict.look(seen.log) for name, seen in logs.items()}
            pod, seen = self._pod(scenario, self._namespace(scenario), look_inside=True)
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
        return self._opted_in[key]

    def _pod(
        self, scenario: Scenario, namespace: str, *, look_inside: bool
    ) -> tuple[dict[str, Any], Mapping[str, verdict.Seen]]:
        client = self._cluster.client
        manifest = scenario.pod(namespace)
        path = f"/api/v1/namespaces/{namespace}/pods/{scenario.name}"
        client.post(f"/api/v1/namespaces/{namespace}/pods", manifest)
        try:
            names = [one.name for one in scenario.containers]
            release.wait(
                lambda: all(verdict.look(self._log(path, name)) for name in names),
                f"{namespace}/{scenario.name} has made its sessions",
                POD_SECONDS,
                self._progress,
            )
            seen = {name: self._seen(namespace, scenario.name, name, look_inside=look_inside) for name in names}
            return client.get(path), seen
        except E2EError as error:
            raise E2EError(f"{error}\n{self._describe(namespace, scenario.name)}") from error
        finally:
            client.request("DELETE", path)
            release.wait(lambda: self._is_gone(path), f"{scenario.name} is gone", GONE_SECONDS, self._progress)

    def _seen(self, namespace: str, pod: str, container: str, *, look_inside: bool) -> verdict.Seen:
        report = show = (0, "{}")
        if look_inside:
            report = self._inside(namespace, pod, container, *REPORT)
            show = self._inside(namespace, pod, container, *SHOW)
        path = f"/api/v1/namespaces/{namespace}/pods/{pod}"
        return verdict.Seen(log=self._log(path, container), report=report, show=show)

    def _inside(self, namespace: str, pod: str, container: str, *command: str) -> tuple[int, str]:
        done = self._cluster.kubectl("-n", namespace, "exec", pod, "-c", container, "--", *command, check=False)
        return done.returncode, done.stdout if done.returncode == 0 else done.stdout + done.stderr

    def _log(self, path: str, container: str) -> str:
        try:
            answer = self._cluster.client.get(f"{path}/log", container=container)
        except ApiError:
            # It has not started yet.
            return ""
        return str(answer.get("text", ""))

    def _is_gone(self, path: str) -> bool:
        try:
            self._cluster.client.get(path)
        except ApiError:
            return True
        return False

    def _describe(self, namespace: str, pod: str) -> str:
        return self._cluster.kubectl("-n", namespace, "describe", "pod", pod, check=False).stdout[-1500:]

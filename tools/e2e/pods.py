"""Runs one scenario's pod on the cluster and reads what its containers show."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cluster import Cluster
from cluster.client import ApiError
from cluster.progress import Progress
from cluster.waiting import NotInTimeError
from e2e import release, verdict, waiting
from e2e.errors import FAILURES, E2EError
from e2e.images import NODE_IMAGE
from e2e.scenarios import COPY_REPORTS, REPORT, SHOW, Container, Scenario

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
            namespace = self.namespace(scenario.namespace_labels)
            for one in scenario.policies(namespace):
                self._cluster.client.apply(one)
            stock: dict[str, dict[str, Any]] = {}
            if scenario.stock:
                with self.running(scenario, STOCK) as found:
                    stock = {node: self._looks(scenario, pod) for node, pod in found.items()}
            with self.running(scenario, namespace) as found:
                return [
                    one
                    for node, pod in found.items()
                    for one in verdict.judge(scenario, node, pod, self._inside_of(scenario, pod), stock.get(node, {}))
                ]
        except FAILURES as error:
            return verdict.failed(scenario, str(error))

    def namespace(self, labels: Mapping[str, str]) -> str:
        """The opted-in namespace of these labels, with the shim; made at the first call."""
        key = tuple(sorted(labels.items()))
        if key not in self._opted_in:
            name = f"e2e-{len(self._opted_in)}"
            release.opt_in(self._cluster, name, dict(labels), self._progress)
            self._opted_in[key] = name
        return self._opted_in[key]

    @contextmanager
    def running(self, scenario: Scenario, namespace: str) -> Iterator[dict[str, dict[str, Any]]]:
        """Node -> the scenario's pod on it, once each has said what it sees. Gone at the end of the block.

        Raises E2EError with what the pods' events say.
        """
        client, manifest = self._cluster.client, scenario.manifest(namespace)
        client.apply(manifest)
        try:
            found: dict[str, dict[str, Any]] = {}

            def complete() -> bool:
                found.update(self._answered(scenario, namespace))
                return set(found) == set(scenario.nodes)

            what = f"{namespace}/{scenario.name} has made its sessions"
            waiting.wait(complete, what, scenario.seconds, self._progress)
            yield {node: found[node] for node in scenario.nodes}
        except (E2EError, NotInTimeError) as error:
            raise E2EError(f"{error}\n{self._describe(namespace)}") from error
        finally:
            client.request("DELETE", client.path_of(manifest), {"propagationPolicy": "Background"})
            waiting.wait(
                lambda: not self.pods(scenario.labels, namespace),
                f"{namespace}/{scenario.name} is gone",
                max(GONE_SECONDS, scenario.seconds),
                self._progress,
            )

    def pods(self, labels: Mapping[str, str], namespace: str) -> list[dict[str, Any]]:
        """The pods with these labels."""
        query = ",".join(f"{name}={value}" for name, value in labels.items())
        found: list[dict[str, Any]] = self._cluster.client.get(
            f"/api/v1/namespaces/{namespace}/pods", labelSelector=query
        )["items"]
        return found

    def inside(self, pod: Mapping[str, Any], container: str, *command: str) -> tuple[int, str]:
        """Exit status and output of a command in a container; `pod` is the pod's metadata."""
        arguments = ["-n", pod["namespace"], "exec", pod["name"], "-c", container, "--", *command]
        done = self._cluster.kubectl(*arguments, check=False)
        return done.returncode, done.stdout if done.returncode == 0 else done.stdout + done.stderr

    def log(self, pod: Mapping[str, Any], container: str) -> str:
        """A container's log, "" where it has not started; `pod` is the pod's metadata."""
        path = f"/api/v1/namespaces/{pod['namespace']}/pods/{pod['name']}/log"
        try:
            answer = self._cluster.client.get(path, container=container)
        except ApiError:
            return ""
        return str(answer.get("text", ""))

    def _answered(self, scenario: Scenario, namespace: str) -> dict[str, dict[str, Any]]:
        """Node -> a pod on it of which each container has said what it sees."""
        found = {}
        for pod in self.pods(scenario.labels, namespace):
            node = pod["spec"].get("nodeName")
            # One that is going is that of a first try.
            going = "deletionTimestamp" in pod["metadata"]
            if (
                node
                and not going
                and all(verdict.look(self.log(pod["metadata"], one.name)) for one in scenario.containers)
            ):
                found[node] = pod
        return found

    def _looks(self, scenario: Scenario, pod: Mapping[str, Any]) -> dict[str, Any]:
        return {one.name: verdict.look(self.log(pod["metadata"], one.name)) for one in scenario.containers}

    def _inside_of(self, scenario: Scenario, pod: Mapping[str, Any]) -> dict[str, verdict.Seen]:
        return {one.name: self._seen(scenario, pod["metadata"], one) for one in scenario.containers}

    def _seen(self, scenario: Scenario, pod: Mapping[str, Any], container: Container) -> verdict.Seen:
        name, log = container.name, self.log(pod, container.name)
        by_door = verdict.wished(scenario) == "Auto"
        live = self._live(pod) if by_door else None
        if container.image == NODE_IMAGE:
            return verdict.Seen(log=log, report=self._copied_report(pod, name), show=None, live=live)
        report, show = (self.inside(pod, name, *container.inside(command)) for command in (REPORT, SHOW))
        return verdict.Seen(log=log, report=report, show=show, live=live)

    def _live(self, pod: Mapping[str, Any]) -> tuple[int, str]:
        """What the shim's own program says in each of the pod's containers."""
        command = [sys.executable, "-m", "raddle_operator", "explain", "--live", pod["name"], "-o", "json"]
        command += ["-n", pod["namespace"]]
        environ = self._cluster.environment()
        done = subprocess.run(command, env=environ, check=False, capture_output=True, text=True)
        return done.returncode, done.stdout + done.stderr

    def _copied_report(self, pod: Mapping[str, Any], container: str) -> tuple[int, str]:
        """`raddle report` of the reports of a container without Python, copied out of it."""
        status, text = self.inside(pod, container, *COPY_REPORTS)
        if status:
            return status, text
        with tempfile.TemporaryDirectory(prefix="raddle-reports-") as folder:
            for name, content in json.loads(text).items():
                (Path(folder) / Path(name).name).write_text(content)
            command = [sys.executable, *REPORT[1:], folder]
            done = subprocess.run(command, check=False, capture_output=True, text=True)
        return done.returncode, done.stdout + done.stderr

    def _describe(self, namespace: str) -> str:
        return self._cluster.kubectl("-n", namespace, "describe", "pods", check=False).stdout[-1500:]

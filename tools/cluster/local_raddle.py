"""The chart's objects in the cluster, the processes outside: each with its ServiceAccount's token, so RBAC is real."""

from __future__ import annotations

import base64
import http.client
import os
import platform
import signal
import sys
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import yaml

from cluster import Cluster, DevclusterError, NodeHandle
from cluster.components import Component, free_port, wait_alive
from cluster.waiting import settled
from raddle.cpus import cpuset
from raddle.cpus.topology import Kubelet, Machine
from raddle.machine import sysfs
from raddle_operator import certificates
from raddle_operator.objects import nodetopology

NAMESPACE = "raddle-system"
CHART = Path(__file__).parents[2] / "charts" / "raddle"
# Options of Helm for what installs the chart's objects but those that run Raddle in the cluster.
WITHOUT_WORKLOADS = (
    "--post-renderer", sys.executable,
    "--post-renderer-args", str(Path(__file__).with_name("without_workloads.py")),
)  # fmt: skip
READY_SECONDS = 30.0
STOP_SECONDS = 10.0
# uname -m -> what Go, and so a Node object, calls it.
GO_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


class Process:
    """One of Raddle's processes. `health_url` answers /readyz and /metrics; None where it serves neither."""

    def __init__(self, component: Component, command: Sequence[str], health_url: str | None) -> None:
        """Describes a process that is not started yet."""
        self._component = component
        self._command = command
        self.health_url = health_url

    @property
    def pid(self) -> int | None:
        """The process id, None when it does not run."""
        return self._component.pid

    @property
    def log(self) -> str:
        """All that it has logged, over all its starts."""
        return self._component.log.read_text(errors="replace") if self._component.log.exists() else ""

    def start(self) -> Self:
        """Starts it; `wait_ready` waits."""
        self._component.start(self._command)
        return self

    def stop(self, seconds: float = STOP_SECONDS) -> None:
        """Ends it in order (a controller releases its Lease), by force when that takes longer than `seconds`."""
        if self.pid is not None:
            os.kill(self.pid, signal.SIGTERM)
            settled(lambda: self.pid, None, seconds)
        self._component.stop()

    def kill(self) -> None:
        """Ends it at once."""
        self._component.kill()

    def wait_ready(self, seconds: float = READY_SECONDS) -> Self:
        """Waits until /readyz answers 200. Raises DevclusterError with the log's end when it dies or takes too long."""
        self.wait(self.is_ready, f"{self._component.name} is ready", seconds)
        return self

    def wait(self, check: Callable[[], bool], what: str, seconds: float = READY_SECONDS) -> None:
        """Waits until `check` holds, as long as the process lives."""
        wait_alive(check, what, seconds, [self._component])

    def is_ready(self) -> bool:
        """Whether /readyz answers 200 now."""
        try:
            self.get("/readyz")
        except OSError:
            return False
        return True

    def get(self, path: str) -> str:
        """The body of a path of the health port. Raises OSError when there is no answer of status 200."""
        assert self.health_url is not None
        try:
            with urllib.request.urlopen(self.health_url + path, timeout=5) as answer:
                return str(answer.read().decode())
        except http.client.HTTPException as error:  # it died in the middle of its answer
            raise ConnectionError(f"{self.health_url}{path}: {error!r}") from error

    def metric(self, name: str, **labels: str) -> float:
        """The sum of a metric's samples that carry these labels, 0 where there is none."""
        total = 0.0
        for line in self.get("/metrics").splitlines():
            head, _, value = line.rpartition(" ")
            metric, _, rest = head.partition("{")
            if metric == name and all(f'{key}="{wanted}"' in rest for key, wanted in labels.items()):
                total += float(value)
        return total


class LocalRaddle:
    """Raddle on a cluster, from `with` to the end of the block.

    `values` are chart values beyond those of the harness; `start` names the processes to start at once. `prefixes` are
    put before a process's command line, by its name: a program that ends in exec, such as env or setpriv. With
    `workloads` the chart's Deployments and the like are in the cluster too.
    """

    webhook: Process
    controller: Process

    def __init__(
        self,
        cluster: Cluster,
        *,
        values: Mapping[str, Any] | None = None,
        start: Sequence[str] = ("webhook", "controller"),
        controller_options: Sequence[str] = (),
        webhook_options: Sequence[str] = (),
        prefixes: Mapping[str, Sequence[str]] | None = None,
        workloads: bool = False,
    ) -> None:
        """Describes it; entering installs the chart and starts the processes."""
        self.cluster = cluster
        self._values = values or {}
        self._start = start
        self._controller_options = controller_options
        self._webhook_options = webhook_options
        self._prefixes = prefixes or {}
        self._helm_options = () if workloads else WITHOUT_WORKLOADS
        self._processes: list[Process] = []

    def __enter__(self) -> Self:
        """Installs the chart and starts the processes; they are ready when this returns."""
        port, health_port = free_port(), free_port()
        tls = self.cluster.directory / "raddle-tls"
        tls.mkdir(exist_ok=True)
        authority = certificates.local_issue(tls, ["127.0.0.1", "localhost"])
        self._install(port, authority)
        self.webhook = self.webhook_process("webhook", port, health_port, tls)
        self.controller = self.controller_process("controller")
        for name in self._start:
            getattr(self, name).start()
        for name in self._start:
            getattr(self, name).wait_ready()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Stops the processes. What is in the cluster goes with the cluster."""
        for process in reversed(self._processes):
            process.stop()

    def _install(self, port: int, authority: bytes) -> None:
        values: dict[str, Any] = {
            "certificates": {"source": "Secret"},
            "webhook": {
                "url": f"https://127.0.0.1:{port}",
                "caBundle": base64.b64encode(authority).decode(),
            },
        }
        for key, value in self._values.items():
            values[key] = {**values.get(key, {}), **value} if isinstance(value, dict) else value
        file = self.cluster.directory / "raddle-values.yaml"
        file.write_text(yaml.safe_dump(values))
        self.cluster.helm(
            "upgrade", "--install", "raddle", str(CHART), "--namespace", NAMESPACE, "--create-namespace",
            "--values", str(file), *self._helm_options,
        )  # fmt: skip

    # --- processes --------------------------------------------------------------------------------------------------

    def webhook_process(
        self,
        name: str,
        port: int,
        health_port: int,
        tls: Path,
        *,
        host: str = "127.0.0.1",
    ) -> Process:
        """A webhook that is not started yet, and serves on `host`."""
        options = ["--host", host, "--port", str(port), "--tls-dir", str(tls), "--drain-delay", "0"]
        options += ["--metrics-port", str(health_port), *self._webhook_options]
        return self._process(name, "webhook", options, f"http://{host}:{health_port}")

    def controller_process(self, name: str) -> Process:
        """A controller that is not started yet; several elect a leader among them."""
        port = free_port()
        options = ["--host", "127.0.0.1", "--port", str(port), "--identity", name, "--no-issue-certificates"]
        options += self._controller_options
        return self._process(name, "controller", options, f"http://127.0.0.1:{port}")

    def start_agent(self, node: str, root: str = "/", options: Sequence[str] = ()) -> Process:
        """Starts the agent of a registered node, with a token that is bound to that node as a kubelet's are."""
        process = self._process(
            f"agent-{node}",
            "agent",
            ["--node-name", node, "--root", root, *options],
            None,
            token=self._node_token(node),
        )
        return process.start()

    def _process(
        self,
        name: str,
        command: str,
        options: Sequence[str],
        health_url: str | None,
        *,
        token: str | None = None,
    ) -> Process:
        kubeconfig = self._kubeconfig(name, token or self.cluster.account_token(f"raddle-{command}", NAMESPACE))
        line = [sys.executable, "-m", "raddle_operator", command, "--kubeconfig", str(kubeconfig), *options]
        line = [*self._prefixes.get(name, ()), *line]
        process = Process(self.cluster.component(name), line, health_url)
        self._processes.append(process)
        return process

    def _node_token(self, node: str) -> str:
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"raddle-agent-{node}", "namespace": NAMESPACE},
            "spec": {
                "nodeName": node,
                "serviceAccountName": "raddle-agent",
                "containers": [{"name": "agent", "image": "raddle"}],
            },
        }
        made = self.cluster.client.post(f"/api/v1/namespaces/{NAMESPACE}/pods", pod)
        return self.cluster.account_token("raddle-agent", NAMESPACE, made)

    def _kubeconfig(self, name: str, token: str) -> Path:
        config = yaml.safe_load(self.cluster.kubeconfig.read_text())
        config["users"] = [{"name": name, "user": {"token": token}}]
        for context in config["contexts"]:
            context["context"]["user"] = name
        path = self.cluster.directory / f"{name}.kubeconfig"
        path.write_text(yaml.safe_dump(config))
        path.chmod(0o600)
        return path

    # --- nodes ------------------------------------------------------------------------------------------------------

    def register_machine(
        self,
        node: str,
        root: Path | str,
        *,
        kubelet: Kubelet | None = None,
        labels: Mapping[str, str] | None = None,
        publish: bool = True,
        allocatable_cpus: int | None = None,
        pods: int = 110,
    ) -> NodeHandle:
        """Registers a node that is the machine recorded below `root`.

        `publish` also writes its NodeCPUTopology, as the agent would there; without it an agent must be started.
        """
        machine = sysfs.read_machine(str(root))
        if not machine.online:
            raise DevclusterError(f"{root}: no recorded machine")
        if kubelet is not None:
            machine = machine._replace(kubelet=kubelet)
        boot_id = machine.boot_id or f"recorded-{node}"
        machine = machine._replace(boot_id=boot_id)
        return self.cluster.register_node(
            node,
            cpus=allocatable_cpus or cpuset.count(machine.online),
            pods=pods,
            labels=labels,
            boot_id=boot_id,
            architecture=GO_ARCHITECTURES.get(machine.architecture or platform.machine(), "amd64"),
            topology=_manifest(node, machine) if publish else None,
        )

    def events(self, namespace: str, reason: str) -> list[dict[str, Any]]:
        """The events of a namespace with this reason."""
        items = self.cluster.client.get(f"/apis/events.k8s.io/v1/namespaces/{namespace}/events")["items"]
        return [event for event in items if event.get("reason") == reason]


def _manifest(node: str, machine: Machine) -> dict[str, Any]:
    return {
        "apiVersion": "raddle.dev/v1alpha1",
        "kind": "NodeCPUTopology",
        "metadata": {"name": node},
        "spec": nodetopology.to_spec(machine),
    }

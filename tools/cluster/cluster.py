"""A cluster as a context manager: its files, its processes, its users, and the end of all of them."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TextIO

import yaml

from cluster import binaries, flags, registry
from cluster.client import ApiError, Client
from cluster.components import Component
from cluster.controlplane import ControlPlane, start_janitor
from cluster.credentials import Credentials
from cluster.errors import DevclusterError
from cluster.nodes import NodeHandle, Nodes
from cluster.progress import Progress
from cluster.versions import DEFAULT_KUBERNETES, Version

# What the API server and the controller manager make after their start, and what pods and node leases need.
AWAITED = ("/api/v1/namespaces/kube-node-lease", "/api/v1/namespaces/default")
AWAITED_SERVICE_ACCOUNT = "/api/v1/namespaces/default/serviceaccounts/default"

# Longer than any command here takes: one in a node that hangs has no end of its own.
TOOL_SECONDS = 600


class Cluster:
    """A control plane that runs from `with` to the end of the block, or of this process, whichever is first.

    `server` is its URL, `kubeconfig` the administrator's, `ca_file` its authority's certificate, `directory` holds
    all its files (logs in `logs`), `ready_seconds` is how long the start took. None of these is there before the start.
    """

    server: str
    kubeconfig: Path
    ca_file: Path
    directory: Path
    ready_seconds: float

    def __init__(
        self,
        *,
        version: str | Version = DEFAULT_KUBERNETES,
        scheduler: bool = True,
        controller_manager: bool = True,
        feature_gates: Mapping[str, bool] | None = None,
        extra_flags: Mapping[str, Sequence[str]] | None = None,
        audit_policy: Mapping[str, Any] | None = None,
        name: str | None = None,
        progress: Progress | None = None,
    ) -> None:
        """Describes a cluster; entering it starts it.

        `extra_flags` are more flags by component (`kube-apiserver`, `etcd`, …), which win. `audit_policy` is an
        audit.k8s.io/v1 Policy; the log is logs/audit.log. `name` is the
        kubeconfig's context. Without a controller manager there are no service
        accounts, and pods need none.
        """
        self.version = version if isinstance(version, Version) else Version.parse(version)
        self.name = name or "devcluster"
        self._settings = flags.Settings(
            scheduler=scheduler,
            controller_manager=controller_manager,
            feature_gates=feature_gates or {},
            audit=audit_policy is not None,
            extra_flags=extra_flags or {},
        )
        self._audit_policy = audit_policy
        self._progress = progress or Progress()
        self._programs: dict[str, Path] = {}
        self._control_plane: ControlPlane | None = None
        self._client: Client | None = None
        self._nodes: Nodes | None = None
        self._lock: TextIO | None = None
        self._janitor: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        """Finds or builds the programs and starts them.

        Raises DevclusterError when that fails, with nothing left behind.
        """
        self._programs = binaries.find(binaries.control_plane(self.version), self._commands(), self._progress)
        started = time.monotonic()
        registry.sweep()
        self.directory, self._lock = registry.create(self.name)
        try:
            self._janitor = start_janitor(self.directory, owner_pid=os.getpid())
            self._start(self._janitor.pid)
            self.ready_seconds = time.monotonic() - started
        except BaseException:
            self._shut_down()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Stops everything that was started and removes the directory."""
        self._shut_down()

    @property
    def client(self) -> Client:
        """The administrator's client of this cluster, for one thread; `new_client` makes more."""
        if self._client is None:
            self._client = self.new_client()
        return self._client

    def new_client(self) -> Client:
        """Another administrator's client, which the caller closes."""
        return Client(self.server, self.ca_file, self._credentials.admin_certificate, self._credentials.admin_key)

    def environment(self) -> dict[str, str]:
        """An environment for commands: KUBECONFIG, this cluster's tools first on PATH, caches of its own."""
        tools = self.directory / "tools"
        return {
            **os.environ,
            "KUBECONFIG": str(self.kubeconfig),
            "PATH": f"{self.directory / 'bin'}{os.pathsep}{os.environ.get('PATH', '')}",
            "KUBECACHEDIR": str(tools / "kubectl"),
            "HELM_CACHE_HOME": str(tools / "helm-cache"),
            "HELM_CONFIG_HOME": str(tools / "helm-config"),
            "HELM_DATA_HOME": str(tools / "helm-data"),
        }

    def kubectl(
        self,
        *arguments: str,
        input: str | None = None,  # noqa: A002 -- as in subprocess.run
        check: bool = True,
    ) -> subprocess.CompletedProcess[str]:
        """Runs kubectl as the administrator; with `check`, a failure raises DevclusterError with its standard error."""
        return self._run("kubectl", arguments, input, check=check)

    def helm(
        self,
        *arguments: str,
        input: str | None = None,  # noqa: A002 -- as in subprocess.run
        check: bool = True,
    ) -> subprocess.CompletedProcess[str]:
        """Runs Helm as the administrator, building it at first use; otherwise like `kubectl`."""
        self.provide_helm()
        return self._run("helm", arguments, input, check=check)

    def provide_helm(self) -> Path:
        """Helm's path, building it where there is none; `environment()` has it on PATH from then on."""
        if "helm" not in self._programs:
            self._programs |= binaries.find(binaries.helm(), ["helm"], self._progress)
            self._link("helm")
        return self._programs["helm"]

    def user(self, name: str, groups: Sequence[str] = ()) -> Path:
        """A kubeconfig by which its holder is `name`, a member of `groups`; what it may do is up to RBAC."""
        return self._credentials.user(self.server, name, groups)

    def account_token(self, name: str, namespace: str, bound_to: Mapping[str, Any] | None = None) -> str:
        """A new token of a service account for an hour, bound to a pod as the kubelet binds those of pods."""
        spec: dict[str, Any] = {"expirationSeconds": 3600}
        if bound_to is not None:
            owner = {key: bound_to["metadata"][key] for key in ("name", "uid")}
            spec["boundObjectRef"] = {"apiVersion": "v1", "kind": "Pod", **owner}
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token"
        return str(self.client.post(path, {"spec": spec})["status"]["token"])

    @property
    def nodes(self) -> Nodes:
        """The registered nodes, whose leases one thread keeps fresh."""
        if self._nodes is None:
            self._nodes = Nodes(self.new_client)
        return self._nodes

    def register_node(
        self,
        name: str,
        *,
        cpus: int,
        memory: str = "64Gi",
        pods: int = 110,
        labels: Mapping[str, str] | None = None,
        taints: Sequence[Mapping[str, str]] = (),
        boot_id: str | None = None,
        architecture: str = "amd64",
        topology: Mapping[str, Any] | None = None,
    ) -> NodeHandle:
        """Makes a Ready node that the scheduler binds pods to; they stay Pending there, since it has no kubelet.

        `cpus` is the count of logical CPUs, all allocatable. `topology` is a NodeCPUTopology manifest, which is applied
        with the node as its owner (its CRD must be there). A node of this name is replaced.
        """
        return self.nodes.register(
            name,
            cpus=cpus,
            memory=memory,
            pods=pods,
            labels=labels or {},
            taints=taints,
            boot_id=boot_id,
            architecture=architecture,
            topology=topology,
        )

    def mark_running(self, namespace: str, name: str) -> None:
        """Writes the status that a kubelet would write once all containers of a pod run."""
        self.nodes.mark_running(namespace, name)

    def component(self, name: str) -> Component:
        """A process of the caller's, not started yet; it ends with the cluster and logs beside the others."""
        if self._janitor is None:
            raise DevclusterError("the cluster does not run; use it in a with block")
        return Component(name, self.directory, self._janitor.pid)

    def stop(self, component: str) -> None:
        """Stops `apiserver`, `etcd`, `scheduler` or `controller-manager`; it keeps its port and data for `start`."""
        self._running.stop(component)

    def start(self, component: str) -> None:
        """Starts a stopped component, on the port that it had, and waits until it is ready."""
        self._running.start(component)

    def restart(self, component: str) -> None:
        """Stops and starts a component."""
        self._running.stop(component)
        self._running.start(component)

    def pids(self) -> dict[str, int]:
        """The process id of each component that runs, by the component's full name."""
        return self._running.pids()

    @property
    def _running(self) -> ControlPlane:
        if self._control_plane is None:
            raise DevclusterError("the cluster does not run; use it in a with block")
        return self._control_plane

    def _commands(self) -> list[str]:
        optional = {
            flags.SCHEDULER: self._settings.scheduler,
            flags.CONTROLLER_MANAGER: self._settings.controller_manager,
        }
        return [flags.ETCD, flags.API_SERVER, "kubectl", *(name for name, wanted in optional.items() if wanted)]

    def _start(self, group: int) -> None:
        if self._audit_policy is not None:
            (self.directory / flags.AUDIT_POLICY).write_text(yaml.safe_dump(dict(self._audit_policy)))
        (self.directory / "bin").mkdir()
        self._link("kubectl")
        self._credentials = Credentials(self.directory, self.name)
        self.ca_file = self._credentials.ca_file
        self.kubeconfig = self.directory / "kubeconfig"
        self._control_plane = ControlPlane(self.directory, self._programs, self._settings, self._credentials)
        self._control_plane.start_all(group, self.kubeconfig)
        self.server = self._control_plane.server
        awaited = [*AWAITED, AWAITED_SERVICE_ACCOUNT] if self._settings.controller_manager else list(AWAITED)
        for path in awaited:
            self._control_plane.wait(lambda path=path: self._exists(path), f"{path} exists")  # type: ignore[misc]

    def _exists(self, path: str) -> bool:
        try:
            self.client.get(path)
        except ApiError:
            return False
        return True

    def _link(self, tool: str) -> None:
        (self.directory / "bin" / tool).symlink_to(self._programs[tool])

    def _run(
        self, tool: str, arguments: Sequence[str], content: str | None, *, check: bool
    ) -> subprocess.CompletedProcess[str]:
        command = [str(self._programs[tool]), *arguments]
        try:
            done = subprocess.run(
                command,
                input=content,
                check=False,
                capture_output=True,
                text=True,
                env=self.environment(),
                timeout=TOOL_SECONDS,
            )
        except subprocess.TimeoutExpired as error:
            raise DevclusterError(f"{tool} {' '.join(arguments)}: no end within {TOOL_SECONDS} s") from error
        if check and done.returncode:
            raise DevclusterError(f"{tool} {' '.join(arguments)}: exit code {done.returncode}: {done.stderr.strip()}")
        return done

    def _shut_down(self) -> None:
        # First the servers: then no request of the nodes' thread can hang.
        if self._control_plane is not None:
            self._control_plane.kill_all()
        if self._nodes is not None:
            self._nodes.close()
        if self._client is not None:
            self._client.close()
        shutil.rmtree(self.directory, ignore_errors=True)
        if self._janitor is not None:
            with contextlib.suppress(OSError):
                self._janitor.communicate()
        if self._lock is not None:
            self._lock.close()
        self._client = self._nodes = self._control_plane = self._janitor = self._lock = None

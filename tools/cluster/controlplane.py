"""Starts the components of one cluster on free ports and waits until each of them answers."""

from __future__ import annotations

import http.client
import ssl
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from cluster import flags
from cluster.components import Component, PortTakenError, free_port, wait_alive
from cluster.credentials import Credentials
from cluster.errors import DevclusterError

READY_SECONDS = 60.0
# A start is waited for by many: it is noticed soon.
POLL_SECONDS = 0.02
PORT_ATTEMPTS = 5
PROBE_SECONDS = 5.0
SHORT_NAMES = {
    "apiserver": flags.API_SERVER,
    "scheduler": flags.SCHEDULER,
    "controller-manager": flags.CONTROLLER_MANAGER,
}
READY_PATHS = {flags.API_SERVER: "/readyz", flags.SCHEDULER: "/healthz", flags.CONTROLLER_MANAGER: "/healthz"}


class ControlPlane:
    """The processes of one cluster. All of them end when this process ends, by the janitor."""

    def __init__(
        self, directory: Path, programs: Mapping[str, Path], settings: flags.Settings, credentials: Credentials
    ) -> None:
        """Describes processes that are not started yet."""
        self._directory = directory
        self._programs = programs
        self._settings = settings
        self._credentials = credentials
        self._ports: dict[str, int] = {}
        self._components: dict[str, Component] = {}
        self._context = ssl.create_default_context(cafile=str(credentials.ca_file))
        self._context.load_cert_chain(credentials.admin_certificate, credentials.admin_key)
        (directory / "logs").mkdir()

    @property
    def server(self) -> str:
        """The API server's URL."""
        return f"https://127.0.0.1:{self._ports[flags.API_SERVER]}"

    def start_all(self, group: int, kubeconfig: Path) -> None:
        """Starts the components in the process group and waits until all are ready; `kubeconfig` is where to write it.

        Raises DevclusterError with the end of the log of what did not start.
        """
        names = [flags.ETCD, flags.API_SERVER]
        names += [flags.CONTROLLER_MANAGER] if self._settings.controller_manager else []
        names += [flags.SCHEDULER] if self._settings.scheduler else []
        self._components = {name: Component(name, self._directory, group) for name in names}
        self._launch(flags.ETCD)
        # The API server waits for etcd by itself, so that both start at the same time.
        self._on_free_port(flags.API_SERVER, lambda: self._credentials.write_kubeconfigs(self.server, kubeconfig))
        controllers = names[2:]
        for name in controllers:
            self._ports[name] = free_port()
            self._launch(name)
        for name in controllers:
            try:
                self.wait_ready(name)
            except PortTakenError:
                self._on_free_port(name)

    def stop(self, name: str) -> None:
        """Stops a component in order; it keeps its port and data for `start`."""
        self._component(name).stop()

    def start(self, name: str) -> None:
        """Starts a stopped component on the port that it had, and waits until it is ready."""
        component = self._component(name)
        if component.pid is not None:
            raise DevclusterError(f"start: {name} runs already, as process {component.pid}")
        for attempt in range(PORT_ATTEMPTS):
            self._launch(component.name)
            try:
                self.wait_ready(component.name)
            except PortTakenError:
                # An outgoing connection may have been given this port; those are mostly short.
                if attempt == PORT_ATTEMPTS - 1:
                    raise
            else:
                return

    def kill_all(self) -> None:
        """Ends all components at once: their data are thrown away or as good as after a crash."""
        for component in self._components.values():
            component.kill()

    def pids(self) -> dict[str, int]:
        """The process id of each component that runs."""
        return {name: component.pid for name, component in self._components.items() if component.pid is not None}

    def wait(self, check: Callable[[], bool], what: str) -> None:
        """Polls until `check` holds; raises DevclusterError after 60 s, or when a component died."""
        wait_alive(check, what, READY_SECONDS, list(self._components.values()), poll_seconds=POLL_SECONDS)

    def wait_ready(self, name: str) -> None:
        """Waits until a component says that it is ready. etcd is taken as ready when the API server is."""
        path, watched = READY_PATHS.get(name), [self._components[name], self._components[flags.ETCD]]
        if path is None:
            name, path = flags.API_SERVER, "/readyz/etcd"
            if self._components[name].pid is None:
                return
        wait_alive(
            lambda: self._answers(self._ports[name], path),
            f"{name} ready",
            READY_SECONDS,
            watched,
            poll_seconds=POLL_SECONDS,
        )

    def _component(self, name: str) -> Component:
        component = self._components.get(SHORT_NAMES.get(name, name))
        if component is None:
            raise DevclusterError(f"component: got {name!r}, this cluster has {', '.join(self._components)}")
        return component

    def _on_free_port(self, name: str, prepare: Callable[[], None] = lambda: None) -> None:
        for attempt in range(PORT_ATTEMPTS):
            self._ports[name] = free_port()
            prepare()
            self._launch(name)
            try:
                self.wait_ready(name)
            except PortTakenError:
                if attempt == PORT_ATTEMPTS - 1:
                    raise
            else:
                return

    def _launch(self, name: str) -> None:
        arguments = {
            flags.ETCD: lambda: flags.etcd(self._settings),
            flags.API_SERVER: lambda: flags.api_server(self._settings, self._ports[name]),
            flags.CONTROLLER_MANAGER: lambda: flags.controller_manager(self._settings, self._ports[name]),
            flags.SCHEDULER: lambda: flags.scheduler(self._settings, self._ports[name]),
        }[name]()
        self._components[name].start([str(self._programs[name]), *arguments])

    def _answers(self, port: int, path: str) -> bool:
        connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=PROBE_SECONDS, context=self._context)
        try:
            connection.request("GET", path)
            return connection.getresponse().status == http.client.OK
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()


def start_janitor(directory: Path, *, owner_pid: int) -> subprocess.Popen[bytes]:
    """Starts the process that ends the cluster when its owner goes; its pid is the components' process group."""
    script = Path(__file__).with_name("janitor.py")
    command = [sys.executable, "-I", "-S", str(script), str(owner_pid), str(directory)]
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, process_group=0
    )

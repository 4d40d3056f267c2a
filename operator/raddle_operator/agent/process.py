"""The node agent: publishes what this node's CPUs are, and keeps that true. One process on every node.

It mirrors two objects, its own NodeCPUTopology and its Node, by watches, and reads the machine again once a
minute. Whenever one of the three changes it compares what is with what should be, and writes only a
difference. There is no heartbeat: a node that does not change costs the API server two idle watches.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import signal
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import psutil

from raddle.cpus import cpuset
from raddle.cpus.topology import Machine
from raddle.machine.sysfs import read_machine
from raddle_operator.agent import client
from raddle_operator.agent.client import FAILURES, AgentClient
from raddle_operator.agent.kubelet import KubeletReader
from raddle_operator.agent.reflector import Backoff, Reflector
from raddle_operator.agent.settings import AgentSettings
from raddle_operator.agent.summary import SummaryWriter
from raddle_operator.objects import nodetopology
from raddle_operator.objects.nodereport import NodeReport

log = logging.getLogger(__name__)

FIELD_MANAGER = "raddle-agent"
TOPOLOGIES = f"/apis/{nodetopology.API_VERSION}/{nodetopology.PLURAL}"
NODES = "/api/v1/nodes"


def difference(live: Mapping[str, Any] | None, wanted: Mapping[str, Any]) -> str:
    """What is wrong with the live object, in one word: "missing", "owner", "content"; "" where nothing is."""
    if live is None:
        return "missing"
    owners, spec = _content(live)
    if owners != _content(wanted)[0]:
        return "owner"
    return "" if spec == wanted["spec"] else "content"


def _content(obj: Mapping[str, Any] | None) -> tuple[list[Any], Any]:
    """What the agent writes of an object: its owners' UIDs and its spec."""
    obj = obj or {}
    owners = obj.get("metadata", {}).get("ownerReferences") or []
    return [reference.get("uid") for reference in owners], obj.get("spec")


class Agent:
    """The loop: it compares what is with what should be whenever it is woken, and now and then."""

    def __init__(self, settings: AgentSettings, endpoint: client.Endpoint) -> None:
        self._settings = settings
        self._client = AgentClient(endpoint)
        self._token = endpoint.token
        self._kubelet = KubeletReader(settings, self._client, endpoint.token)
        self._backoff = self._new_backoff()
        # A signal handler may put into it at any moment, even while the loop waits in it; an Event would deadlock.
        self._wakes: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._over = False
        self._own = self._reflector(TOPOLOGIES, metadata_only=False)
        self._node = self._reflector(NODES, metadata_only=True)
        self._summary = SummaryWriter(
            self._client, f"{TOPOLOGIES}/{settings.node_name}", settings.node_name, self._new_backoff()
        )
        self._machine: Machine | None = None
        self._next_reading = 0.0
        # What was applied, and what the server made of it: neither a schema that drops a field nor an owner that
        # somebody added makes a loop.
        self._accepted: tuple[Any, Any] = (None, None)

    def _new_backoff(self) -> Backoff:
        return Backoff(self._settings.least_delay_s, self._settings.most_delay_s)

    def _reflector(self, path: str, *, metadata_only: bool) -> Reflector[dict[str, Any]]:
        return Reflector(
            self._client,
            path,
            f"metadata.name={self._settings.node_name}",
            keep=lambda obj: obj,
            metadata_only=metadata_only,
            changed=self.wake,
            backoff=self._new_backoff(),
        )

    def wake(self) -> None:
        """Makes the loop look at once; callable from any thread and from a signal handler."""
        self._wakes.put(None)

    def finish(self) -> None:
        """Ends the loop; callable from any thread and from a signal handler."""
        self._over = True
        self.wake()

    def run(self) -> None:
        """Publishes until `finish` is called."""
        for loop in (self._own.run, self._node.run, *self._watching()):
            threading.Thread(target=loop, daemon=True).start()
        while not self._over:
            pause_s = self._reconcile()
            if self._own.synced:
                pause_s = min(pause_s, self._summary.write(self._own.value) or pause_s)
            with contextlib.suppress(queue.Empty):
                self._wakes.get(timeout=pause_s)
                while True:
                    self._wakes.get_nowait()

    def _watching(self) -> tuple[Callable[[], None], ...]:
        """The loops that look at what runs, and serve it."""
        if self._settings.watch is None:
            self._summary.give_up()
            return ()
        # Not at the top: an agent that does not look need not carry them.
        from raddle_operator.agent import watching  # noqa: PLC0415

        return watching.loops(
            self._settings, self._client, self._token, lambda: self._machine, self._tell, self._new_backoff()
        )

    def _tell(self, report: NodeReport | None) -> None:
        self._summary.take(report)
        self.wake()

    def _reconcile(self) -> float:
        """Compares and writes at most once; the seconds until the next sample."""
        machine = self._read()
        if machine is None or not (self._own.synced and self._node.synced) or self._node.value is None:
            return self._settings.reread_s
        uid = str(self._node.value["metadata"]["uid"])
        wanted = nodetopology.to_object(machine, self._settings.node_name, uid)
        wanted_hash = nodetopology.content_hash(wanted["spec"])
        live = self._own.value
        reason = difference(live, wanted)
        if not reason or self._accepted == ((uid, wanted_hash), _content(live)):
            return self._settings.reread_s
        try:
            answer = self._client.apply(f"{TOPOLOGIES}/{self._settings.node_name}", wanted, FIELD_MANAGER)
        except FAILURES as error:
            pause_s = self._backoff.pause_s()
            log.warning(
                "publishing failed node=%s retry_s=%.1f error=%r", self._settings.node_name, pause_s, str(error)
            )
            return pause_s
        self._backoff.reset()
        self._accepted = ((uid, wanted_hash), _content(answer))
        log.info(
            "published node=%s reason=%s cpus=%d cores=%d hash=%s rss_mib=%.1f",
            self._settings.node_name,
            reason,
            cpuset.count(machine.online),
            len(machine.cores),
            wanted_hash[:12],
            psutil.Process().memory_info().rss / (1 << 20),
        )
        return self._settings.reread_s

    def _read(self) -> Machine | None:
        """The machine and its kubelet; sysfs is read when it is time, None when it shows no CPU at all."""
        if time.monotonic() >= self._next_reading:
            self._next_reading = time.monotonic() + self._settings.reread_s
            result = read_machine(str(self._settings.root), details=False)
            self._complain(result)
            self._machine = nodetopology.with_stable_memory(result, self._machine) if result.online else None
        if self._machine is None:
            return None
        # What went wrong in reading is for this node's log, and no part of what the machine is.
        kubelet = self._kubelet.read(self._machine.online, self._machine.offline)
        self._machine = self._machine._replace(kubelet=kubelet, problems=())
        return self._machine

    def _complain(self, result: Machine) -> None:
        """One line for each thing that is wrong with the machine, when it is new."""
        before = self._machine
        if before is not None and before.online == result.online:
            return
        for problem in result.problems:
            log.warning("unreadable path=%s reason=%r", problem.path, problem.reason)
        counted = psutil.cpu_count(logical=True)
        if str(self._settings.root) == "/" and counted and counted != cpuset.count(result.online):
            log.warning("CPU counts differ sysfs=%d sysconf=%d", cpuset.count(result.online), counted)
        if not result.online:
            log.error("no online CPU found root=%s", self._settings.root)


def run(settings: AgentSettings) -> int:
    """Runs the agent until SIGTERM or SIGINT; the exit status. Raises ConfigError where no API server can be found."""
    if settings.kubeconfig is not None:
        endpoint = client.from_kubeconfig(settings.kubeconfig, settings.context)
    else:
        endpoint = client.in_cluster()
    agent = Agent(settings, endpoint)

    def finish(signum: int, frame: object) -> None:  # noqa: ARG001 (the signature of a signal handler)
        agent.finish()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, finish)
    log.info("started node=%s root=%s", settings.node_name, settings.root)
    agent.run()
    log.info("stopped node=%s", settings.node_name)
    return 0

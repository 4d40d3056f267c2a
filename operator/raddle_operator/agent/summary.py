"""Writes what runs on the node, summed up, into the status of its NodeCPUTopology: only a difference, and not often."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from raddle_operator.agent.client import FAILURES, AgentClient
from raddle_operator.agent.reflector import Backoff
from raddle_operator.effective.running import Summary
from raddle_operator.objects import nodetopology
from raddle_operator.objects.nodereport import NodeReport
from raddle_operator.objects.running import to_document

log = logging.getLogger(__name__)

# Not that of the spec: a server-side apply takes away what its manager no longer says.
FIELD_MANAGER: Final = "raddle-agent-running"
EVERY_S: Final = 10.0
"""The least time between two writes."""


class SummaryWriter:
    """`take` each report as it comes, or `give_up` where the agent doesn't look; `write` when the object may differ.

    Until one of the first two has told it something it writes nothing. They may be called by another thread.
    """

    def __init__(
        self,
        api: AgentClient,
        path: str,
        node_name: str,
        backoff: Backoff,
        *,
        every_s: float = EVERY_S,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """`path` is the object's, without `/status`."""
        self._api = api
        self._path = f"{path}/status"
        self._name = node_name
        self._backoff = backoff
        self._every_s = every_s
        self._now_s = now_s
        self._next_s = 0.0
        self._summary = Summary()
        # None: not known yet; of one: what should be there, None for nothing.
        self._wanted: tuple[dict[str, Any] | None] | None = None
        # What was written, and what the server made of it: a schema that drops a field makes no loop.
        self._accepted: tuple[Any, Any] = (None, None)

    def take(self, report: NodeReport | None) -> None:
        """Takes the next report, with its findings; None, a sample that failed, changes nothing."""
        said = self._summary.take(report) if report is not None else None
        if said is not None:
            self._wanted = (to_document(said),)

    def give_up(self) -> None:
        """Has what an earlier agent has written taken away."""
        self._wanted = (None,)

    def write(self, live: Mapping[str, Any] | None) -> float | None:
        """Makes the object say what was taken last; the seconds after which to call again, None where nothing waits.

        `live` is the object as it is on the server, None where it is not there yet. No refusal is raised.
        """
        if live is None or self._wanted is None:
            return None
        (wanted,), there = self._wanted, _running(live)
        if there == wanted or (wanted, there) == self._accepted:
            return None
        if (wait_s := self._next_s - self._now_s()) > 0:
            return wait_s
        status = {} if wanted is None else {"running": wanted}
        body = {
            "apiVersion": nodetopology.API_VERSION,
            "kind": nodetopology.KIND,
            "metadata": {"name": self._name},
            "status": status,
        }
        try:
            answer = self._api.apply(self._path, body, FIELD_MANAGER)
        except FAILURES as error:
            pause_s = self._backoff.pause_s()
            log.warning("summary not written node=%s retry_s=%.1f error=%r", self._name, pause_s, str(error))
        else:
            self._backoff.reset()
            self._accepted = (wanted, _running(answer))
            pause_s = self._every_s
        # Until the watch has shown it what is there is still the old one.
        self._next_s = self._now_s() + pause_s
        return pause_s


def _running(obj: Mapping[str, Any]) -> Any:
    return (obj.get("status") or {}).get("running")

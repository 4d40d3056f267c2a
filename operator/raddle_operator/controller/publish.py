"""The one place that writes: a status by server-side apply where it differs, and the events that go with a change."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from raddle_operator.controller import metrics
from raddle_operator.controller.freshness import FRESH, VALID
from raddle_operator.controller.status import ACCEPTED, DEGRADED, DRIFTED, READY, TUNED, status_matches
from raddle_operator.jobs.status import INCONCLUSIVE, RUNNING
from raddle_operator.kube import Conflict, Kube, KubeError, NotFound, Object, Resource
from raddle_operator.kube.events import Recorder, Reference
from raddle_operator.kube.informer import Key

log = logging.getLogger(__name__)

FIELD_MANAGER: Final = "raddle-controller"
_EXPECTED: Final[Mapping[str, str]] = {
    ACCEPTED: "True",
    READY: "True",
    DEGRADED: "False",
    TUNED: "True",
    DRIFTED: "False",
    FRESH: "True",
    VALID: "True",
    RUNNING: "False",
    INCONCLUSIVE: "False",
}
_NOT_ALARMING: Final = frozenset(
    {"NoPodsMatched", "SpinningNotControlled", "NodeGone", "NoPodsYet", "NotTuned", "Measuring"}
)
# Steps on the way, which are not worth an event.
_SILENT: Final = frozenset({"NotMeasuredYet", "Waiting"})
# As it should not be, whatever the condition's status is.
_TROUBLE: Final = frozenset({"Blocked"})


class StatusWriter:
    """Writes the status of our own kinds, and says how long the next write of one object has to wait."""

    def __init__(
        self,
        kube: Kube,
        recorder: Recorder,
        *,
        interval_s: float,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._kube = kube
        self._recorder = recorder
        self._interval_s = interval_s
        self._now_s = now_s
        self._written: dict[tuple[str, Key], tuple[int, float]] = {}

    def wait_s(self, resource: Resource, key: Key, generation: int) -> float:
        """How long to wait before this object's status may be written again; 0 when it may be now.

        Who has just changed the object is told at once: only a generation that has a status of ours waits.
        """
        written, written_s = self._written.get((resource.kind, key), (generation, -math.inf))
        return max(0.0, written_s + self._interval_s - self._now_s()) if written == generation else 0.0

    def forget(self, resource: Resource, key: Key) -> None:
        """Drops what is remembered about an object that is gone."""
        self._written.pop((resource.kind, key), None)

    async def write(
        self, resource: Resource, key: Key, uid: str, previous: Mapping[str, Any], wanted: Mapping[str, Any]
    ) -> Object | None:
        """Makes the object's status say ``wanted``; returns the object as stored, None where nothing was written.

        An object that is gone, or was created again, is nobody's error. Raises KubeError for what may pass.
        """
        if status_matches(previous, wanted):
            return None
        metadata = {"name": key[1], "uid": uid, **({"namespace": key[0]} if key[0] else {})}
        try:
            body = {"metadata": metadata, "status": dict(wanted)}
            stored = await self._kube.apply_status(resource, body, field_manager=FIELD_MANAGER)
        except (NotFound, Conflict) as error:
            log.debug("%s %s is not the cached object: %s", resource.kind, key[1], error)
            metrics.STATUS_WRITES.labels(resource.kind, "gone").inc()
            return None
        except KubeError:
            metrics.STATUS_WRITES.labels(resource.kind, "failed").inc()
            raise
        generation = wanted["conditions"][0]["observedGeneration"]
        self._written[(resource.kind, key)] = (generation, self._now_s())
        metrics.STATUS_WRITES.labels(resource.kind, "written").inc()
        self._announce(Reference.of(resource, stored), previous, wanted)
        return stored

    def _announce(self, regarding: Reference, previous: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
        before = {item.get("type"): item for item in previous.get("conditions") or ()}
        for item in wanted["conditions"]:
            old = before.get(item["type"], {})
            if (old.get("status"), old.get("reason")) == (item["status"], item["reason"]):
                continue
            good = item["status"] == _EXPECTED[item["type"]] and item["reason"] not in _TROUBLE
            if item["reason"] in _SILENT:
                continue
            if good and old.get("status") in (None, item["status"]):
                continue  # all is well and was before, or nothing was known before
            warning = not good and item["reason"] not in _NOT_ALARMING
            self._recorder.post(regarding, reason=item["reason"], note=item["message"], warning=warning)

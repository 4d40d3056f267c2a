"""What containers have used, from their own control groups on this machine, of either version."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from e2e import cgroups
from raddle.process import totals


class Usage(NamedTuple):
    """Since a container began: its CPU time, its quota's periods, and those of them in which it was stopped."""

    cpu_us: int = 0
    periods: int = 0
    throttled: int = 0

    def since(self, before: Usage) -> Usage:
        """What was used after `before`."""
        return Usage(*(now - then for now, then in zip(self, before, strict=True)))

    @property
    def throttled_percent(self) -> float | None:
        """The share of periods in which the container was stopped; None where there were none."""
        return 100 * self.throttled / self.periods if self.periods else None


def read(pod: Mapping[str, Any], roots: Iterable[Path] | None = None) -> Usage | None:
    """What the pod's first container has used; None where it has no control group (any more)."""
    found = cgroups.hierarchies(Path("/proc/mounts").read_text()) if roots is None else roots
    used: dict[str, int] = {}
    for root in found:
        used |= totals.read(str(_group(pod, root)), recent=False)
    return Usage(used["cpuUs"], used.get("periods", 0), used.get("throttledPeriods", 0)) if "cpuUs" in used else None


def total(usages: Iterable[Usage]) -> Usage:
    """Their sum."""
    return Usage(*map(sum, zip(*usages, strict=True)))


def _group(pod: Mapping[str, Any], root: Path) -> Path:
    status = pod["status"]
    containers = status.get("containerStatuses") or [{}]
    container = str(containers[0].get("containerID", "")).rpartition("/")[2] or "none"
    # A Guaranteed pod's group lies beside the folders of the other classes.
    qos = {"Burstable": "burstable", "BestEffort": "besteffort"}.get(status.get("qosClass", ""), "")
    return root / cgroups.NAME / qos / f"pod{pod['metadata']['uid']}" / container

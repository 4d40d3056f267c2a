"""What containers have used, from their own control groups on this machine, of either version."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from e2e import cgroups
from raddle import files


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
    result = cgroups.hierarchies(Path("/proc/mounts").read_text()) if roots is None else roots
    used: dict[str, int] = {}
    for root in result:
        used |= _used(_group(pod, root))
    if "usage_usec" not in used:
        return None
    return Usage(used["usage_usec"], used.get("nr_periods", 0), used.get("nr_throttled", 0))


def _used(group: Path) -> dict[str, int]:
    """A control group's totals, by version 2's names; version 1 has them in the folders of two controllers."""
    lines = (line.split() for line in files.text_or_nothing(str(group / "cpu.stat")).splitlines())
    result = {name: int(value) for name, value in lines}
    if used_ns := files.text_or_nothing(str(group / "cpuacct.usage")).strip():
        result["usage_usec"] = int(used_ns) // 1000
    return result


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

"""What containers have used, from their own control groups on this machine, of either version."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from e2e import cgroups


class Usage(NamedTuple):
    """Since a container began: its CPU time, its quota's periods, and those of them in which it was stopped."""

    cpu_s: float = 0.0
    periods: int = 0
    throttled: int = 0

    def since(self, before: Usage) -> Usage:
        """What was used after `before`."""
        cpu_s, periods, throttled = before
        return Usage(self.cpu_s - cpu_s, self.periods - periods, self.throttled - throttled)

    @property
    def throttled_percent(self) -> float | None:
        """The share of periods in which the container was stopped; None where there were none."""
        return 100 * self.throttled / self.periods if self.periods else None


def read(pod: Mapping[str, Any], roots: Iterable[Path] | None = None) -> Usage | None:
    """What the pod's first container has used; None where it has no control group (any more)."""
    found = cgroups.hierarchies(Path("/proc/mounts").read_text()) if roots is None else list(roots)
    groups = [group for root in found if (group := _group(pod, root)).is_dir()]
    texts = {file: text for file in ("cpu.stat", "cpuacct.usage") if (text := _first(groups, file))}
    return parse(texts.get("cpu.stat", ""), texts.get("cpuacct.usage", "")) if texts else None


def parse(stat: str, usage_ns: str) -> Usage:
    """From the text of cpu.stat, and of cpuacct.usage (version 1; "" where cpu.stat has the CPU time)."""
    counts = {name: int(value) for name, value in (line.split() for line in stat.splitlines())}
    cpu_s = int(usage_ns) / 1e9 if usage_ns else counts.get("usage_usec", 0) / 1e6
    return Usage(cpu_s, counts.get("nr_periods", 0), counts.get("nr_throttled", 0))


def total(usages: Iterable[Usage]) -> Usage:
    """Their sum."""
    found = list(usages)
    cpu_s = sum(one.cpu_s for one in found)
    return Usage(cpu_s, sum(one.periods for one in found), sum(one.throttled for one in found))


def _group(pod: Mapping[str, Any], root: Path) -> Path:
    status = pod["status"]
    containers = status.get("containerStatuses") or [{}]
    container = str(containers[0].get("containerID", "")).rpartition("/")[2] or "none"
    # A Guaranteed pod's group lies beside the folders of the other classes.
    qos = {"Burstable": "burstable", "BestEffort": "besteffort"}.get(status.get("qosClass", ""), "")
    return root / cgroups.NAME / qos / f"pod{pod['metadata']['uid']}" / container


def _first(groups: Iterable[Path], file: str) -> str:
    for group in groups:
        try:
            return (group / file).read_text()
        except OSError:
            continue
    return ""

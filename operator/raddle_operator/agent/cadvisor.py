"""The kubelet's /metrics/cadvisor: a node's whole text, of which a few lines of each governed container are wanted."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from typing import Final

from raddle_operator.agent.samples import Counters

PATH: Final = "/metrics/cadvisor"
ACCEPT: Final = "text/plain;version=0.0.4"

_PREFIX: Final = b"container_"
# What it is called there -> what it becomes; the last two make the quota.
_WANTED: Final = {
    b"container_cpu_usage_seconds_total": "used_s",
    b"container_cpu_cfs_periods_total": "periods",
    b"container_cpu_cfs_throttled_periods_total": "throttled_periods",
    b"container_cpu_cfs_throttled_seconds_total": "throttled_s",
    b"container_pressure_cpu_waiting_seconds_total": "waiting_s",
    b"container_processes": "processes",
    b"container_spec_cpu_quota": "quota",
    b"container_spec_cpu_period": "period",
}
# The cgroup's path, which ends in the container's ID by every runtime and driver: .../cri-containerd-ID.scope, .../ID.
_CGROUP: Final = re.compile(rb'[{,]id="[^"]*?([^"/-]+?)(?:\.scope)?"')
# A value, and the time in ms at which the kubelet has read it.
_SAMPLE: Final = re.compile(rb"\} ([0-9.eE+-]{1,40})(?: ([0-9]{1,20}))?\s*")


def parse(lines: Iterable[bytes], wanted: Collection[str], now_s: float) -> dict[str, Counters]:
    """The container's ID -> its counters, of those wanted; `now_s` is the time of values that carry none."""
    ids = {key.encode() for key in wanted}
    values: dict[str, dict[str, float]] = {}
    times: dict[str, float] = {}
    for line in lines:
        if not line.startswith(_PREFIX):
            continue
        field = _WANTED.get(line.partition(b"{")[0])
        if field is None:
            continue
        cgroup = _CGROUP.search(line)
        # A label's value may hold what ends a set of labels.
        sample = _SAMPLE.fullmatch(line, line.rfind(b"}"))
        if cgroup is None or sample is None or cgroup[1] not in ids:
            continue
        try:
            value = float(sample[1])
        except ValueError:
            continue
        key = cgroup[1].decode()
        values.setdefault(key, {})[field] = value
        if field == "used_s":
            times[key] = int(sample[2]) / 1000 if sample[2] else now_s
    return {key: _counters(item, times[key]) for key, item in values.items() if key in times}


def _counters(result: dict[str, float], at_s: float) -> Counters:
    quota, period = result.get("quota", 0.0), result.get("period", 0.0)
    return Counters(
        at_s=at_s,
        used_s=result.get("used_s"),
        periods=_whole(result.get("periods")),
        throttled_periods=_whole(result.get("throttled_periods")),
        throttled_s=result.get("throttled_s"),
        # With control groups of version 1, which have no such counter, the kubelet says 0 of all containers.
        waiting_s=result.get("waiting_s") or None,
        quota_cpus=quota / period if quota > 0 and period > 0 else None,
        # 0 is what it says of all where it doesn't count them: a container that runs has one.
        processes=_whole(max(0.0, result.get("processes", 0.0))) or None,
    )


def _whole(value: float | None) -> int | None:
    return None if value is None else int(value)

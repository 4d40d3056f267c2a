"""CPU time and throttling of containers, as the kubelet's cAdvisor and Prometheus tell them, as numbers. Pure.

cAdvisor counts from a container's start, so one look at it gives means since then.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from raddle_operator.objects.reading import SpecError, as_object, mapping, sequence

Key = tuple[str, str, str]
"""Namespace, pod, container."""

USED: Final = "container_cpu_usage_seconds_total"
PERIODS: Final = "container_cpu_cfs_periods_total"
THROTTLED: Final = "container_cpu_cfs_throttled_periods_total"
STARTED: Final = "container_start_time_seconds"
_LINE: Final = re.compile(rb"(" + f"{USED}|{PERIODS}|{THROTTLED}|{STARTED}".encode() + rb")\{(.*)\} (\S+)(?: \d+)?")
_LABEL: Final = re.compile(rb'(namespace|pod|container|cpu)="((?:[^"\\]|\\.)*)"')


class Usage(NamedTuple):
    """What one container has used: CPUs on average, and periods of its CPU limit, in so many of them throttled."""

    used_cpus: float
    periods: float = 0.0
    throttled_periods: float = 0.0


class Node:
    """What the lines of a kubelet's /metrics/cadvisor say of some containers."""

    def __init__(self, wanted: Mapping[Key, Any], now_s: float) -> None:
        """`now_s` is the time in seconds since 1970."""
        self._wanted = wanted
        self._now_s = now_s
        self._found: dict[Key, dict[str, float]] = {}

    def read(self, line: bytes) -> None:
        """Takes a line; what is no sample of a wanted container's CPU is left out."""
        if not line.startswith(b"container_"):
            return
        matched = _LINE.fullmatch(line.strip())
        if matched is None:
            return
        labels = dict(_LABEL.findall(matched[2]))
        key = (_text(labels, b"namespace"), _text(labels, b"pod"), _text(labels, b"container"))
        if key not in self._wanted or labels.get(b"cpu", b"total") != b"total":
            return
        value = _number(matched[3])
        if value is not None:
            self._found.setdefault(key, {})[matched[1].decode()] = value

    def usages(self) -> Iterator[tuple[Key, Usage]]:
        """Yields the containers of which the CPU time and its beginning are known."""
        for key, values in self._found.items():
            since_s = self._now_s - values.get(STARTED, self._now_s)
            if USED in values and since_s > 0:
                used_cpus = values[USED] / since_s
                yield key, Usage(used_cpus, values.get(PERIODS, 0.0), values.get(THROTTLED, 0.0))


def _text(labels: Mapping[bytes, bytes], name: bytes) -> str:
    return labels.get(name, b"").decode("utf-8", "replace")


def _number(text: bytes) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 0 <= value < float("inf") else None


def queries(namespaces: Sequence[str], window: str) -> Mapping[str, str]:
    """What to ask Prometheus about these namespaces' containers: metric -> query. `window` is PromQL's, 1h."""
    # Names of namespaces have no character that is special to RE2 or in a text.
    chosen = f'{{namespace=~"{"|".join(namespaces)}",container!="",container!="POD"}}'
    by = "sum by (namespace,pod,container)"
    return {
        # A rate of the whole window would count the time before a pod was there.
        USED: f"{by} (avg_over_time(rate({USED}{chosen}[5m])[{window}:5m]))",
        PERIODS: f"{by} (increase({PERIODS}{chosen}[{window}]))",
        THROTTLED: f"{by} (increase({THROTTLED}{chosen}[{window}]))",
    }


def of_prometheus(answers: Mapping[str, Any]) -> Iterator[tuple[Key, Usage]]:
    """Yields what Prometheus has answered to `queries`, by their names. Raises SpecError for what is no such answer."""
    result: dict[Key, dict[str, float]] = {}
    for metric, answer in answers.items():
        data = mapping(as_object(answer, "answer"), "data", "")
        for one in sequence(data, "result", "data"):
            series = as_object(one, "data.result")
            labels, value = mapping(series, "metric", "data.result"), sequence(series, "value", "data.result")
            number = _number(str(value[-1]).encode()) if len(value) == 2 else None
            if number is None:
                raise SpecError("data.result", "has a series without a number")
            key = tuple(str(labels.get(name, "")) for name in ("namespace", "pod", "container"))
            result.setdefault((key[0], key[1], key[2]), {})[metric] = number
    for key, values in result.items():
        if USED in values:
            yield key, Usage(values[USED], values.get(PERIODS, 0.0), values.get(THROTTLED, 0.0))

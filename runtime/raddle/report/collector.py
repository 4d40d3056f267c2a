"""The sessions as metrics of the program itself, where it has loaded prometheus_client: docs/reference/metrics.md.

They are in the default registry, of which a program's own /metrics are made. In multiprocess mode that is another
thing, made of files that all processes share: it is left alone.
"""

from __future__ import annotations

import os
import sys
from typing import Any, Iterable

from raddle import errors
from raddle.report import groups

_MULTIPROCESS = ("PROMETHEUS_MULTIPROC_DIR", "prometheus_multiproc_dir")
# The registry that has the collector: a forked child's has it too.
_offered: list[Any] = []


def offer() -> None:
    """Registers the collector, once a registry. Raises ValueError where the program has metrics of the same names."""
    if any(name in os.environ for name in _MULTIPROCESS):
        return
    # Each is there only once its module is: another thread may be in the middle of the import.
    registry = getattr(sys.modules.get("prometheus_client"), "REGISTRY", None)
    core = sys.modules.get("prometheus_client.metrics_core")
    if registry is None or not hasattr(core, "HistogramMetricFamily") or registry in _offered:
        return
    # Before it is registered: what is refused once is not tried again.
    _offered.append(registry)
    registry.register(Collector(core))


class Collector:
    """What prometheus_client asks for metrics; `core` is its module metrics_core."""

    def __init__(self, core: Any) -> None:
        self.core = core

    def describe(self) -> Iterable[Any]:
        """The names, which the registry compares with those that it has."""
        return self.families([])

    def collect(self) -> Iterable[Any]:
        """The metrics now; () where they can't be made."""
        try:
            return self.families(groups.read())
        except Exception as error:
            errors.let_through(error)
            return ()

    def families(self, result: Iterable[groups.Group]) -> Iterable[Any]:
        """The metrics of these groups."""
        made: dict[str, int] = {}
        threads: dict[tuple[str, str], int] = {}
        runs: dict[str, tuple[list[int], int]] = {}
        for one in result:
            made[one.runtime] = made.get(one.runtime, 0) + one.alike
            if one.threads is not None:
                labels = (one.runtime, one.source)
                threads[labels] = threads.get(labels, 0) + one.alike * one.threads
            if one.counts is not None:
                counts, total_ns = runs.get(one.runtime, ([0] * len(one.counts), 0))
                runs[one.runtime] = [a + b for a, b in zip(counts, one.counts)], total_ns + one.total_ns
        number = self.core.GaugeMetricFamily(
            "raddle_sessions", "Sessions that this process has made, of the newest 256", labels=("runtime",)
        )
        for runtime, count in made.items():
            number.add_metric((runtime,), count)
        sizes = self.core.GaugeMetricFamily(
            "raddle_session_threads",
            "Threads of these sessions together, by who has set them: plan or code",
            labels=("runtime", "source"),
        )
        for labels, count in threads.items():
            sizes.add_metric(labels, count)
        seconds = self.core.HistogramMetricFamily(
            "raddle_session_run_seconds", "Run times of these sessions", labels=("runtime",)
        )
        for runtime, (counts, total_ns) in runs.items():
            seconds.add_metric((runtime,), list(_cumulative(counts)), total_ns / 1e9)
        return number, sizes, seconds


def _cumulative(counts: list[int]) -> Iterable[tuple[str, int]]:
    """(upper bound in seconds, runs not longer than that)."""
    so_far = 0
    for exponent, count in groups.buckets(counts):
        so_far += count
        yield repr(2**exponent / 1e9), so_far
    yield "+Inf", sum(counts)

"""What a tuning aims at."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum, unique


@unique
class Kind(StrEnum):
    """LATENCY: the lowest p99 at a rate. THROUGHPUT: the most requests a second. COST: the least CPU a request."""

    LATENCY = "Latency"
    THROUGHPUT = "Throughput"
    COST = "Cost"


@dataclass(frozen=True, slots=True, kw_only=True)
class Objective:
    """`rate` is requests a second (needed for LATENCY and COST); `p99_ms` the bound that p99 must keep, None: none."""

    kind: Kind
    rate: float | None = None
    p99_ms: float | None = None

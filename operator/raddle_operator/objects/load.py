"""The load that was observed of a policy's containers, as statuses have it: a value for its spec.load."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Final

from raddle.planning.kinds import PolicyError, read_count
from raddle.planning.policy import FIELDS

_RUN_TIME: Final = FIELDS["run_time_us"]
_RATE: Final = FIELDS["request_rate"]
_MOST_CONTAINERS: Final = (1 << 31) - 1
# A number that is this many times another is another one.
_ANOTHER_TIMES: Final = 1.25
_UNITS_US: Final = {"s": 1_000_000, "ms": 1_000}


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedLoad:
    """How long a run takes on one thread, at most, and how many come a second to one of so many busy containers."""

    run_time_us: int
    request_rate: float
    containers: int = 1


def middle(loads: Collection[ObservedLoad]) -> ObservedLoad | None:
    """What the median container has, of each number by itself, with two digits; None without any.

    Each counts as often as it has containers: few that say something else change nothing.
    """
    if not loads:
        return None
    run_time_us = _median([(one.run_time_us, one.containers) for one in loads])
    rate = _median([(one.request_rate, one.containers) for one in loads])
    return ObservedLoad(
        run_time_us=round(_rounded(run_time_us, _RUN_TIME.allowed)),
        request_rate=_rounded(rate, (1e-6, _RATE.allowed[1])),
        containers=min(_MOST_CONTAINERS, sum(one.containers for one in loads)),
    )


def _median(weighted: list[tuple[float, int]]) -> float:
    ordered = sorted(weighted)
    half = sum(weight for _, weight in ordered) / 2
    sums = accumulate(weight for _, weight in ordered)
    return next(value for (value, _), so_far in zip(ordered, sums, strict=True) if so_far >= half)


def _rounded(value: float, bounds: tuple[float, float]) -> float:
    least, most = bounds
    return float(f"{min(most, max(least, value)):.2g}")


def held(before: ObservedLoad | None, now: ObservedLoad | None) -> ObservedLoad | None:
    """What to say now: as before while nothing differs by a quarter, or nothing is known now."""
    if before is None or now is None:
        return now or before
    pairs = (
        (before.run_time_us, now.run_time_us),
        (before.request_rate, now.request_rate),
        (before.containers, now.containers),
    )
    return before if all(max(pair) < _ANOTHER_TIMES * min(pair) for pair in pairs) else now


def to_document(load: ObservedLoad) -> dict[str, Any]:
    """The load as it is written."""
    rate = load.request_rate
    return {
        "runTime": _duration(load.run_time_us),
        # As the API server gives it back.
        "requestsPerSecond": int(rate) if rate.is_integer() else rate,
        "containers": load.containers,
    }


def _duration(time_us: int) -> str:
    """A duration of the spec, exactly: it takes three digits after the point."""
    for unit, unit_us in _UNITS_US.items():
        if time_us >= unit_us and time_us * 1000 % unit_us == 0:
            return f"{time_us / unit_us:.3f}".rstrip("0").rstrip(".") + unit
    return f"{time_us}us"


def read(parent: Any) -> ObservedLoad | None:
    """The `load` of a status or of a part of one; None where there is none, or one that can't be read."""
    result = parent.get("load") if isinstance(parent, Mapping) else None
    if not isinstance(result, Mapping):
        return None
    try:
        return ObservedLoad(
            run_time_us=_RUN_TIME.read("runTime", result.get("runTime"), _RUN_TIME.allowed),
            request_rate=_RATE.read("requestsPerSecond", result.get("requestsPerSecond"), _RATE.allowed),
            containers=read_count("containers", result.get("containers"), (1, _MOST_CONTAINERS)),
        )
    except PolicyError:
        return None

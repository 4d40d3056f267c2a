"""The tables of the autoscalers' runs, in Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from e2e import experiment
from e2e.experiment import Horizontal, Round, Served
from report import markdown_table

HORIZONTAL_HEADINGS = ("", "without Raddle", "with Raddle")
VERTICAL_HEADINGS = (
    *("", "round", "threads", "request", "limit", "CPU used", "VPA's target"),
    *("p50, ms", "p99, ms", "failed", "throttled"),
)


def horizontal(stock: Horizontal, raddle: Horizontal) -> str:
    """A column a variant: with one replica, then with what the HPA made of it."""
    both = (stock, raddle)
    rows = [
        ("threads of the session", *(str(one.threads) for one in both)),
        *_served("one replica", [one.alone for one in both]),
        ("utilization that the HPA saw first", *(_percent(one.first_percent) for one in both)),
        (f"replicas that it wants in the end, at most {experiment.MOST_REPLICAS}", *(f"{o.replicas}" for o in both)),
        ("utilization that it saw last", *(_percent(one.last_percent) for one in both)),
        *_served("in the end", [one.last for one in both]),
    ]
    return _load() + markdown_table(HORIZONTAL_HEADINGS, rows)


def vertical(variants: Mapping[str, Sequence[Round]]) -> str:
    """A row a round of each variant."""
    rows = [
        (
            *(variant, str(number), str(one.threads), f"{one.request_m}m", f"{one.limit_m}m"),
            *(f"{one.served.cpu_m:.0f}m", f"{one.target_m}m"),
            *(_ms(one.served.p50_ms), _ms(one.served.p99_ms)),
            *(str(one.served.failed), _percent(one.served.throttled_percent)),
        )
        for variant, rounds in variants.items()
        for number, one in enumerate(rounds, 1)
    ]
    return _load() + markdown_table(VERTICAL_HEADINGS, rows)


def _load() -> str:
    return (
        f"{experiment.RATE_PER_S:g} requests a second in all. The first request and limit are {experiment.REQUEST_M}m "
        f"and {experiment.LIMIT_M}m; the HPA's target is {experiment.TARGET_PERCENT} % of the request.\n\n"
    )


def _served(when: str, served: Sequence[Served]) -> list[tuple[str, ...]]:
    return [
        (f"{when}: CPU used by all", *(f"{one.cpu_m:.0f}m" for one in served)),
        (f"{when}: p50, ms", *(_ms(one.p50_ms) for one in served)),
        (f"{when}: p99, ms", *(_ms(one.p99_ms) for one in served)),
        (f"{when}: failed requests", *(f"{one.failed} of {one.requests}" for one in served)),
        (f"{when}: periods throttled", *(_percent(one.throttled_percent) for one in served)),
    ]


def _ms(number: float | None) -> str:
    return "-" if number is None else f"{number:.1f}"


def _percent(number: float | None) -> str:
    return "-" if number is None else f"{number:.0f} %"

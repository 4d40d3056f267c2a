"""The load table."""

from __future__ import annotations


def rate_of(share_percent: int, limit_cpus: float, service_s: float) -> float:
    """Requests a second that take this share of the limit with one thread."""
    return float(f"{share_percent / 100 * limit_cpus / service_s:.4g}")

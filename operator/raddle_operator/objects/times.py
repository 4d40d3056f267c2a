"""RFC 3339 times of the Kubernetes API, as whole seconds since the epoch."""

from __future__ import annotations

from datetime import UTC, datetime


def epoch_s(text: str) -> int:
    """The time that a metav1.Time such as ``2026-11-21T10:00:00Z`` says. Raises ValueError."""
    return int(datetime.fromisoformat(text).timestamp())


def rfc3339(seconds: float) -> str:
    """A metav1.Time."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

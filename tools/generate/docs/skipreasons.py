"""Makes docs/reference/skip-reasons.md from the one enumeration of reasons."""

from __future__ import annotations

from raddle_operator.objects.reasons import SkipReason

HEADER = """\
<!-- Made by `make generate` (tools/generate/docs/skipreasons.py) from operator/raddle_operator/objects/reasons.py:
edit that, not this page. -->

# Skip reasons

A skip reason says why a pod or container has no values, or only some. The webhook's log line, its audit annotation, the
[metrics' labels](metrics.md), a policy's status, its events and `raddle explain` use the same reason for the same pod
(`tests/raddle_operator/test_reasons.py`). There are two exceptions: CachesNotReady and NamespaceUnknown are temporary,
and later the status and `raddle explain` report WebhookMissed instead.

| reason | meaning | what to do |
|---|---|---|
"""


def render() -> str:
    """The page, as Markdown."""
    return HEADER + "".join(f"| {reason} | {reason.about} | {reason.advice} |\n" for reason in SkipReason)

"""Makes docs/reference/skip-reasons.md from the one enumeration of reasons."""

from __future__ import annotations

from raddle_operator.objects.reasons import SkipReason

HEADER = """\
<!-- Made by `make generate` (tools/generate/docs/skipreasons.py) from operator/raddle_operator/objects/reasons.py:
edit that, not this page. -->

# Skip reasons

One enumeration (`operator/raddle_operator/objects/reasons.py`) for the webhook's log line, its audit annotation, the
[metrics' labels](metrics.md), a policy's status, its events and `raddle explain`: all of them say the same of the same
pod (`tests/raddle_operator/test_reasons.py`). Only CachesNotReady and NamespaceUnknown are of a moment: asked later,
status and `raddle explain` say WebhookMissed.

| reason | what it is about | what to do |
|---|---|---|
"""


def render() -> str:
    """The page, as Markdown."""
    return HEADER + "".join(f"| {reason} | {reason.about} | {reason.advice} |\n" for reason in SkipReason)

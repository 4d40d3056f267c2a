"""What becomes of a review, and AdmissionReviews out: an answer that always allows.

An answer is built from bytes, because it holds nothing but a uid, an encoded patch and short texts.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from enum import StrEnum, unique
from typing import Any, Final, Literal, NamedTuple, NewType

import orjson

from raddle_operator.injection.binding import BindingOutcome
from raddle_operator.injection.decide import Decision
from raddle_operator.objects.reasons import SkipReason
from raddle_operator.webhook.review import UnsupportedReview

MAX_WARNINGS: Final = 3
MAX_WARNING_CHARACTERS: Final = 256
"""The API server cuts warnings off at 256 characters when there are many."""
MISTAKES: Final = frozenset(
    (
        SkipReason.POLICY_NOT_FOUND,
        SkipReason.TOO_MANY_POLICIES,
        SkipReason.CONTAINER_NOT_FOUND,
        SkipReason.ANNOTATION_BUDGET,
    )
)
"""What anyone who creates the pod can mend, and is told as a warning."""
MAX_DETAIL: Final = 1024

_HEAD: Final = b'{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{"allowed":true,"uid":'
_PATCH: Final = b',"patchType":"JSONPatch","patch":"'

ErrorName = NewType("ErrorName", str)
"""The type of an exception of ours."""
Reason = SkipReason | BindingOutcome | UnsupportedReview | ErrorName | Literal[""]


@unique
class Outcome(StrEnum):
    """What was decided on a review. The value is what the log and the metric's label show."""

    CHANGED = "changed"
    UNCHANGED = "unchanged"
    SKIPPED = "skipped"
    FOREIGN = "foreign"
    FAILED_OPEN = "failed_open"


class Verdict(NamedTuple):
    """What becomes of one review: the words for metric, log and audit log, and the answer but for the uid.

    `withheld` is why containers that get values do not get all of them, each reason once.
    """

    decision: Outcome
    reason: Reason
    detail: str
    withheld: tuple[SkipReason, ...]
    rest: bytes


def of(
    decision: Outcome,
    reason: Reason = "",
    detail: str = "",
    *,
    withheld: tuple[SkipReason, ...] = (),
    operations: Sequence[dict[str, Any]] = (),
    warnings: Sequence[str] = (),
) -> Verdict:
    """The verdict with these JSON-patch operations.

    `warnings` reach anyone who creates the object (at most 3 are sent, each cut at 256 characters); decision and reason
    are written to the API server's audit log as <webhook's name>/decision.
    """
    parts = []
    if operations:
        parts += [_PATCH, b64encode(orjson.dumps(operations)), b'"']
    if warnings:
        parts += [b',"warnings":', orjson.dumps([_clean(text) for text in warnings[:MAX_WARNINGS]])]
    audit = _clean(f"{decision} {reason}".rstrip())
    parts += [b',"auditAnnotations":{"decision":', orjson.dumps(audit), b"}}}"]
    return Verdict(decision, reason, detail, withheld, b"".join(parts))


def of_pod(decision: Decision) -> Verdict:
    """The verdict on a pod, with a warning of each mistake that anyone who creates the pod can mend."""
    reference = decision.policy.reference if decision.policy is not None else ""
    skips = [one.skip for one in decision.containers if one.skip is not None and one.skip != decision.skip]
    if decision.skip is not None:
        skips.insert(0, decision.skip)
    warnings = [f"raddle: {skip}" for skip in skips if skip.reason in MISTAKES]
    operations = decision.operations
    if decision.skip is not None:
        detail = f"{reference} {decision.skip.detail}".lstrip()
        return of(Outcome.SKIPPED, decision.skip.reason, detail, operations=operations, warnings=warnings)
    # What a pod that got values did not get, in words; and each reason once, those of containers that get nothing too.
    words = [f"{one.name}: {skip}" for one in decision.containers for skip in one.withheld]
    reasons = [skip.reason for one in decision.containers for skip in (one.skip, *one.withheld) if skip is not None]
    return of(
        Outcome.CHANGED if operations else Outcome.UNCHANGED,
        detail="; ".join([reference, *words])[:MAX_DETAIL],
        withheld=tuple(dict.fromkeys(reasons)) if operations else (),
        operations=operations,
        warnings=warnings,
    )


def answer(uid: str, result: Verdict) -> bytes:
    """The AdmissionReview that allows the object, with the verdict's patch."""
    return b"".join((_HEAD, orjson.dumps(uid), result.rest))


def _clean(text: str) -> str:
    """Text fit for an HTTP Warning header: printable ASCII, bounded."""
    kept = text[: MAX_WARNING_CHARACTERS + 1]
    if not (kept.isascii() and kept.isprintable()):
        kept = "".join(character if " " <= character <= "~" else "?" for character in kept)
    return kept if len(kept) <= MAX_WARNING_CHARACTERS else kept[: MAX_WARNING_CHARACTERS - 3] + "..."

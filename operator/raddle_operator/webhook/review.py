"""AdmissionReview in, AdmissionReview out: reading what may be anything, and writing an answer that always allows.

An answer is built from bytes, because it holds nothing but a uid, an encoded patch and short texts.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from enum import StrEnum, unique
from typing import Any, Final, NamedTuple

import orjson

MAX_WARNINGS: Final = 3
MAX_WARNING_CHARACTERS: Final = 256
"""The API server cuts warnings off at 256 characters when there are many."""
_MAX_UID_CHARACTERS: Final = 256

_HEAD: Final = b'{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{"allowed":true,"uid":'
_PATCH: Final = b',"patchType":"JSONPatch","patch":"'
# Group, version, resource, subresource.
POD: Final = (("", "v1", "pods", ""),)
# By pods/binding or the legacy bindings.
BINDING: Final = (("", "v1", "pods", "binding"), ("", "v1", "bindings", ""))


@unique
class UnsupportedReview(StrEnum):
    """Why a review is none of ours. The value is what the log and the metric's label show."""

    NOT_A_REVIEW = "NotAReview"
    NO_REQUEST = "NoRequest"
    NO_UID = "NoUID"
    KIND = "ForeignKind"
    RESOURCE = "ForeignResource"
    OPERATION = "ForeignOperation"
    MALFORMED_REQUEST = "MalformedRequest"


class UnreadableError(ValueError):
    """A body that is no JSON, so that there is no uid to answer to."""


class Review(NamedTuple):
    """One request to admit an object.

    `name` is "" at CREATE of a pod whose name the API server is still to generate. `problem` says why the review
    can't be acted on (None where it can); then the other fields but `uid` may be empty.
    """

    uid: str
    namespace: str = ""
    name: str = ""
    obj: Any = None
    problem: UnsupportedReview | None = None


def read(body: bytes, resources: tuple[tuple[str, str, str, str], ...]) -> Review:
    """The review of the creation of a POD or BINDING. Raises UnreadableError for what is no JSON."""
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise UnreadableError(str(error)) from None
    if not isinstance(document, dict):
        return Review("", problem=UnsupportedReview.NOT_A_REVIEW)
    request = document.get("request")
    if not isinstance(request, dict):
        return Review("", problem=UnsupportedReview.NO_REQUEST)
    uid = request.get("uid")
    if not isinstance(uid, str) or len(uid) > _MAX_UID_CHARACTERS:
        return Review("", problem=UnsupportedReview.NO_UID)
    if document.get("kind") != "AdmissionReview" or document.get("apiVersion") != "admission.k8s.io/v1":
        return Review(uid, problem=UnsupportedReview.KIND)
    resource = request.get("resource")
    if not isinstance(resource, dict):
        return Review(uid, problem=UnsupportedReview.RESOURCE)
    address = (resource.get("group"), resource.get("version"), resource.get("resource"), request.get("subResource", ""))
    if address not in resources:
        return Review(uid, problem=UnsupportedReview.RESOURCE)
    if request.get("operation") != "CREATE":
        return Review(uid, problem=UnsupportedReview.OPERATION)
    namespace, name = request.get("namespace"), request.get("name", "")
    if not isinstance(namespace, str) or not isinstance(name, str) or not isinstance(request.get("object"), dict):
        return Review(uid, problem=UnsupportedReview.MALFORMED_REQUEST)
    return Review(uid, namespace, name, request["object"])


def answer(uid: str, rest: bytes) -> bytes:
    """The AdmissionReview that allows the object, with what `answer_rest` made."""
    return b"".join((_HEAD, orjson.dumps(uid), rest))


def answer_rest(*, operations: Sequence[dict[str, Any]] = (), warnings: Sequence[str] = (), audit: str = "") -> bytes:
    """What follows the uid in an answer with these JSON-patch operations.

    `warnings` reach anyone who creates the object (at most 3 are sent, each cut at 256 characters); `audit` is written
    to the API server's audit log as <webhook's name>/decision.
    """
    parts = []
    if operations:
        parts += [_PATCH, b64encode(orjson.dumps(operations)), b'"']
    if warnings:
        parts += [b',"warnings":', orjson.dumps([_clean(text) for text in warnings[:MAX_WARNINGS]])]
    if audit:
        parts += [b',"auditAnnotations":{"decision":', orjson.dumps(_clean(audit)), b"}"]
    parts.append(b"}}")
    return b"".join(parts)


def _clean(text: str) -> str:
    """Text fit for an HTTP Warning header: printable ASCII, bounded."""
    kept = text[: MAX_WARNING_CHARACTERS + 1]
    if not (kept.isascii() and kept.isprintable()):
        kept = "".join(character if " " <= character <= "~" else "?" for character in kept)
    return kept if len(kept) <= MAX_WARNING_CHARACTERS else kept[: MAX_WARNING_CHARACTERS - 3] + "..."

"""AdmissionReviews in: bytes that may be anything, read into one value. `verdict` writes the answers."""

from __future__ import annotations

from enum import StrEnum, unique
from typing import Any, Final, NamedTuple

import orjson

_MAX_UID_CHARACTERS: Final = 256
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

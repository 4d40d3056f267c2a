"""What may go wrong between Raddle and the API server, each refusal with a type of its own.

So a caller can tell "gone" from "forbidden" from "try again".
"""

# ruff: noqa: N818 (NotFound, Conflict, Gone: the API's own words read better than with Error after each)
from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final


class KubeError(Exception):
    """Anything that went wrong between us and the API server."""


class ConfigError(KubeError):
    """The kubeconfig or the in-cluster credentials can't be read."""


class ApiError(KubeError):
    """The API server refused: ``status`` is the HTTP code (0: no answer came), ``reason`` its Status object's word."""

    def __init__(self, status: int, reason: str, message: str, *, retry_after_s: float | None = None) -> None:
        """``retry_after_s`` is the Retry-After header, None when absent."""
        super().__init__(f"{status} {reason}: {message}")
        self.status = status
        self.reason = reason
        self.message = message
        self.retry_after_s = retry_after_s


class Unauthorized(ApiError):
    """401: the credentials are unknown or have expired."""


class Forbidden(ApiError):
    """403: the credentials are known and may not do this."""


class NotFound(ApiError):
    """404: no such object, or no such kind."""


class Conflict(ApiError):
    """409: somebody else has changed the object since it was read, or owns the field."""


class AlreadyExists(Conflict):
    """409 on create: an object of this name is there."""


class Gone(ApiError):
    """410: the resource version is too old; list again."""

    continue_token: str = ""
    """Where it was a page of a list: the token by which the rest can be had as it is now; empty where there is none."""


class Invalid(ApiError):
    """400 or 422: the object or the request is wrong; the same request will never pass."""


class Unavailable(ApiError):
    """No answer, a timeout, 429 or 5xx: the same request may pass later."""


class Unreachable(Unavailable):
    """No part of an answer came: what answers next may be another server, or one restored from a backup."""


_BY_STATUS: Final[Mapping[int, type[ApiError]]] = {
    400: Invalid,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: Gone,
    422: Invalid,
    429: Unavailable,
}


def error_from_status(status: int, body: Mapping[str, Any], *, retry_after_s: float | None = None) -> ApiError:
    """The typed error for an HTTP code and the Status object that came with it (empty when none did)."""
    reason = str(body.get("reason") or "Unknown")
    kind = _BY_STATUS.get(status, Unavailable if status >= 500 or status == 0 else ApiError)
    if reason == "AlreadyExists":
        kind = AlreadyExists
    elif reason in ("Expired", "Gone"):
        kind = Gone
    error = kind(status, reason, str(body.get("message") or ""), retry_after_s=retry_after_s)
    metadata = body.get("metadata")
    if isinstance(error, Gone) and isinstance(metadata, Mapping):
        error.continue_token = str(metadata.get("continue") or "")
    return error

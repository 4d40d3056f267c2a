"""A small API client: JSON over one keep-alive TLS connection, for what would take kubectl a process each.

It knows no types; `apply` finds an object's path by discovery.
"""

from __future__ import annotations

import http.client
import json
import select
import socket
import ssl
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlencode, urlsplit

TIMEOUT_SECONDS = 30.0
FIELD_MANAGER = "devcluster"
MERGE_PATCH = "application/merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"
FIRST_ERROR_STATUS = 400
BUSY_ATTEMPTS = 20
BUSY_SECONDS = 0.5

Answer = tuple[int, dict[str, Any]]
"""HTTP status and JSON object."""


class ApiError(RuntimeError):
    """The API server refused a request: `status` is the HTTP status, `reason` its machine-readable reason."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        """Keeps status and reason beside the message."""
        super().__init__(message)
        self.status = status
        self.reason = reason


class Client:
    """Requests to one API server with a client certificate. Those of several threads take turns."""

    def __init__(self, server: str, ca_file: Path, certificate_file: Path, key_file: Path) -> None:
        """Connects at the first request; `server` is such as https://127.0.0.1:6443."""
        parts = urlsplit(server)
        context = ssl.create_default_context(cafile=str(ca_file))
        context.load_cert_chain(certificate_file, key_file)
        self._connection = http.client.HTTPSConnection(
            parts.hostname or "", parts.port, timeout=TIMEOUT_SECONDS, context=context
        )
        self._lock = threading.RLock()
        self._resources: dict[str, dict[str, tuple[str, bool]]] = {}

    def __enter__(self) -> Self:
        """The client itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Closes the connection."""
        self.close()

    def close(self) -> None:
        """Closes the connection; the next request opens another."""
        self._connection.close()

    def request(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        content_type: str = "application/json",
        query: Mapping[str, str] | None = None,
    ) -> dict[str, Any]:
        """Sends one request and returns the answer's JSON object; a busy server (429) is asked again for 10 s.

        An answer that is not JSON (metrics, logs) is returned as {"text": …}.
        Raises ApiError for a status of 400 and above, OSError or http.client.HTTPException when there is no answer.
        """
        content = None if body is None else json.dumps(body).encode()
        headers = {"Accept": "application/json, */*"}
        if content is not None:
            headers["Content-Type"] = content_type
        target = f"{path}?{urlencode(query)}" if query else path
        for _ in range(BUSY_ATTEMPTS):
            with self._lock:
                status, answer = self._exchange(method, target, content, headers)
            if status != http.client.TOO_MANY_REQUESTS:
                break
            # Not carried out: the server has too much to do, or a new kind's storage is not there yet.
            time.sleep(BUSY_SECONDS)
        if status >= FIRST_ERROR_STATUS:
            message = f"{method} {path}: {status} {answer.get('reason', '')}: {answer.get('message') or answer}"
            raise ApiError(status, str(answer.get("reason", "")), message)
        return answer

    def get(self, path: str, **query: str) -> dict[str, Any]:
        """Reads an object or a list."""
        return self.request("GET", path, query=query)

    def post(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Creates an object in the collection `path`."""
        return self.request("POST", path, body)

    def merge(self, path: str, patch: Mapping[str, Any]) -> dict[str, Any]:
        """Patches an object (RFC 7386: null removes, lists are replaced whole)."""
        return self.request("PATCH", path, patch, content_type=MERGE_PATCH)

    def delete(self, path: str, *, missing_ok: bool = False) -> None:
        """Deletes an object at once, without grace."""
        try:
            self.request("DELETE", path, query={"gracePeriodSeconds": "0"})
        except ApiError as error:
            if not (missing_ok and error.status == http.client.NOT_FOUND):
                raise

    def apply(self, manifest: Mapping[str, Any]) -> dict[str, Any]:
        """Creates or updates an object by server-side apply (forced), and returns it."""
        query = {"fieldManager": FIELD_MANAGER, "force": "true"}
        return self.request("PATCH", self.path_of(manifest), manifest, content_type=APPLY_PATCH, query=query)

    def path_of(self, manifest: Mapping[str, Any]) -> str:
        """The path of an object by its apiVersion, kind, namespace (default: `default`) and name.

        Raises ApiError (404) when the API server does not serve this group, version or kind.
        """
        version, kind, metadata = manifest["apiVersion"], manifest["kind"], manifest["metadata"]
        base = f"/apis/{version}" if "/" in version else f"/api/{version}"
        if kind not in self._resources.get(base, {}):
            self._resources[base] = {
                entry["kind"]: (entry["name"], entry["namespaced"])
                for entry in self.get(base)["resources"]
                if "/" not in entry["name"]
            }
        if kind not in self._resources[base]:
            raise ApiError(http.client.NOT_FOUND, "NotFound", f"the API server does not serve kind {kind} in {version}")
        resource, namespaced = self._resources[base][kind]
        namespace = f"/namespaces/{metadata.get('namespace', 'default')}" if namespaced else ""
        return f"{base}{namespace}/{resource}/{metadata['name']}"

    def _exchange(self, method: str, path: str, body: bytes | None, headers: Mapping[str, str]) -> Answer:
        if _is_stale(self._connection.sock):
            self._connection.close()
        reused = self._connection.sock is not None
        try:
            self._connection.request(method, path, body, dict(headers))
            response = self._connection.getresponse()
            content = response.read()
        except (OSError, http.client.HTTPException):
            self._connection.close()
            # The server closed the connection just now; a POST could have been carried out.
            if not reused or method == "POST":
                raise
            return self._exchange(method, path, body, headers)
        # Metrics and logs; a proxy or the server's own panic handler may answer in plain text too.
        if response.headers.get_content_type() != "application/json":
            return response.status, {"text": content.decode(errors="replace")}
        return response.status, json.loads(content)


def _is_stale(connection: socket.socket | None) -> bool:
    """Whether the server has closed an idle connection: then, and only then, it is readable."""
    return connection is not None and bool(select.select([connection], [], [], 0)[0])

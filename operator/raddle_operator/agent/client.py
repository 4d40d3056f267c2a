"""A client of the API server that weighs little: http.client, ssl and nothing else, for one process on every node.

It makes few requests, each on a connection of its own, and keeps watches. Two ways to say who it is: the
pod's service account (token and authority are read again for each request, as both rotate), or a kubeconfig
with a token or a client certificate.
"""

from __future__ import annotations

import base64
import binascii
import http.client
import json
import os
import ssl
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode, urlsplit

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
JSON = "application/json"
METADATA = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
METADATA_LIST = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
APPLY = "application/apply-patch+yaml"

MAX_ANSWER_BYTES = 4 << 20
MAX_EVENT_BYTES = 2 << 20
MAX_TEXT_BYTES = 64 << 20
_PIECE_BYTES = 64 << 10


class ConfigError(ValueError):
    """No way to reach the API server could be found; the message names the file and what it lacks."""


class ApiError(Exception):
    """The server refused: `status` is the HTTP status, the message its own words, shortened."""

    def __init__(self, status: int, message: str) -> None:
        self.status = status
        super().__init__(f"{status}: {message[:300]}")


# What a request may raise when the server, the network or the token is at fault.
FAILURES: Final = (ApiError, OSError, http.client.HTTPException, ValueError)


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """Where a server is and how to speak to it: `tls` and `token` (or "") as they are now, for one connection."""

    host: str
    port: int
    tls: Callable[[], ssl.SSLContext]
    token: Callable[[], str]


def in_cluster(folder: Path = SERVICE_ACCOUNT, environ: Mapping[str, str] = os.environ) -> Endpoint:
    """The API server as a pod sees it. Raises ConfigError outside a pod."""
    host, port = environ.get("KUBERNETES_SERVICE_HOST"), environ.get("KUBERNETES_SERVICE_PORT", "443")
    if not host:
        raise ConfigError("KUBERNETES_SERVICE_HOST is not set: not in a pod; name a kubeconfig")
    try:
        (folder / "token").read_text()
        _tls(ca_file=folder / "ca.crt")
    except OSError as error:
        raise ConfigError(f"{folder}: no service account: {error}") from None
    return Endpoint(
        host=host,
        port=int(port),
        tls=lambda: _tls(ca_file=folder / "ca.crt"),
        token=lambda: (folder / "token").read_text().strip(),
    )


def from_kubeconfig(path: Path, context: str | None = None) -> Endpoint:
    """The API server that a kubeconfig names. Raises ConfigError for one that can't be used.

    Of the ways to log in only tokens and client certificates: a plugin has no place on a node.
    """
    # A pod needs no YAML, so it does not pay for the parser.
    import yaml  # noqa: PLC0415

    try:
        config = yaml.safe_load(path.read_text())
        current = _entry(config, "contexts", "context", context or config.get("current-context"))
        cluster = _entry(config, "clusters", "cluster", current["cluster"])
        user = _entry(config, "users", "user", current["user"])
        server = urlsplit(cluster["server"])
        port = server.port or 443
    # A ValueError: the file is no text, or the port no port.
    except (OSError, yaml.YAMLError, KeyError, TypeError, AttributeError, ValueError) as error:
        raise ConfigError(f"{path}: not a usable kubeconfig: {error!r}") from None
    if server.scheme != "https" or server.hostname is None:
        raise ConfigError(f"{path}: server {cluster['server']!r} is not an https URL")
    authority = _inline(path, cluster, "certificate-authority")
    certificate = _inline(path, user, "client-certificate")
    try:
        tls = _tls(ca_data=authority)
        if certificate:
            _load_certificate(tls, certificate + "\n" + _inline(path, user, "client-key"))
    except ssl.SSLError as error:
        raise ConfigError(f"{path}: a certificate or key can't be used: {error}") from None
    if cluster.get("insecure-skip-tls-verify"):
        tls.check_hostname = False
        tls.verify_mode = ssl.CERT_NONE
    token = user.get("token", "")
    token_file = user.get("tokenFile")
    if not (certificate or token or token_file):
        raise ConfigError(f"{path}: user {current['user']!r} has neither a token nor a client certificate")
    read_token = (lambda: Path(token_file).read_text().strip()) if token_file else (lambda: token)
    return Endpoint(host=server.hostname, port=port, tls=lambda: tls, token=read_token)


def _entry(config: Mapping[str, Any], plural: str, singular: str, name: object) -> dict[str, Any]:
    for entry in config[plural]:
        if entry["name"] == name:
            result: dict[str, Any] = entry[singular]
            return result
    raise KeyError(f"{plural}: no {name!r}")


def _inline(path: Path, entry: Mapping[str, Any], key: str) -> str:
    """The PEM text under key-data, or of the file under key, as kubectl resolves it; "" where neither is there."""
    data, file = entry.get(f"{key}-data"), entry.get(key)
    try:
        if data:
            return base64.b64decode(data, validate=True).decode("ascii")
        return (path.parent / file).read_text() if file else ""
    except (OSError, ValueError, binascii.Error) as error:
        raise ConfigError(f"{path}: {key}: {error}") from None


def _tls(*, ca_file: Path | None = None, ca_data: str = "") -> ssl.SSLContext:
    # Not create_default_context: it loads the system's hundred authorities, 2 MB that would verify nothing here.
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    tls.minimum_version = ssl.TLSVersion.TLSv1_2
    if ca_file is not None or ca_data:
        tls.load_verify_locations(cafile=ca_file, cadata=ca_data or None)
    else:
        tls.load_default_certs()
    return tls


def _load_certificate(tls: ssl.SSLContext, pem: str) -> None:
    # ssl loads certificates from files only.
    fd, name = tempfile.mkstemp(prefix="raddle-agent-")
    try:
        with os.fdopen(fd, "w") as file:
            file.write(pem)
        tls.load_cert_chain(name)
    finally:
        Path(name).unlink()


class AgentClient:
    """Requests to one server; safe to use from several threads, as each request has its own connection.

    Every method raises ApiError for a status of 400 or more, OSError or http.client.HTTPException where
    there is no answer, ValueError for an answer that is not a JSON object.
    """

    def __init__(self, endpoint: Endpoint, *, timeout_s: float = 10.0) -> None:
        self._endpoint = endpoint
        self._timeout_s = timeout_s

    def get(self, path: str, query: Mapping[str, str] | None = None, accept: str = JSON) -> dict[str, Any]:
        """The JSON object at a path."""
        return self._request("GET", path, query or {}, accept)

    def apply(self, path: str, body: Mapping[str, Any], field_manager: str) -> dict[str, Any]:
        """The object after a forced server-side apply."""
        query = {"fieldManager": field_manager, "force": "true"}
        return self._request("PATCH", path, query, JSON, json.dumps(body).encode())

    def watch(self, path: str, query: Mapping[str, str], accept: str, *, timeout_s: int) -> Iterator[dict[str, Any]]:
        """The events of a watch ({"type", "object"}), until the server ends it, which it does after `timeout_s`.

        One of more than MAX_EVENT_BYTES is left out.
        """
        query = {**query, "watch": "true", "allowWatchBookmarks": "true", "timeoutSeconds": str(timeout_s)}
        # A server that is gone without a word is noticed when it overstays its own end.
        connection = self._connect(timeout_s + self._timeout_s)
        try:
            response = self._send(connection, "GET", path, query, accept, None)
            while line := response.readline(MAX_EVENT_BYTES):
                if len(line) == MAX_EVENT_BYTES and not line.endswith(b"\n"):
                    # Anyone who may create pods can make one so large; it must not end the watch of the others.
                    while line and not line.endswith(b"\n"):
                        line = response.readline(MAX_EVENT_BYTES)
                    continue
                event = json.loads(line)
                if not isinstance(event, dict):
                    raise ValueError(f"{path}: a watch event is not an object")  # noqa: TRY004 (as bad as no JSON)
                yield event
        finally:
            connection.close()

    def lines(self, path: str, accept: str) -> Iterator[bytes]:
        """The lines of a text as they come, without their ends; of more than MAX_TEXT_BYTES only the first."""
        connection = self._connect(self._timeout_s)
        try:
            response = self._send(connection, "GET", path, {}, accept, None)
            left, read_bytes = b"", 0
            while read_bytes < MAX_TEXT_BYTES and (piece := response.read(_PIECE_BYTES)):
                read_bytes += len(piece)
                *whole, left = (left + piece).split(b"\n")
                yield from whole
        finally:
            connection.close()

    def _request(
        self, method: str, path: str, query: Mapping[str, str], accept: str, body: bytes | None = None
    ) -> dict[str, Any]:
        connection = self._connect(self._timeout_s)
        try:
            response = self._send(connection, method, path, query, accept, body)
            answer = json.loads(response.read(MAX_ANSWER_BYTES))
        finally:
            connection.close()
        if not isinstance(answer, dict):
            raise ValueError(f"{path}: the response is not an object")  # noqa: TRY004 (as bad as no JSON)
        return answer

    def _connect(self, timeout_s: float) -> http.client.HTTPSConnection:
        endpoint = self._endpoint
        return http.client.HTTPSConnection(endpoint.host, endpoint.port, timeout=timeout_s, context=endpoint.tls())

    def _send(
        self,
        connection: http.client.HTTPSConnection,
        method: str,
        path: str,
        query: Mapping[str, str],
        accept: str,
        body: bytes | None,
    ) -> http.client.HTTPResponse:
        headers = {"Accept": accept, "User-Agent": "raddle-agent"}
        token = self._endpoint.token()
        if token:
            headers["Authorization"] = f"Bearer {token}"
        if body is not None:
            headers["Content-Type"] = APPLY
        connection.request(method, f"{path}?{urlencode(query)}" if query else path, body, headers)
        response = connection.getresponse()
        if response.status >= http.client.BAD_REQUEST:
            raise ApiError(response.status, _message(response.read(MAX_ANSWER_BYTES)))
        return response


def _message(content: bytes) -> str:
    """The message of a Status object, else the text itself, on one line."""
    try:
        text = json.loads(content)["message"]
    except (ValueError, KeyError, TypeError):
        text = content.decode("utf-8", "replace")
    return " ".join(str(text).split())

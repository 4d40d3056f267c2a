"""The one module that talks to the API server: raw JSON objects in, raw JSON objects out.

Authentication, TLS and the kubeconfig come from ``kubernetes.aio`` (its loaders and its SSL context). Requests go
through an aiohttp session of our own, because the generated client decodes into pydantic models, answers None to a
201, and its watch retries a 410 with the same version.
Every refusal is a typed :class:`ApiError`, so that a caller can tell "gone" from "forbidden" from "try again".
"""

# ruff: noqa: N818 (NotFound, Conflict, Gone: the API's own words read better than with Error after each)
from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Literal, Self

import aiohttp
import orjson
from kubernetes.aio.client.configuration import Configuration
from kubernetes.aio.client.rest import RESTClientObject
from kubernetes.aio.config.config_exception import ConfigException
from kubernetes.aio.config.incluster_config import load_incluster_config
from kubernetes.aio.config.kube_config import load_kube_config

log = logging.getLogger(__name__)

Object = dict[str, Any]
"""A Kubernetes object as JSON."""
Operations = list[Object]
"""The operations of a JSON patch."""

REQUEST_TIMEOUT_S: Final = 30.0
WATCH_TIMEOUT_S: Final = 290
WATCH_IDLE_S: Final = 100.0
"""Without a byte for so long the stream is taken for dead: the API server sends a bookmark about every 60 s."""
CONNECT_TIMEOUT_S: Final = 10.0
RELOAD_PAUSE_S: Final = 5.0
"""Credentials are read again after a 401 at most this often."""


@dataclass(frozen=True, slots=True)
class Resource:
    """A kind as the API server addresses it. ``group`` is empty for the core group."""

    group: str
    version: str
    plural: str
    namespaced: bool
    kind: str

    @property
    def api_version(self) -> str:
        """Return ``group/version``, or ``version`` for the core group."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """Return the URL path. An empty ``namespace`` means all of them (lists) or a cluster-scoped object."""
        parts = ["/apis", self.group, self.version] if self.group else ["/api", self.version]
        if self.namespaced and namespace:
            parts += ["namespaces", namespace]
        parts.append(self.plural)
        parts += [part for part in (name, subresource) if part]
        return "/".join(parts)


PODS: Final = Resource("", "v1", "pods", namespaced=True, kind="Pod")
NAMESPACES: Final = Resource("", "v1", "namespaces", namespaced=False, kind="Namespace")
NODES: Final = Resource("", "v1", "nodes", namespaced=False, kind="Node")
CONFIG_MAPS: Final = Resource("", "v1", "configmaps", namespaced=True, kind="ConfigMap")
SECRETS: Final = Resource("", "v1", "secrets", namespaced=True, kind="Secret")
SERVICE_ACCOUNTS: Final = Resource("", "v1", "serviceaccounts", namespaced=True, kind="ServiceAccount")
DEPLOYMENTS: Final = Resource("apps", "v1", "deployments", namespaced=True, kind="Deployment")
LEASES: Final = Resource("coordination.k8s.io", "v1", "leases", namespaced=True, kind="Lease")
EVENTS: Final = Resource("events.k8s.io", "v1", "events", namespaced=True, kind="Event")
MUTATING_WEBHOOKS: Final = Resource(
    "admissionregistration.k8s.io",
    "v1",
    "mutatingwebhookconfigurations",
    namespaced=False,
    kind="MutatingWebhookConfiguration",
)
CUSTOM_RESOURCE_DEFINITIONS: Final = Resource(
    "apiextensions.k8s.io", "v1", "customresourcedefinitions", namespaced=False, kind="CustomResourceDefinition"
)
INFERENCE_THREADINGS: Final = Resource(
    "raddle.dev", "v1alpha1", "inferencethreadings", namespaced=True, kind="InferenceThreading"
)
CLUSTER_INFERENCE_THREADINGS: Final = Resource(
    "raddle.dev", "v1alpha1", "clusterinferencethreadings", namespaced=False, kind="ClusterInferenceThreading"
)
NODE_CPU_TOPOLOGIES: Final = Resource(
    "raddle.dev", "v1alpha1", "nodecputopologies", namespaced=False, kind="NodeCPUTopology"
)

NODE_RESOURCE_TOPOLOGIES: Final = Resource(
    "topology.node.k8s.io", "v1alpha2", "noderesourcetopologies", namespaced=False, kind="NodeResourceTopology"
)


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


class Invalid(ApiError):
    """400 or 422: the object or the request is wrong; the same request will never pass."""


class Unavailable(ApiError):
    """No answer, a timeout, 429 or 5xx: the same request may pass later."""


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
    """Return the typed error for an HTTP code and the Status object that came with it (empty when none did)."""
    reason = str(body.get("reason") or "Unknown")
    kind = _BY_STATUS.get(status, Unavailable if status >= 500 or status == 0 else ApiError)
    if reason == "AlreadyExists":
        kind = AlreadyExists
    elif reason in ("Expired", "Gone"):
        kind = Gone
    return kind(status, reason, str(body.get("message") or ""), retry_after_s=retry_after_s)


@dataclass(frozen=True, slots=True)
class Page:
    """One chunk of a list. ``resource_version`` is that of the whole list and the same on every page."""

    resource_version: str
    items: list[Object]


@dataclass(frozen=True, slots=True)
class WatchEvent:
    """One change. A BOOKMARK's object carries only ``metadata.resourceVersion``."""

    type: Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK"]
    object: Object

    @property
    def resource_version(self) -> str:
        """Return the version to resume the watch from."""
        return str(self.object["metadata"]["resourceVersion"])


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """Where the API server is and how to log in, for a library with a client of its own (kopf). Absent parts are None.

    ``authorization`` is the whole header value; paths are of PEM files.
    """

    server: str
    ca_path: str | None
    verify_tls: bool
    authorization: str | None
    certificate_path: str | None
    private_key_path: str | None
    proxy: str | None


_JSON: Final = "application/json"
_METADATA_ACCEPT: Final = "application/json;as={};g=meta.k8s.io;v=v1,application/json"
_PATCH_TYPES: Final[Mapping[str, str]] = {
    "apply": "application/apply-patch+yaml",
    "merge": "application/merge-patch+json",
    "json": "application/json-patch+json",
    "strategic": "application/strategic-merge-patch+json",
}


def _accept(kind: str, *, metadata_only: bool) -> str:
    return _METADATA_ACCEPT.format(kind) if metadata_only else _JSON


def _query(**values: str | int | bool | None) -> dict[str, str]:
    return {
        name: str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in values.items()
        if value not in (None, "", False)
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class _Call:
    method: str
    path: str
    query: Mapping[str, str]
    timeout: aiohttp.ClientTimeout
    data: bytes | None = None
    content_type: str = _JSON
    accept: str = _JSON


class Kube:
    """A connection to one API server, for one event loop.

    Make it with :meth:`from_settings`, end it with :meth:`close` or ``async with``.
    """

    def __init__(self, load: Callable[[Configuration], Awaitable[None]]) -> None:
        """``load`` fills a Configuration; it runs now and again after a 401."""
        self.reload_pause_s = RELOAD_PAUSE_S
        self._load = load
        self._configuration = Configuration()
        self._session: aiohttp.ClientSession | None = None
        self._tls_inputs: tuple[Any, ...] | None = None
        self._renewal = asyncio.Lock()
        self._loaded_at_s = 0.0

    @classmethod
    async def from_settings(cls, kubeconfig: Path | None, context: str | None = None) -> Kube:
        """Return a client from a kubeconfig file, or from the pod's service account where ``kubeconfig`` is None.

        Tokens are refreshed: the in-cluster one each minute, what a kubeconfig names (a token file, an exec plugin,
        a client certificate) after a 401.
        Raises ConfigError where the credentials can't be read.
        """

        async def load(configuration: Configuration) -> None:
            if kubeconfig is None:
                load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
            else:
                # persist_config writes the file back; a client of a shared kubeconfig must not.
                await load_kube_config(  # type: ignore[no-untyped-call]
                    str(kubeconfig), context=context, client_configuration=configuration, persist_config=False
                )

        kube = cls(load)
        try:
            await kube._reload()
        except Exception as error:  # the loaders raise ConfigException, OSError, YAML and type errors alike
            source = "the in-cluster service account" if kubeconfig is None else f"kubeconfig {kubeconfig}"
            said = "it is no kubeconfig" if isinstance(error, TypeError | AttributeError) else str(error)
            raise ConfigError(f"{source} gives no usable credentials: {said}") from error
        return kube

    async def __aenter__(self) -> Self:
        """Return the client itself."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the session."""
        await self.close()

    async def close(self) -> None:
        """Close every connection; watches end with Unavailable."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def connection(self) -> Connection:
        """Return the credentials as they are now, read afresh. May be called from any thread and event loop."""
        configuration = Configuration()
        await self._load(configuration)
        token = (await configuration.auth_settings()).get("BearerToken")
        return Connection(
            server=configuration.host,
            ca_path=configuration.ssl_ca_cert,
            verify_tls=configuration.verify_ssl,
            authorization=token["value"] if token else None,
            certificate_path=configuration.cert_file,
            private_key_path=configuration.key_file,
            proxy=configuration.proxy,
        )

    # ---- objects

    async def get(self, resource: Resource, name: str, namespace: str = "", *, metadata_only: bool = False) -> Object:
        """Return one object. Raises NotFound."""
        accept = _accept("PartialObjectMetadata", metadata_only=metadata_only)
        return await self.request("GET", resource.path(namespace, name), accept=accept)

    async def pages(
        self,
        resource: Resource,
        namespace: str = "",
        *,
        label_selector: str = "",
        field_selector: str = "",
        metadata_only: bool = False,
        chunk_size: int = 500,
    ) -> AsyncGenerator[Page, None]:
        """Yield a list in chunks, so that one chunk of full objects is in memory at a time.

        Raises Gone when reading it takes so long (5 min) that the server forgets the rest.
        """
        accept = _accept("PartialObjectMetadataList", metadata_only=metadata_only)
        token = ""
        while True:
            query = _query(labelSelector=label_selector, fieldSelector=field_selector, limit=chunk_size)
            if token:
                query["continue"] = token
            body = await self.request("GET", resource.path(namespace), query=query, accept=accept)
            metadata = body.get("metadata") or {}
            yield Page(str(metadata.get("resourceVersion", "")), body.get("items") or [])
            token = metadata.get("continue") or ""
            if not token:
                return

    async def list(
        self,
        resource: Resource,
        namespace: str = "",
        *,
        label_selector: str = "",
        field_selector: str = "",
        metadata_only: bool = False,
        chunk_size: int = 500,
    ) -> Page:
        """Return a whole list (read in chunks). Items carry no apiVersion and kind, as the API server sends them."""
        version, items = "", []
        async for page in self.pages(
            resource,
            namespace,
            label_selector=label_selector,
            field_selector=field_selector,
            metadata_only=metadata_only,
            chunk_size=chunk_size,
        ):
            version = page.resource_version
            items += page.items
        return Page(version, items)

    async def create(
        self, resource: Resource, body: Object, namespace: str = "", *, field_manager: str = "", dry_run: bool = False
    ) -> Object:
        """Create an object and return it as stored. Raises AlreadyExists."""
        query = _query(fieldManager=field_manager, dryRun="All" if dry_run else None)
        path = resource.path(namespace or _namespace(body))
        return await self.request("POST", path, query=query, body=_typed(resource, body))

    async def replace(
        self, resource: Resource, body: Object, *, subresource: str = "", field_manager: str = ""
    ) -> Object:
        """Replace an object. With ``metadata.resourceVersion`` a compare-and-swap: Conflict if it has moved on."""
        path = resource.path(_namespace(body), body["metadata"]["name"], subresource)
        return await self.request("PUT", path, query=_query(fieldManager=field_manager), body=_typed(resource, body))

    async def apply(
        self, resource: Resource, body: Object, *, field_manager: str, force: bool = True, subresource: str = ""
    ) -> Object:
        """Server-side apply: create or merge, owning the fields in ``body``. A no-op keeps the resource version."""
        path = resource.path(_namespace(body), body["metadata"]["name"], subresource)
        query = _query(fieldManager=field_manager, force=force)
        return await self.request(
            "PATCH", path, query=query, body=_typed(resource, body), content_type=_PATCH_TYPES["apply"]
        )

    async def apply_status(self, resource: Resource, body: Object, *, field_manager: str, force: bool = True) -> Object:
        """Server-side apply of the status subresource. Raises NotFound: it never creates the object."""
        return await self.apply(resource, body, field_manager=field_manager, force=force, subresource="status")

    async def patch(
        self,
        resource: Resource,
        name: str,
        patch: Object | Operations,
        namespace: str = "",
        *,
        kind: Literal["merge", "json", "strategic"] = "merge",
        subresource: str = "",
        field_manager: str = "",
    ) -> Object:
        """Patch an object. A JSON patch is a list of operations, one of which may ``test`` the resourceVersion."""
        path = resource.path(namespace, name, subresource)
        query = _query(fieldManager=field_manager)
        return await self.request("PATCH", path, query=query, body=patch, content_type=_PATCH_TYPES[kind])

    async def delete(
        self, resource: Resource, name: str, namespace: str = "", *, uid: str = "", resource_version: str = ""
    ) -> Object:
        """Delete an object; only that ``uid`` and ``resource_version`` where given, else Conflict. Raises NotFound."""
        conditions = {key: value for key, value in (("uid", uid), ("resourceVersion", resource_version)) if value}
        body: Object = {"apiVersion": "v1", "kind": "DeleteOptions"}
        if conditions:
            body["preconditions"] = conditions
        return await self.request("DELETE", resource.path(namespace, name), body=body)

    # ---- watch

    async def watch(
        self,
        resource: Resource,
        namespace: str = "",
        *,
        resource_version: str,
        label_selector: str = "",
        field_selector: str = "",
        metadata_only: bool = False,
        timeout_seconds: int = WATCH_TIMEOUT_S,
    ) -> AsyncGenerator[WatchEvent, None]:
        """Yield changes after ``resource_version``, bookmarks included, until the server ends the stream.

        Raises Gone when the version is too old (list again), and any other ApiError. A stream that falls silent for
        100 s ends like one that the server ended. Close the iterator (``contextlib.aclosing``) when leaving it early.
        """
        query = _query(
            watch=True,
            allowWatchBookmarks=True,
            resourceVersion=resource_version,
            labelSelector=label_selector,
            fieldSelector=field_selector,
            timeoutSeconds=timeout_seconds,
        )
        accept = _accept("PartialObjectMetadata", metadata_only=metadata_only)
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT_S, sock_read=WATCH_IDLE_S)
        call = _Call(method="GET", path=resource.path(namespace), query=query, accept=accept, timeout=timeout)
        async with self._open(call) as response:
            async for line in _lines(response.content):
                event = orjson.loads(line)
                body = event["object"]
                if event["type"] == "ERROR":
                    raise error_from_status(int(body.get("code") or 500), body)
                yield WatchEvent(event["type"], body)

    # ---- the wire

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Object | Operations | None = None,
        content_type: str = _JSON,
        accept: str = _JSON,
        timeout_s: float = REQUEST_TIMEOUT_S,
    ) -> Object:
        """Send one request and return its JSON object.

        Raises a typed ApiError; a connection that fails or takes longer than ``timeout_s`` is Unavailable, status 0.
        """
        call = _Call(
            method=method,
            path=path,
            query=query or {},
            data=None if body is None else orjson.dumps(body),
            content_type=content_type,
            accept=accept,
            timeout=aiohttp.ClientTimeout(total=timeout_s, sock_connect=CONNECT_TIMEOUT_S),
        )
        async with self._open(call) as response:
            data = await response.read()
        result: Object = orjson.loads(data) if data else {}
        return result

    @contextlib.asynccontextmanager
    async def _open(self, call: _Call) -> AsyncIterator[aiohttp.ClientResponse]:
        try:
            used = self._configuration
            response = await self._send(call)
            if response.status == 401 and await self._renew(used):
                response.release()
                response = await self._send(call)
            async with response:
                if response.status >= 400:
                    raise await _error(response)
                yield response
        except (aiohttp.ClientError, TimeoutError, OSError, ConfigException) as error:
            message = f"{call.method} {call.path}: {error or type(error).__name__}"
            raise Unavailable(0, "NoAnswer", message) from error

    async def _send(self, call: _Call) -> aiohttp.ClientResponse:
        if self._session is None:
            raise Unavailable(0, "Closed", f"{call.method} {call.path}: the client is closed")
        configuration = self._configuration
        headers = {"Accept": call.accept, "User-Agent": "raddle"}
        if call.data is not None:
            headers["Content-Type"] = call.content_type
        token = (await configuration.auth_settings()).get("BearerToken")
        if token is not None and token["value"]:
            headers["Authorization"] = token["value"]
        return await self._session.request(
            call.method,
            configuration.host + call.path,
            params=call.query,
            data=call.data,
            headers=headers,
            timeout=call.timeout,
            server_hostname=configuration.tls_server_name or None,
            proxy=configuration.proxy,
        )

    async def _renew(self, refused: Configuration) -> bool:
        """Read the credentials again after a 401; return whether others than the refused ones are there to try."""
        async with self._renewal:
            if self._configuration is not refused:
                return True  # another request has done it meanwhile
            if time.monotonic() - self._loaded_at_s < self.reload_pause_s:
                return False  # a wrong token must not make a loop
            try:
                await self._reload()
            except Exception:
                log.exception("credentials could not be read again after a 401")
                return False
            return True

    async def _reload(self) -> None:
        configuration = Configuration()
        self._loaded_at_s = time.monotonic()
        await self._load(configuration)
        self._configuration = configuration
        tls_inputs = (configuration.host, configuration.ssl_ca_cert, configuration.cert_file, configuration.key_file)
        if self._session is None or tls_inputs != self._tls_inputs:
            old, self._session = self._session, self._new_session(configuration)
            self._tls_inputs = tls_inputs
            if old is not None:
                await old.close()

    @staticmethod
    def _new_session(configuration: Configuration) -> aiohttp.ClientSession:
        connector = aiohttp.TCPConnector(limit=0, ssl=RESTClientObject(configuration).ssl_context)
        return aiohttp.ClientSession(connector=connector, trust_env=True)


async def _error(response: aiohttp.ClientResponse) -> ApiError:
    data = await response.read()
    try:
        body = orjson.loads(data)
    except orjson.JSONDecodeError:
        body = None
    if not isinstance(body, dict):
        body = {"message": data[:200].decode("utf-8", "replace"), "reason": response.reason}
    retry_after = response.headers.get("Retry-After", "")
    retry_after_s = float(retry_after) if retry_after.isdigit() else None
    return error_from_status(response.status, body, retry_after_s=retry_after_s)


async def _lines(stream: aiohttp.StreamReader) -> AsyncIterator[bytes]:
    """Yield the lines of a stream. aiohttp's own iteration fails on a line that is longer than its buffer."""
    pending: list[bytes] = []
    while True:
        try:
            chunk = await stream.readany()
        except (TimeoutError, aiohttp.ServerTimeoutError):
            return
        if not chunk:
            return
        *complete, rest = chunk.split(b"\n")
        for part in complete:
            line = b"".join((*pending, part))
            pending.clear()
            if line:
                yield line
        if rest:
            pending.append(rest)


def _namespace(body: Object) -> str:
    return str(body["metadata"].get("namespace") or "")


def _typed(resource: Resource, body: Object) -> Object:
    return {"apiVersion": resource.api_version, "kind": resource.kind, **body}

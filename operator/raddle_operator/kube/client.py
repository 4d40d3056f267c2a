"""What can be asked of the API server: raw JSON objects in, raw JSON objects out, errors typed."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

import aiohttp
import orjson

from raddle_operator.kube.errors import Gone, Unavailable, error_from_status
from raddle_operator.kube.resources import PODS, Object, Operations, Resource
from raddle_operator.kube.session import CONNECT_TIMEOUT_S, JSON, Call, Session, lines

WATCH_TIMEOUT_S: Final = 290
WATCH_IDLE_S: Final = 100.0
"""Without a byte for so long the stream is taken for dead: the API server sends a bookmark about every 60 s."""
EXEC_PROTOCOL: Final = "v4.channel.k8s.io"
"""Each message begins with its channel; the last one of channel 3 is a Status. v5 adds what standard input needs."""
_STDOUT, _STDERR, _OUTCOME = 1, 2, 3
MAX_SAID_BYTES: Final = 16 * 1024 * 1024
_METADATA_ACCEPT: Final = "application/json;as={};g=meta.k8s.io;v=v1,application/json"
_PATCH_TYPES: Final[Mapping[str, str]] = {
    "apply": "application/apply-patch+yaml",
    "merge": "application/merge-patch+json",
    "json": "application/json-patch+json",
    "strategic": "application/strategic-merge-patch+json",
}


@dataclass(frozen=True, slots=True)
class Page:
    """One chunk of a list. ``resource_version`` is that of the whole list, the same on every page of a consistent one.

    ``remaining`` is how many more there are about, None where the server does not say.
    """

    resource_version: str
    items: list[Object]
    remaining: int | None = None


@dataclass(frozen=True, slots=True)
class WatchEvent:
    """One change. A BOOKMARK's object carries only ``metadata.resourceVersion``."""

    type: Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK"]
    object: Object

    @property
    def resource_version(self) -> str:
        """The version to resume the watch from."""
        return str(self.object["metadata"]["resourceVersion"])


@dataclass(frozen=True, slots=True)
class Executed:
    """How a command in a container ended: its exit status, and what it said."""

    status: int
    stdout: bytes
    stderr: bytes


class Kube(Session):
    """The objects of one API server: read, written, watched. Made by :meth:`Session.from_settings`."""

    async def get(self, resource: Resource, name: str, namespace: str = "", *, metadata_only: bool = False) -> Object:
        """One object. Raises NotFound."""
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
        consistent: bool = True,
    ) -> AsyncGenerator[Page, None]:
        """Yields a list in chunks, so that one chunk of full objects is in memory at a time.

        Raises Gone when reading it takes so long (5 min) that the server forgets the rest. Unless ``consistent``, the
        rest is then read as it is at that time, of another version: each object comes once at most, in the order of
        names, but those of before and of after are no state that ever was.
        """
        accept = _accept("PartialObjectMetadataList", metadata_only=metadata_only)
        token = ""
        while True:
            query = _query(labelSelector=label_selector, fieldSelector=field_selector, limit=chunk_size)
            if token:
                query["continue"] = token
            try:
                body = await self.request("GET", resource.path(namespace), query=query, accept=accept)
            except Gone as error:
                if consistent or error.continue_token in ("", token):
                    raise
                token = error.continue_token
                continue
            metadata = body.get("metadata") or {}
            remaining = metadata.get("remainingItemCount")
            yield Page(str(metadata.get("resourceVersion", "")), body.get("items") or [], remaining)
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
        """A whole list (read in chunks). Items carry no apiVersion and kind, as the API server sends them."""
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
        """Creates an object and returns it as stored. Raises AlreadyExists."""
        query = _query(fieldManager=field_manager, dryRun="All" if dry_run else None)
        path = resource.path(namespace or _namespace(body))
        return await self.request("POST", path, query=query, body=_typed(resource, body))

    async def replace(
        self, resource: Resource, body: Object, *, subresource: str = "", field_manager: str = ""
    ) -> Object:
        """Replaces an object. With ``metadata.resourceVersion`` a compare-and-swap: Conflict if it has moved on."""
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
        """Patches an object. A JSON patch is a list of operations, one of which may ``test`` the resourceVersion."""
        path = resource.path(namespace, name, subresource)
        query = _query(fieldManager=field_manager)
        return await self.request("PATCH", path, query=query, body=patch, content_type=_PATCH_TYPES[kind])

    async def delete(
        self,
        resource: Resource,
        name: str,
        namespace: str = "",
        *,
        uid: str = "",
        resource_version: str = "",
        propagation: Literal["", "Foreground"] = "",
    ) -> Object:
        """Deletes an object; only that ``uid`` and ``resource_version`` where given, else Conflict. Raises NotFound.

        ``propagation`` "": what it owns goes as its kind has it; a Job's pods would stay. Foreground: after it.
        """
        conditions = {key: value for key, value in (("uid", uid), ("resourceVersion", resource_version)) if value}
        body: Object = {"apiVersion": "v1", "kind": "DeleteOptions"}
        if conditions:
            body["preconditions"] = conditions
        if propagation:
            body["propagationPolicy"] = propagation
        return await self.request("DELETE", resource.path(namespace, name), body=body)

    # ---- commands

    async def execute(self, pod: str, namespace: str, container: str, command: Sequence[str]) -> Executed:
        """Runs a command in a container and returns what it said, once it has ended.

        Raises Forbidden, NotFound, and other ApiErrors; Unavailable also where the container's runtime says nothing.
        """
        query = [("container", container), ("stdout", "true"), ("stderr", "true")]
        query += [("command", word) for word in command]
        said: dict[int, bytes] = {}
        async with self.websocket(PODS.path(namespace, pod, "exec"), query, EXEC_PROTOCOL) as connection:
            async for message in connection:
                if message.type == aiohttp.WSMsgType.BINARY and message.data:
                    channel = message.data[0]
                    said[channel] = said.get(channel, b"") + message.data[1:]
                if sum(map(len, said.values())) > MAX_SAID_BYTES:
                    raise Unavailable(0, "TooLong", f"{command[0]} printed more than {MAX_SAID_BYTES} bytes")
        try:
            outcome = orjson.loads(said[_OUTCOME])
        except (KeyError, orjson.JSONDecodeError):
            raise Unavailable(0, "BrokenOff", f"{command[0]} in {container} did not finish") from None
        return Executed(_exit_code(outcome), said.get(_STDOUT, b""), said.get(_STDERR, b""))

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
        """Yields changes after ``resource_version``, bookmarks included, until the server ends the stream.

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
        call = Call(method="GET", path=resource.path(namespace), query=query, accept=accept, timeout=timeout)
        async with self.open(call) as response:
            async for line in lines(response.content):
                event = orjson.loads(line)
                body = event["object"]
                if event["type"] == "ERROR":
                    raise error_from_status(int(body.get("code") or 500), body)
                yield WatchEvent(event["type"], body)


def _exit_code(outcome: Object) -> int:
    """The exit status that a Status tells of. Raises Unavailable where the command was not started."""
    if outcome.get("status") == "Success":
        return 0
    for cause in (outcome.get("details") or {}).get("causes") or []:
        if cause.get("reason") == "ExitCode" and str(cause.get("message")).isdigit():
            return int(cause["message"])
    raise error_from_status(int(outcome.get("code") or 500), outcome)


def _accept(kind: str, *, metadata_only: bool) -> str:
    return _METADATA_ACCEPT.format(kind) if metadata_only else JSON


def _query(**values: str | int | bool | None) -> dict[str, str]:
    return {
        name: str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in values.items()
        if value not in (None, "", False)
    }


def _namespace(body: Object) -> str:
    return str(body["metadata"].get("namespace") or "")


def _typed(resource: Resource, body: Object) -> Object:
    return {"apiVersion": resource.api_version, "kind": resource.kind, **body}

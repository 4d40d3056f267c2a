"""One authenticated connection to the API server: a request goes out, JSON or a typed error comes back.

Authentication, TLS and the kubeconfig come from ``kubernetes.aio`` (its loaders and its SSL context). Requests go
through an aiohttp session of our own, because the generated client decodes into pydantic models, answers None to a
201, and its watch retries a 410 with the same version.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import aiohttp
import orjson
from kubernetes.aio.client.configuration import Configuration
from kubernetes.aio.client.rest import RESTClientObject
from kubernetes.aio.config.config_exception import ConfigException
from kubernetes.aio.config.incluster_config import load_incluster_config
from kubernetes.aio.config.kube_config import load_kube_config

from raddle_operator.kube.errors import ApiError, ConfigError, Unavailable, Unreachable, error_from_status
from raddle_operator.kube.resources import Object, Operations

log = logging.getLogger(__name__)

REQUEST_TIMEOUT_S: Final = 30.0
CONNECT_TIMEOUT_S: Final = 10.0
RELOAD_PAUSE_S: Final = 5.0
"""Credentials are read again after a 401 at most this often."""
JSON: Final = "application/json"


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One request. ``path`` is below the API server's address."""

    method: str
    path: str
    query: Mapping[str, str]
    timeout: aiohttp.ClientTimeout
    data: bytes | None = None
    content_type: str = JSON
    accept: str = JSON


class Session:
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
    async def from_settings(cls, kubeconfig: Path | None, context: str | None = None) -> Self:
        """A client from a kubeconfig file, or from the pod's service account where ``kubeconfig`` is None.

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

        made = cls(load)
        try:
            await made._reload()
        except Exception as error:  # the loaders raise ConfigException, OSError, YAML and type errors alike
            source = "the in-cluster service account" if kubeconfig is None else f"kubeconfig {kubeconfig}"
            said = "it is not a kubeconfig" if isinstance(error, TypeError | AttributeError) else str(error)
            raise ConfigError(f"{source} gives no usable credentials: {said}") from error
        return made

    async def __aenter__(self) -> Self:
        """The client itself."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Closes the session."""
        await self.close()

    async def close(self) -> None:
        """Closes every connection; watches end with Unavailable."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def connection(self) -> Connection:
        """The credentials as they are now, read afresh. May be called from any thread and event loop."""
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

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Object | Operations | None = None,
        content_type: str = JSON,
        accept: str = JSON,
        timeout_s: float = REQUEST_TIMEOUT_S,
    ) -> Object:
        """Sends one request and returns its JSON object.

        Raises a typed ApiError; a connection that fails or takes longer than ``timeout_s`` is Unavailable, status 0.
        """
        call = Call(
            method=method,
            path=path,
            query=query or {},
            data=None if body is None else orjson.dumps(body),
            content_type=content_type,
            accept=accept,
            timeout=aiohttp.ClientTimeout(total=timeout_s, sock_connect=CONNECT_TIMEOUT_S),
        )
        async with self.open(call) as response:
            data = await response.read()
        result: Object = orjson.loads(data) if data else {}
        return result

    @contextlib.asynccontextmanager
    async def open(self, call: Call) -> AsyncIterator[aiohttp.ClientResponse]:
        """Sends one request and yields the response, whose body is not read yet.

        Raises ApiError: Unreachable before the answer has begun, Unavailable where it breaks off.
        """
        answered = False
        try:
            used = self._configuration
            response = await self._send(call)
            if response.status == 401 and await self._renew(used):
                response.release()
                response = await self._send(call)
            answered = True
            async with response:
                if response.status >= 400:
                    raise await _error(response)
                yield response
        except (aiohttp.ClientError, TimeoutError, OSError, ConfigException) as error:
            message = f"{call.method} {call.path}: {error or type(error).__name__}"
            if answered:
                raise Unavailable(0, "BrokenOff", message) from error
            raise Unreachable(0, "NoAnswer", message) from error

    @contextlib.asynccontextmanager
    async def websocket(
        self, path: str, query: Sequence[tuple[str, str]], protocol: str
    ) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
        """Yields a connection that speaks the protocol. Raises ApiError where there is none to be had, or it breaks."""
        if self._session is None:
            raise Unavailable(0, "Closed", f"GET {path}: the client is closed")
        configuration = self._configuration
        try:
            async with self._session.ws_connect(
                configuration.host + path,
                params=query,
                protocols=(protocol,),
                headers=await _headers(configuration),
                server_hostname=configuration.tls_server_name or None,
                proxy=configuration.proxy,
            ) as connection:
                yield connection
        except aiohttp.WSServerHandshakeError as error:
            # Its body, which would say more, is gone.
            raise error_from_status(error.status, {"message": f"GET {path}: {error.message}"}) from error
        except (aiohttp.ClientError, OSError, ConfigException) as error:
            raise Unreachable(0, "NoAnswer", f"GET {path}: {error or type(error).__name__}") from error

    async def _send(self, call: Call) -> aiohttp.ClientResponse:
        if self._session is None:
            raise Unavailable(0, "Closed", f"{call.method} {call.path}: the client is closed")
        configuration = self._configuration
        headers = {"Accept": call.accept, **await _headers(configuration)}
        if call.data is not None:
            headers["Content-Type"] = call.content_type
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
        """Reads the credentials again after a 401; returns whether others than the refused ones are there to try."""
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


async def _headers(configuration: Configuration) -> dict[str, str]:
    """The headers of every request: who asks."""
    token = (await configuration.auth_settings()).get("BearerToken")
    said = {"Authorization": token["value"]} if token is not None and token["value"] else {}
    return {"User-Agent": "raddle", **said}


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


async def lines(stream: aiohttp.StreamReader) -> AsyncIterator[bytes]:
    """Yields the lines of a stream. aiohttp's own iteration fails on a line that is longer than its buffer."""
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

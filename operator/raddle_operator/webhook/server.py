"""The HTTP side: two paths for reviews, three for anyone who looks after the process, 404 for all else.

It answers every review that can be read with a review that allows. Only what has no uid to answer to (no JSON, too
large) gets an HTTP error, which the API server takes for a failed call and, with failurePolicy Ignore, lets pass.
aiohttp's low-level server is used as it is: no router, no middlewares, no access log on the way of a pod.
"""

from __future__ import annotations

import asyncio
import re
import ssl
import time
from collections.abc import Awaitable, Callable, Mapping
from enum import StrEnum, unique
from functools import lru_cache
from typing import Any, Final

from aiohttp import web
from aiohttp.web_protocol import RequestHandler
from aiohttp.web_request import BaseRequest

from raddle_operator.webhook.decision_log import DecisionLog
from raddle_operator.webhook.metrics import CONTENT_TYPE, WebhookMetrics
from raddle_operator.webhook.review import UnreadableError
from raddle_operator.webhook.settings import WebhookSettings

PODS_PATH: Final = "/mutate/pods"
BINDING_PATH: Final = "/mutate/binding"
DEFAULT_TIMEOUT_S: Final = 1.0
SMALL_BODY_BYTES: Final = 64 * 1024
_JSON: Final = {"Content-Type": "application/json"}
_TIMEOUT: Final = re.compile(r"(?:^|&)timeout=(?:(\d{1,3})m)?(?:(\d{1,4}(?:\.\d{1,9})?)(ms|s))?(?:&|$)")


@unique
class Refusal(StrEnum):
    """Why a request gets an HTTP error. The value is what the metric's label and the log show."""

    WRONG_METHOD = "WrongMethod"
    TOO_LARGE = "TooLarge"
    SLOW_BODY = "SlowBody"
    CLIENT_GONE = "ClientGone"
    BUSY = "Busy"
    UNREADABLE_BODY = "UnreadableBody"
    NOT_JSON = "NotJSON"
    UNKNOWN_PATH = "UnknownPath"


class _BusyError(Exception):
    """Too much is being read at once."""


Answer = Callable[[bytes, float], Awaitable[bytes]]
"""``answer(body, deadline_s)``: an AdmissionReview's bytes, by a time of the event loop's clock."""


class _Connections(web.Server):
    """aiohttp's server, and which of its connections say nothing: those that are open, so with TLS done.

    ``most`` may be silent at once, one more closes the oldest; and each for ``patience_s``.
    """

    def __init__(self, handler: Any, *, most: int, patience_s: float, **options: Any) -> None:
        super().__init__(handler, **options)
        self._most: Final = most
        self._patience_s: Final = patience_s
        self._silent: dict[RequestHandler, None] = {}  # the oldest first

    def connection_made(self, handler: RequestHandler, transport: asyncio.Transport) -> None:
        super().connection_made(handler, transport)
        if len(self._silent) >= self._most:
            self._close_silent(next(iter(self._silent)))
        self._silent[handler] = None
        asyncio.get_running_loop().call_later(self._patience_s, self._close_silent, handler)

    def connection_lost(self, handler: RequestHandler, exc: BaseException | None = None) -> None:
        self.heard(handler)
        super().connection_lost(handler, exc)

    def heard(self, handler: RequestHandler) -> None:
        """Notes that a connection says something."""
        self._silent.pop(handler, None)

    def _close_silent(self, handler: RequestHandler) -> None:
        if handler in self._silent:
            del self._silent[handler]
            handler.force_close()


class Server:
    """Listeners and what is behind them. ``answers`` maps the two paths to (label, function)."""

    def __init__(
        self,
        settings: WebhookSettings,
        answers: Mapping[str, tuple[str, Answer]],
        *,
        unready: Callable[[], str],
        metrics: WebhookMetrics,
        decision_log: DecisionLog,
    ) -> None:
        """``unready`` says why the process is not ready, "" when it is."""
        self.draining = False
        self._settings: Final = settings
        self._answers: Final = answers
        self._unready: Final = unready
        self._metrics: Final = metrics
        self._log: Final = decision_log
        self._active = 0
        self._idle = asyncio.Event()
        self._idle.set()
        # Nothing that the API server sends is compressed.
        self._http: Final = _Connections(
            self._handle,
            most=settings.max_silent_connections,
            patience_s=settings.first_request_timeout_s,
            request_factory=self._new_request,
            access_log=None,
            auto_decompress=False,
            keepalive_timeout=settings.idle_timeout_s,
        )
        self._bodies_bytes = 0
        self._listeners: list[asyncio.Server] = []

    def _new_request(self, message: Any, payload: Any, protocol: Any, writer: Any, task: Any) -> BaseRequest:
        self._http.heard(protocol)
        limit = self._settings.max_body_bytes
        loop = asyncio.get_running_loop()
        return BaseRequest(message, payload, protocol, writer, task, loop, client_max_size=limit)

    async def listen(self, port: int, context: ssl.SSLContext | None = None) -> int:
        """Opens a listener and returns its port. Raises OSError where the port is taken."""
        loop = asyncio.get_running_loop()
        patience_s = None if context is None else self._settings.handshake_timeout_s
        listener = await loop.create_server(
            self._http,
            self._settings.host,
            port,
            ssl=context,
            backlog=1024,
            ssl_handshake_timeout=patience_s,
            ssl_shutdown_timeout=patience_s,
        )
        self._listeners.append(listener)
        return int(listener.sockets[0].getsockname()[1])

    async def close(self) -> None:
        """Stops accepting, lets requests under way finish (10 s at most), closes every connection. Twice is once."""
        self.draining = True
        listeners, self._listeners = self._listeners, []
        for listener in listeners:
            listener.close()
        self._http.pre_shutdown()
        try:
            async with asyncio.timeout(self._settings.drain_s):
                await self._idle.wait()
        except TimeoutError:
            self._log.refusal("requests did not finish before shutdown", str(self._active))
        await self._http.shutdown(1.0)
        for listener in listeners:
            await listener.wait_closed()

    async def _handle(self, request: BaseRequest) -> web.StreamResponse:
        self._active += 1
        self._idle.clear()
        try:
            response = await self._respond(request)
        finally:
            self._active -= 1
            if not self._active:
                self._idle.set()
        if self.draining:
            response.force_close()  # the next request goes to another replica
        return response

    async def _respond(self, request: BaseRequest) -> web.StreamResponse:
        path, _, query = request.raw_path.partition("?")
        answering = self._answers.get(path)
        if answering is None:
            return self._look(path)
        label, answer = answering
        if request.method != "POST":
            return self._refuse(label, 405, Refusal.WRONG_METHOD, f"{path} takes POST")
        began_s = time.perf_counter()
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + timeout_of(query) * self._settings.deadline_share
        if (request.content_length or 0) > self._settings.max_body_bytes:
            return self._too_large(label)
        try:
            body = await self._body(request)
        except web.HTTPRequestEntityTooLarge:
            return self._too_large(label)
        except _BusyError:
            response = self._refuse(label, 503, Refusal.BUSY, "too many large requests at once")
            response.force_close()
            return response
        except TimeoutError:
            return self._refuse(
                label, 408, Refusal.SLOW_BODY, f"the body was not received within {self._settings.body_timeout_s} s"
            )
        except OSError as error:
            # Nobody reads the answer; raised, each such client would write a traceback into the log.
            response = self._refuse(label, 400, Refusal.CLIENT_GONE, str(error))
            response.force_close()
            return response
        except Exception as error:  # noqa: BLE001 (a body that breaks its own framing comes as many types)
            return self._refuse(label, 400, Refusal.UNREADABLE_BODY, str(error))
        try:
            data = await answer(body, deadline_s)
        except UnreadableError as error:
            return self._refuse(label, 400, Refusal.NOT_JSON, f"the body is not JSON: {error}")
        self._metrics.duration(label, time.perf_counter() - began_s)
        return web.Response(body=data, headers=_JSON)

    async def _body(self, request: BaseRequest) -> bytes:
        """The body. What is there counts, not what is announced: that would cost a client nothing."""
        if request.content.is_eof():
            return await request.read()
        settings, body = self._settings, bytearray()
        try:
            async with asyncio.timeout(settings.body_timeout_s):
                async for chunk in request.content.iter_any():
                    body += chunk
                    self._bodies_bytes += len(chunk)
                    if len(body) > settings.max_body_bytes:
                        raise web.HTTPRequestEntityTooLarge(settings.max_body_bytes, len(body))
                    # Most reviews are small, and are never turned away for others' large ones.
                    if self._bodies_bytes > settings.max_bodies_bytes and len(body) > SMALL_BODY_BYTES:
                        raise _BusyError
            return bytes(body)
        finally:
            self._bodies_bytes -= len(body)

    def _too_large(self, label: str) -> web.Response:
        response = self._refuse(
            label, 413, Refusal.TOO_LARGE, f"at most {self._settings.max_body_bytes} bytes are read"
        )
        response.force_close()
        return response

    def _refuse(self, label: str, status: int, reason: Refusal, message: str) -> web.Response:
        self._metrics.request(label, "refused", reason)
        self._log.refusal(f"{label}: {reason}", message)
        return web.Response(status=status, text=message + "\n")

    def _look(self, path: str) -> web.Response:
        if path == "/readyz":
            unready = self._unready()
            return web.Response(status=503 if unready else 200, text=(unready or "ok") + "\n")
        if path == "/livez":
            # A blocked event loop does not answer, which is the sign that the kubelet looks for.
            return web.Response(text="ok\n")
        if path == "/metrics":
            return web.Response(body=self._metrics.text(), headers={"Content-Type": CONTENT_TYPE})
        message = f"no such path; send reviews to {PODS_PATH} and {BINDING_PATH}"
        # A wrong path in a webhook configuration must be visible, so it never looks like an answer.
        return self._refuse("other", 404, Refusal.UNKNOWN_PATH, message)


@lru_cache(maxsize=64)
def timeout_of(query: str) -> float:
    """The seconds that the API server waits, as the URL's query says (``timeout=1s``); 1 where it says none."""
    match = _TIMEOUT.search(query)
    if match is None:
        return DEFAULT_TIMEOUT_S
    minutes, number, unit = match.groups()
    seconds = 60.0 * int(minutes or 0) + float(number or 0) * (0.001 if unit == "ms" else 1.0)
    return min(seconds, 30.0) or DEFAULT_TIMEOUT_S

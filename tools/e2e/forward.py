"""Carries TCP connections from the nodes to the API server, which listens on the loopback interface only."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from types import TracebackType
from typing import Self

CHUNK_BYTES = 1 << 16


class Forward:
    """Listens on one address in a thread of its own from `with` on, and connects each caller to `target`."""

    def __init__(self, listen: tuple[str, int], target: tuple[str, int]) -> None:
        """Describe it; nothing listens yet."""
        self._listen = listen
        self._target = target
        self._loop = asyncio.new_event_loop()
        self._started = threading.Event()
        self._failure: OSError | None = None
        self._thread = threading.Thread(target=self._run, name="forward", daemon=True)
        self._stop: asyncio.Event | None = None
        self.port = 0

    def __enter__(self) -> Self:
        """Listen. Raises OSError where the address can't be had."""
        self._thread.start()
        self._started.wait()
        if self._failure is not None:
            raise self._failure
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """End all connections."""
        stop = self._stop
        if stop is not None:
            self._loop.call_soon_threadsafe(stop.set)
        self._thread.join()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._serve())
        finally:
            self._started.set()
            self._loop.close()

    async def _serve(self) -> None:
        self._stop = asyncio.Event()
        connections: set[asyncio.Task[None]] = set()

        async def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            connections.add(task)
            try:
                await self._carry(reader, writer)
            except asyncio.CancelledError:
                # The end of this object, which asks for it; nobody waits for the answer.
                pass
            finally:
                connections.discard(task)

        try:
            server = await asyncio.start_server(accepted, *self._listen)
        except OSError as error:
            self._failure = error
            return
        self.port = server.sockets[0].getsockname()[1]
        self._started.set()
        await self._stop.wait()
        server.close()
        for task in tuple(connections):
            task.cancel()
        await asyncio.gather(*connections, return_exceptions=True)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there, back = await asyncio.open_connection(*self._target)
        except OSError:
            writer.close()
            return
        try:
            await asyncio.gather(_copy(reader, back), _copy(there, writer))
        finally:
            for end in (writer, back):
                end.transport.abort()


async def _copy(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await source.read(CHUNK_BYTES):
            sink.write(data)
            await sink.drain()
        sink.write_eof()

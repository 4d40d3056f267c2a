"""`python -m raddle_tuner.trials.http_load DOCUMENT`: the load on a server, over HTTP.

The document is a Request as JSON. Connections are kept alive; a request that is due takes one that is free, or makes
one. What is not answered by a status of 2xx has failed.
"""

from __future__ import annotations

import asyncio
import json
import re
import selectors
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import Final

import aiohttp

from raddle_tuner.trials import arrivals, load
from raddle_tuner.trials.load import LoadError, LoadResult, LoadSpec

# What a client keeps at most; a request that finds all of them busy waits, and its waiting counts.
_MOST_CONNECTIONS: Final = 256
_ANSWER_CHARACTERS: Final = 200
_TAG: Final = re.compile("<[^<>]*>")
_ATTEMPT_S: Final = 10.0
_BETWEEN_ATTEMPTS_S: Final = 0.1
# Twice as many callers that get less than this times the answers get no more.
_MORE: Final = 1.1
# A server that comes up may say so by any other.
_REFUSALS: Final = (400, 401, 403, 405, 411, 413, 415, 422, 501)


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What is asked: a POST of what the file holds, or a GET where there is none."""

    url: str
    file: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)

    def body(self) -> bytes | None:
        """What is posted, None for a GET. Raises OSError."""
        return None if self.file is None else Path(self.file).read_bytes()


class RefusedError(Exception):
    """An answer that says that the request failed; the message is the status and the start of what came with it."""

    def __init__(self, status: int, text: str) -> None:
        known = {one.value: one.phrase for one in HTTPStatus}
        said = " ".join(_TAG.sub(" ", text).split())[:_ANSWER_CHARACTERS]
        super().__init__(f"{status} {known.get(status, '')}".strip() + (f": {said}" if said else ""))
        self.status = status


async def ask(client: aiohttp.ClientSession, request: Request, posted: bytes | None) -> bytes:
    """The answer's body. Raises RefusedError, aiohttp.ClientError, OSError."""
    method = "GET" if posted is None else "POST"
    async with client.request(method, request.url, data=posted, headers=request.headers) as answer:
        body = await answer.read()
        if not 200 <= answer.status < 300:
            raise RefusedError(answer.status, body.decode(errors="replace"))
        return body


def session() -> aiohttp.ClientSession:
    """A client that keeps its connections and follows no proxy of the environment."""
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=_MOST_CONNECTIONS), timeout=aiohttp.ClientTimeout(total=None)
    )


async def answered(request: Request, within_s: float, check: Callable[[], None]) -> bytes:
    """The first good answer of a server that is coming up. `check` is called between attempts and may raise.

    Raises LoadError where none comes within this time, or one that more time won't change.
    """
    end_s = time.monotonic() + within_s
    refused, said = False, "it does not answer"
    posted = request.body()
    async with session() as client:
        while (left_s := end_s - time.monotonic()) > 0:
            check()
            try:
                async with asyncio.timeout(min(left_s, _ATTEMPT_S)):
                    return await ask(client, request, posted)
            except RefusedError as error:
                refused, said = True, f"it answers {error}"
                if error.status in _REFUSALS:
                    raise LoadError(f"{request.url}: {said}") from None
            except TimeoutError:
                # The last attempt is short; what it answered before says more.
                said = said if refused else "it accepts connections but does not answer"
            except (aiohttp.ClientError, OSError) as error:
                said = str(error) or type(error).__name__
            await asyncio.sleep(_BETWEEN_ATTEMPTS_S)
    raise LoadError(f"{request.url}: no successful response within {within_s:.0f} s: {said}")


class Server:
    """A server that answers, and how many ask it at the same time where each waits for its answer."""

    def __init__(self, client: aiohttp.ClientSession, request: Request, callers: int) -> None:
        self._client = client
        self._request = request
        self._posted = request.body()
        self._callers = callers
        self._refused: Counter[str] = Counter()
        self._longest_s = 0.0

    async def offered(self, offer: LoadSpec, begun: Callable[[], None]) -> LoadResult:
        """Offers the load."""
        callers, longest_s = self._callers, 0.0
        if offer.warm_up_s:
            served, longest_s = await self._warm_up(callers, offer.warm_up_s)
            self._longest_s = max(self._longest_s, longest_s)
            if offer.most:
                callers, longest_s = await self._most(served, offer.warm_up_s)
            await asyncio.sleep(load.PAUSE_S)
        grace_s = load.grace_s(offer, max(self._longest_s, longest_s))
        begun()
        self._refused.clear()
        start_s = time.perf_counter() + 0.02
        end_s = start_s + offer.seconds
        await _until(start_s)
        if offer.rate is None:
            asked = await self._closed(callers, end_s, grace_s)
        else:
            asked = await self._open(
                start_s, arrivals.due(offer.rate, offer.seconds, offer.seed, offer.burst), end_s, grace_s
            )
        give_up_s = end_s + grace_s
        return LoadResult(
            latencies_ms=[load.rounded_ms((give_up_s if at is None else at) - due_s) for due_s, at in asked],
            missed=sum(at is None for _, at in asked),
            seconds=max(offer.seconds, max((at or due_s for due_s, at in asked), default=0.0) - start_s),
            refused=dict(self._refused),
        )

    async def _open(
        self, start_s: float, due: list[float], end_s: float, grace_s: float
    ) -> list[tuple[float, float | None]]:
        tasks = []
        for moment_s in due:
            await _until(start_s + moment_s)
            tasks.append(asyncio.create_task(self._one(start_s + moment_s, end_s + grace_s)))
        return [await task for task in tasks]

    async def _warm_up(self, callers: int, seconds: float) -> tuple[float, float]:
        """Answers a second to so many callers, and how many seconds the longest took."""
        start_s = time.perf_counter()
        asked = await self._closed(callers, start_s + seconds, load.WARM_UP_GRACE_S)
        took_s = [at - due_s for due_s, at in asked if at is not None]
        return len(took_s) / (time.perf_counter() - start_s), max(took_s, default=0.0)

    async def _most(self, served: float, seconds: float) -> tuple[int, float]:
        """How many callers get the most answers, doubled until twice as many get no more; the longest of them."""
        callers, longest_s = self._callers, 0.0
        while callers < _MOST_CONNECTIONS:
            twice = min(2 * callers, _MOST_CONNECTIONS)
            more, found_s = await self._warm_up(twice, seconds)
            if more <= _MORE * served:
                break
            callers, longest_s, served = twice, found_s, more
        return callers, longest_s

    async def _closed(self, callers: int, end_s: float, grace_s: float) -> list[tuple[float, float | None]]:
        result: list[tuple[float, float | None]] = []

        async def call() -> None:
            while (now_s := time.perf_counter()) < end_s:
                result.append(await self._one(now_s, end_s + grace_s))
                if result[-1][1] is None:
                    # One that refuses at once shall not be asked without end.
                    await asyncio.sleep(_BETWEEN_ATTEMPTS_S)

        await asyncio.gather(*(call() for _ in range(callers)))
        return sorted(result, key=lambda one: one[0])

    async def _one(self, due_s: float, give_up_s: float) -> tuple[float, float | None]:
        """When it was due and when it was answered, None for one that failed or is too late."""
        try:
            async with asyncio.timeout(max(0.0, give_up_s - time.perf_counter())):
                await ask(self._client, self._request, self._posted)
        except TimeoutError:
            return due_s, None
        except (RefusedError, aiohttp.ClientError, OSError) as error:
            self._refused[str(error) or type(error).__name__] += 1
            return due_s, None
        return due_s, time.perf_counter()


async def _until(moment_s: float) -> None:
    await asyncio.sleep(max(0.0, moment_s - time.perf_counter()))


def _loop() -> asyncio.AbstractEventLoop:
    # Not epoll, whose timeouts are whole milliseconds.
    return asyncio.SelectorEventLoop(selectors.SelectSelector())


def main() -> None:
    """Serves loads for a server: the request and the number of callers come as one JSON document."""
    document = json.loads(sys.argv[1])
    callers = document.pop("callers")
    with asyncio.Runner(loop_factory=_loop) as runner:
        client = runner.run(_client())
        server = Server(client, Request(**document), callers)
        load.serve(lambda offer, begun: runner.run(server.offered(offer, begun)))
        runner.run(client.close())


async def _client() -> aiohttp.ClientSession:
    return session()


if __name__ == "__main__":
    main()

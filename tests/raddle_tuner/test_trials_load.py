"""The load on runners: arrivals by chance and evenly spaced, one queue for all, closed loop, requests that nobody answers.

No timing is asserted.
"""

import asyncio
import contextlib
import socket
import threading
import time

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from hypothesis import given
from hypothesis import strategies as st

from raddle_tuner.trials import arrivals, http_load
from raddle_tuner.trials.load import LoadError, LoadSpec
from raddle_tuner.trials.runner_load import Runners

RATES = st.floats(0.5, 500)
SECONDS = st.floats(0.1, 5)


@given(RATES, SECONDS, st.integers(0, 2**31))
def test_arrivals_by_chance_are_as_many_as_the_rate_says_and_within_the_block(rate, seconds, seed):
    due = arrivals.due(rate, seconds, seed)
    assert len(due) == max(1, round(rate * seconds))
    assert due == sorted(due)
    assert all(0 <= moment <= seconds for moment in due)
    assert due == arrivals.due(rate, seconds, seed)


def test_arrivals_of_another_seed_are_others_and_without_a_seed_they_are_even():
    assert arrivals.due(100, 1, 1) != arrivals.due(100, 1, 2)
    assert arrivals.due(4, 1, None) == [0, 0.25, 0.5, 0.75]


def test_bursts_come_at_once_and_at_the_same_rate():
    assert arrivals.due(4, 1.5, None, burst=2) == [0, 0, 0.5, 0.5, 1, 1]


@pytest.fixture
def runners():
    """runners(*gates): runners that answer a request when their gate returns; None: never, until the test ends."""
    with contextlib.ExitStack() as stack:

        def make(*gates):
            links = []
            for gate in gates:
                ours, theirs = socket.socketpair()
                stack.enter_context(ours)
                links.append(ours)
                threading.Thread(target=answer, args=(theirs, gate), daemon=True).start()
            return Runners(links)

        def answer(link, gate):
            with link, contextlib.suppress(OSError):
                while request := link.recv(64):
                    gate()
                    link.sendall(request)

        yield make


def offer(rate, seconds, **more):
    return LoadSpec(rate=rate, seconds=seconds, seed=more.pop("seed", 1), **more)


def test_every_request_that_is_due_is_asked_once(runners):
    asked = []
    seen = runners(lambda: asked.append(1)).offered(offer(200, 0.2), lambda: None)
    assert (len(asked), seen.missed, len(seen.latencies_ms)) == (40, 0, 40)
    assert seen.seconds >= 0.2


def test_the_load_begins_after_the_warm_up(runners):
    asked, at_begin = [], []
    seen = runners(lambda: asked.append(1)).offered(offer(50, 0.1, warm_up_s=0.05), lambda: at_begin.append(len(asked)))
    assert len(seen.latencies_ms) == 5
    assert len(asked) == 5 + at_begin[0]
    assert at_begin[0] > 0


def test_waiting_behind_a_slow_request_counts_as_latency(runners):
    held, count = threading.Event(), []

    def gate():
        if not count:
            threading.Timer(0.15, held.set).start()
        count.append(1)
        held.wait()

    seen = runners(gate).offered(offer(100, 0.1, seed=None), lambda: None)
    # Request n was due n x 10 ms after the first one, which took at least 150 ms.
    assert all(latency_ms > 50 for latency_ms in seen.latencies_ms)
    assert seen.latencies_ms == sorted(seen.latencies_ms, reverse=True)


def test_a_free_runner_takes_what_another_has_no_time_for(runners):
    never = threading.Event()
    done = []

    def stuck():
        never.wait(10)

    def other():
        done.append(1)
        if len(done) == 9:
            never.set()

    seen = runners(stuck, other).offered(offer(100, 0.1), lambda: None)
    assert (len(done), seen.missed, len(seen.latencies_ms)) == (9, 0, 10)


def test_what_nobody_answers_in_time_is_missed_with_the_time_that_it_waited(runners):
    held = threading.Event()
    first = threading.Timer(0.4, held.set)
    first.start()
    seen = runners(held.wait).offered(offer(50, 0.1, grace_s=0.1, seed=None), lambda: None)
    assert (seen.missed, len(seen.latencies_ms)) == (5, 5)
    assert all(latency_ms >= 100 for latency_ms in seen.latencies_ms)


def test_a_program_that_is_slow_is_waited_for_as_its_longest_answer_took(runners):
    slow = runners(lambda: time.sleep(0.3))
    assert slow.offered(offer(50, 0.02, seed=None, grace_s=0.01, warm_up_s=0.2), lambda: None).missed == 0


def test_a_closed_loop_has_one_request_for_each_runner_at_a_time(runners):
    lock, now, most = threading.Lock(), [0], []

    def gate():
        with lock:
            now[0] += 1
            most.append(now[0])
        with lock:
            now[0] -= 1

    seen = runners(gate, gate).offered(offer(None, 0.1), lambda: None)
    assert seen.missed == 0
    assert len(seen.latencies_ms) == len(most)
    assert max(most) <= 2


def test_a_runner_that_ends_is_said(runners):
    def end():
        raise OSError

    with pytest.raises(LoadError, match="the runner has ended"):
        runners(end).offered(offer(50, 0.1), lambda: None)


async def most_at_once(**more):
    """How many requests a server that waits with each has at once at most, asked by one caller at first."""
    now, most = 0, 0

    async def wait(request):
        nonlocal now, most
        now += 1
        most = max(most, now)
        await asyncio.sleep(0.05)
        now -= 1
        return web.Response()

    app = web.Application()
    app.router.add_get("/", wait)
    async with TestServer(app) as server, http_load.session() as client:
        one = http_load.Server(client, http_load.Request(url=str(server.make_url("/"))), 1)
        seen = await one.offered(offer(None, 0.05, warm_up_s=0.05, **more), lambda: None)
    assert seen.missed == 0
    return most


async def test_the_most_that_a_waiting_server_serves_takes_more_callers():
    assert await most_at_once(most=True) >= 4
    assert await most_at_once() == 1

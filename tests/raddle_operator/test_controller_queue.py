"""The keyed queue and the versioned store: what keeps the controller level-triggered."""

import asyncio
import contextlib
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raddle_operator.controller.store import VersionedStore
from raddle_operator.controller.workqueue import KeyedQueue


@contextlib.asynccontextmanager
async def working(queue, handle, workers=1):
    task = asyncio.create_task(queue.run(handle, workers=workers))
    try:
        async with asyncio.timeout(10):
            yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


class Handler:
    """Notes the keys that it handles; `fail` says how often each key fails first."""

    def __init__(self, fail=None):
        self.handled = []
        self.fail = dict(fail or {})
        self._more = asyncio.Event()

    async def __call__(self, key):
        self.handled.append(key)
        self._more.set()
        if self.fail.get(key, 0) > 0:
            self.fail[key] -= 1
            raise RuntimeError("not yet")

    async def until(self, count):
        while len(self.handled) < count:
            self._more.clear()
            await self._more.wait()


async def test_a_key_that_waits_is_handled_once_however_often_it_is_added():
    queue, handler = KeyedQueue(), Handler()
    for key in "aabaabb":
        queue.add(key)
    assert len(queue) == 2
    async with working(queue, handler):
        await handler.until(2)
    assert handler.handled == ["a", "b"]


async def test_a_group_with_many_keys_holds_up_no_other():
    queue, handler = KeyedQueue(group=lambda key: key[0]), Handler()
    for key in ("a1", "a2", "a3", "a4", "b1", "b2", "c1"):
        queue.add(key)
    async with working(queue, handler):
        await handler.until(7)
    assert handler.handled == ["a1", "b1", "c1", "a2", "b2", "a3", "a4"]


async def test_a_change_while_a_key_is_handled_is_not_lost():
    queue = KeyedQueue()
    entered, leave, runs = asyncio.Event(), asyncio.Event(), []

    async def handle(key):
        runs.append(key)
        entered.set()
        await leave.wait()

    async with working(queue, handle, workers=3):
        queue.add("a")
        await entered.wait()
        queue.add("a")
        queue.add("a")
        await asyncio.sleep(0.02)
        assert runs == ["a"]  # one key is never handled twice at once
        entered.clear()
        leave.set()
        await entered.wait()
    assert runs == ["a", "a"]


async def test_a_key_that_fails_holds_up_no_other_and_comes_back():
    queue, handler = KeyedQueue(), Handler(fail={"a": 1})
    async with working(queue, handler):
        for key in "abc":
            queue.add(key)
        await handler.until(4)
    assert handler.handled == ["a", "b", "c", "a"]


async def test_a_key_runs_no_more_often_than_its_interval():
    queue, handler = KeyedQueue(interval_s=lambda key: 0.3 if key == "slow" else 0.0), Handler()
    loop = asyncio.get_running_loop()
    async with working(queue, handler):
        began_s = loop.time()
        queue.add("slow")
        await handler.until(1)
        queue.add("slow")
        queue.add("quick")
        await handler.until(2)
        assert handler.handled[1] == "quick"
        await handler.until(3)
        assert loop.time() - began_s >= 0.3


async def test_a_delay_holds_and_an_earlier_request_wins():
    queue, handler = KeyedQueue(), Handler()
    queue.add("a", delay_s=60)
    queue.add("b", delay_s=60)
    queue.add("b")
    async with working(queue, handler):
        await handler.until(1)
        await asyncio.sleep(0.02)
    assert handler.handled == ["b"]


async def test_a_delay_asked_for_by_the_handler_of_that_key_holds():
    queue, runs = KeyedQueue(), []

    async def handle(key):
        runs.append(key)
        queue.add(key, delay_s=60)

    async with working(queue, handle):
        queue.add("a")
        await asyncio.sleep(0.05)
    assert runs == ["a"]


def stored(*puts, changes=None):
    """A store of these versions of `a`, and what it has told of each change."""
    store = VersionedStore(lambda *change: None if changes is None else changes.append(change))
    for version, value in puts:
        store.put_newer("a", version, value)
    return store


def test_the_newer_version_wins_whichever_comes_first():
    changes = []
    store = stored((5, "five"), (4, "four"), (6, "six"), changes=changes)
    assert dict(store) == {"a": "six"}
    assert changes == [("a", None, "five"), ("a", "five", "six")]


def test_a_list_finds_the_deletion_that_the_stream_missed():
    changes = []
    store = stored((5, "five"), changes=changes)
    store.retain(set(), 10)
    assert dict(store) == {}
    assert changes[-1] == ("a", "five", None)


def test_a_list_does_not_remove_what_is_newer_than_it():
    store = stored((11, "eleven"))
    store.retain(set(), 10)
    assert dict(store) == {"a": "eleven"}


def test_an_old_list_does_not_bring_back_what_was_deleted_meanwhile():
    store = stored((5, "five"), (12, None), (5, "five"))  # the last from a list that was read at 10
    store.retain({"a"}, 10)
    assert dict(store) == {}


def test_what_was_deleted_can_be_created_again():
    assert dict(stored((5, "five"), (12, None), (13, "thirteen"))) == {"a": "thirteen"}


@given(st.permutations(range(1, 7)), st.sets(st.integers(1, 6)))
def test_in_whatever_order_changes_arrive_the_newest_stands(order, deletions):
    store = stored(*((version, None if version in deletions else f"v{version}") for version in order))
    assert dict(store) == ({} if 6 in deletions else {"a": "v6"})


@pytest.mark.parametrize("version", range(3, 8))
def test_a_list_after_every_change_leaves_exactly_the_list(version):
    store = stored()
    for number, key in zip(itertools.count(1), "abc", strict=False):
        store.put_newer(key, number, key)
    store.retain({"b"}, version)
    assert set(store) == {"b"}

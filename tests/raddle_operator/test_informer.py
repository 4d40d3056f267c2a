"""The informer against a scripted server: lists and watch streams in the order that a test says."""

import asyncio
import contextlib
import itertools

import pytest

from raddle_operator.kube import (
    NODES,
    Forbidden,
    Gone,
    NotFound,
    Page,
    Unauthorized,
    Unavailable,
    Unreachable,
    WatchEvent,
)
from raddle_operator.kube.informer import Informer, backoffs


def thing(name, version, value=0):
    return {"metadata": {"name": name, "resourceVersion": str(version)}, "value": value}


def event(kind, name, version, value=0):
    return WatchEvent(kind, thing(name, version, value))


class Script:
    """Stands in for Kube: answers each list and each watch with the next one of its script, then waits for ever.

    `server_at` is the version that it says when it is asked for no more than that.
    """

    def __init__(self, *, lists, watches=(), server_at=1_000_000):
        self.lists = list(lists)
        self.server_at = server_at
        self.looks = 0
        self.watches = list(watches)
        self.asked = []
        self.exhausted = asyncio.Event()

    async def pages(self, resource, namespace="", *, chunk_size, **_):
        if chunk_size == 1:
            self.looks += 1
            yield Page(str(self.server_at), [])
            return
        self.asked.append("list")
        answer = self.lists.pop(0) if len(self.lists) > 1 else self.lists[0]
        if isinstance(answer, Exception):
            raise answer
        version, *pages = answer
        for items in pages or [[]]:
            yield Page(str(version), items)

    async def watch(self, resource, namespace="", *, resource_version, **_):
        self.asked.append(f"watch {resource_version}")
        if not self.watches:
            self.exhausted.set()
            await asyncio.Event().wait()
        answer = self.watches.pop(0)
        for item in answer:
            if isinstance(item, Exception):
                raise item
            yield item


@contextlib.asynccontextmanager
async def following(script, **options):
    seen = []
    informer = Informer(
        script,
        NODES,
        options.pop("transform", lambda obj: obj["value"]),
        first_pause_s=0.01,
        on_change=lambda key, old, new: seen.append((key[1], old, new)),
        **options,
    )
    task = asyncio.create_task(informer.run())
    try:
        async with asyncio.timeout(10):
            await script.exhausted.wait()
        yield informer, seen
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_a_list_in_chunks_fills_the_store_before_the_watch_begins():
    script = Script(lists=[(5, [thing("a", 1, 1)], [thing("b", 2, 2)])])
    async with following(script) as (informer, seen):
        assert informer.synced.is_set()
        assert dict(informer.store) == {("", "a"): 1, ("", "b"): 2}
        assert seen == [("a", None, 1), ("b", None, 2)]
        assert script.asked == ["list", "watch 5"]


async def test_changes_update_the_store_and_bookmarks_only_the_version():
    changes = [event("ADDED", "a", 6, 1), event("MODIFIED", "a", 7, 2), event("DELETED", "a", 8)]
    script = Script(lists=[(5,)], watches=[[*changes, event("BOOKMARK", "", 90)]])
    async with following(script) as (informer, seen):
        assert seen == [("a", None, 1), ("a", 1, 2), ("a", 2, None)]
        assert dict(informer.store) == {}
        assert script.asked == ["list", "watch 5", "watch 90"]


async def test_after_gone_the_list_replaces_the_store_and_reports_what_vanished():
    lists = [(5, [thing("gone", 1, 1), thing("stays", 2, 2)]), (50, [thing("stays", 2, 2), thing("new", 40, 4)])]
    script = Script(lists=lists, watches=[[Gone(410, "Expired", "too old")]])
    async with following(script) as (informer, seen):
        assert dict(informer.store) == {("", "stays"): 2, ("", "new"): 4}
        assert seen[2:] == [("gone", 1, None), ("new", None, 4)]
        assert script.asked == ["list", "watch 5", "list", "watch 50"]


async def test_a_broken_connection_resumes_the_watch_where_it_was():
    script = Script(lists=[(5,)], watches=[[event("ADDED", "a", 6, 1), Unavailable(0, "NoAnswer", "reset")]])
    async with following(script) as (informer, _):
        assert script.asked == ["list", "watch 5", "watch 6"]
        assert dict(informer.store) == {("", "a"): 1}
        assert informer.errors == 1


@pytest.mark.parametrize("end", [[], [Unavailable(0, "BrokenOff", "reset")], [Unavailable(429, "Busy", "stopping")]])
async def test_where_a_watch_ends_early_and_the_server_is_behind_what_was_heard_it_lists_again(end):
    told = []
    lists = [(5, [thing("a", 5, 1)]), (6, [thing("a", 6, 2)])]
    script = Script(lists=lists, watches=[[event("BOOKMARK", "", 90), *end]], server_at=6)
    async with following(script, on_rewind=lambda: told.append("rewound")) as (informer, _):
        assert script.asked == ["list", "watch 5", "list", "watch 6"]
        assert dict(informer.store) == {("", "a"): 2}
        assert told == ["rewound"]


async def test_where_a_watch_ends_early_and_the_server_is_where_it_was_the_watch_goes_on():
    script = Script(lists=[(5,)], watches=[[event("BOOKMARK", "", 90)], []], server_at=90)
    async with following(script) as _:
        assert script.asked == ["list", "watch 5", "watch 90", "watch 90"]
        assert script.looks == 2


async def test_after_a_server_that_could_not_be_reached_it_lists_again():
    refused = [Unreachable(0, "NoAnswer", "refused")]
    script = Script(lists=[(5, [thing("a", 5, 1)]), (9, [thing("a", 9, 2)])], watches=[refused])
    async with following(script) as (informer, _):
        assert script.asked == ["list", "watch 5", "list", "watch 9"]
        assert dict(informer.store) == {("", "a"): 2}


@pytest.mark.parametrize(
    ("heard", "listed", "expected"), [(9, 7, ["rewound"]), (9, 9, []), (9, 100, []), (100, 99, ["rewound"])]
)
async def test_a_list_that_is_older_than_what_was_heard_is_told(heard, listed, expected):
    told = []
    script = Script(
        lists=[(5, [thing("a", 1, 1)]), (listed, [thing("a", 1, 2)])],
        watches=[[event("BOOKMARK", "", heard), Unreachable(0, "NoAnswer", "refused")]],
    )
    async with following(script, on_rewind=lambda: told.append("rewound")) as (informer, _):
        assert dict(informer.store) == {("", "a"): 2}
    assert told == expected


async def test_no_refusal_ends_it_and_what_is_known_stays():
    refusals = [Unauthorized(401, "", ""), Forbidden(403, "", ""), Unavailable(503, "", ""), RuntimeError("a bug")]
    script = Script(lists=[(5, [thing("a", 1, 1)])], watches=[[refusal] for refusal in refusals])
    async with following(script) as (informer, _):
        assert informer.errors == len(refusals)
        assert dict(informer.store) == {("", "a"): 1}


async def test_a_list_that_is_refused_is_tried_again():
    script = Script(lists=[Forbidden(403, "Forbidden", "no"), (5, [thing("a", 1, 1)])])
    async with following(script) as (informer, _):
        assert dict(informer.store) == {("", "a"): 1}
        assert script.asked == ["list", "list", "watch 5"]


async def test_a_kind_that_is_not_installed_is_one_line_in_the_log(caplog):
    refusals = [NotFound(404, "NotFound", "no such kind")] * 3
    script = Script(lists=[*refusals, (5, [])])
    async with following(script) as (informer, _):
        assert informer.errors == len(refusals)
    assert [one.message for one in caplog.records if one.levelname == "WARNING"] == [f"nodes: {refusals[0]}"]


async def test_an_object_that_the_transform_leaves_out_is_not_kept_and_leaves_when_it_changes_so():
    events = [event("MODIFIED", "a", 6, None), event("ADDED", "b", 7, None)]
    script = Script(lists=[(5, [thing("a", 1, 1)])], watches=[events])
    async with following(script) as (informer, seen):
        assert dict(informer.store) == {}
        assert seen == [("a", None, 1), ("a", 1, None)]


async def test_an_object_that_the_transform_cannot_read_costs_that_object_only():
    def transform(obj):
        if obj["value"] == 13:
            raise ValueError("unlucky")
        return obj["value"]

    script = Script(lists=[(5, [thing("a", 1, 13), thing("b", 2, 2)])])
    async with following(script, transform=transform) as (informer, _):
        assert dict(informer.store) == {("", "b"): 2}


async def test_a_callback_that_fails_costs_that_call_only():
    script = Script(lists=[(5, [thing("a", 1, 1), thing("b", 2, 2)])])
    async with following(script) as (informer, seen):

        def failing(*_):
            raise RuntimeError("a bug")

        informer.subscribe(failing)
        informer.relist()
        script.exhausted.clear()
        script.lists = [(9, [thing("a", 8, 8)])]
        async with asyncio.timeout(10):
            await script.exhausted.wait()
        assert dict(informer.store) == {("", "a"): 8}
        assert seen[2:] == [("b", 2, None), ("a", 1, 8)]


async def test_it_lists_again_at_its_own_interval_even_while_the_watch_is_well():
    script = Script(lists=[(5,)], watches=[])
    async with following(script, relist_every_s=0.05) as (informer, _):
        async with asyncio.timeout(10):
            while informer.relists < 3:
                script.exhausted.clear()
                await script.exhausted.wait()


async def test_ages_are_unknown_before_the_first_list():
    informer = Informer(Script(lists=[(5,)]), NODES, lambda obj: obj)
    assert informer.age_s is None
    assert informer.list_age_s is None


def test_pauses_double_up_to_a_cap_and_never_end():
    pauses = list(itertools.islice(backoffs(1.0, 8.0), 6))
    for pause, step in zip(pauses, [1, 2, 4, 8, 8, 8], strict=True):
        assert step / 2 <= pause <= step

"""The API client and the informer against a real API server."""

import asyncio
import base64
import contextlib
import itertools
import json

import aiohttp
import pytest
from support.waiting import until

from raddle_operator import kube as k
from raddle_operator.kube import CONFIG_MAPS, NAMESPACES, Kube
from raddle_operator.kube.informer import Informer

pytestmark = pytest.mark.cluster

_numbers = itertools.count()


@pytest.fixture(scope="module")
def cluster(api_server):
    return api_server


@pytest.fixture
async def namespace(kube):
    name = f"test-{next(_numbers)}"
    await kube.create(NAMESPACES, {"metadata": {"name": name}})
    return name


def config_map(name, namespace, **data):
    return {"metadata": {"name": name, "namespace": namespace, "labels": {"made-by": "test"}}, "data": data}


@contextlib.asynccontextmanager
async def running(informer):
    task = asyncio.create_task(informer.run())
    try:
        async with asyncio.timeout(20):
            await informer.synced.wait()
        yield informer
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


class Changes:
    """Collects what an informer reports and lets a test await it."""

    def __init__(self):
        self.seen = []
        self._more = asyncio.Event()

    def __call__(self, key, old, new):
        self.seen.append((key, old, new))
        self._more.set()

    async def until(self, change):
        async with asyncio.timeout(20):
            while change not in self.seen:
                self._more.clear()
                await self._more.wait()


async def compact(cluster, revision):
    """Has etcd forget what was before the revision, by its gateway: its commands would have to be built."""
    connector = aiohttp.UnixConnector(str(cluster.directory / "clients:0"))
    url = "http://etcd/v3/kv/compaction"
    async with (
        aiohttp.ClientSession(connector=connector) as session,
        session.post(url, json={"revision": revision}) as response,
    ):
        assert response.status == 200, await response.text()


async def test_the_rest_of_a_list_whose_version_is_forgotten_comes_as_it_is_now_and_each_object_once(
    cluster, kube, namespace
):
    # Of these the server keeps no past in memory, so that it has forgotten what etcd has.
    path = f"/api/v1/namespaces/{namespace}/events"
    about = {"kind": "Namespace", "name": namespace, "namespace": namespace}
    versions = []
    for name in "abdce":
        event = {"metadata": {"name": name, "namespace": namespace}, "involvedObject": about}
        versions.append((await kube.request("POST", path, body=event))["metadata"]["resourceVersion"])
    await compact(cluster, versions[-1])
    # What comes after a, as it was when c and e were not there yet: a list of more would take minutes to expire.
    said = {"v": "meta.k8s.io/v1", "rv": int(versions[2]), "start": "a\0"}
    token = base64.urlsafe_b64encode(json.dumps(said).encode()).decode().rstrip("=")
    with pytest.raises(k.Gone) as caught:
        await kube.request("GET", path, query={"limit": "2", "continue": token})
    found, token = [], caught.value.continue_token
    while token:
        page = await kube.request("GET", path, query={"limit": "2", "continue": token})
        found += [one["metadata"]["name"] for one in page["items"]]
        token = page["metadata"].get("continue")
    assert found == ["b", "c", "d", "e"]


async def test_each_refusal_has_its_own_type(kube, namespace):
    made = await kube.create(CONFIG_MAPS, config_map("a", namespace))
    with pytest.raises(k.AlreadyExists):
        await kube.create(CONFIG_MAPS, config_map("a", namespace))
    await kube.replace(CONFIG_MAPS, {**made, "data": {"x": "1"}})
    with pytest.raises(k.Conflict):
        await kube.replace(CONFIG_MAPS, {**made, "data": {"x": "2"}})
    with pytest.raises(k.Conflict):
        await kube.delete(CONFIG_MAPS, "a", namespace, uid="another")
    with pytest.raises(k.Invalid, match=r"metadata\.name"):
        await kube.create(CONFIG_MAPS, config_map("Not A Name", namespace))


async def test_a_user_without_rights_is_forbidden(cluster, namespace):
    async with await Kube.from_settings(cluster.user("nobody-special")) as nobody:
        with pytest.raises(k.Forbidden):
            await nobody.list(CONFIG_MAPS, namespace)


async def test_apply_creates_then_merges_and_a_no_op_keeps_the_version(kube, namespace):
    first = await kube.apply(CONFIG_MAPS, config_map("a", namespace, x="1"), field_manager="one")
    again = await kube.apply(CONFIG_MAPS, config_map("a", namespace, x="1"), field_manager="one")
    assert again["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]
    merged = await kube.apply(CONFIG_MAPS, config_map("a", namespace, y="2"), field_manager="two")
    assert merged["data"] == {"x": "1", "y": "2"}
    with pytest.raises(k.Conflict):
        await kube.apply(CONFIG_MAPS, config_map("a", namespace, x="9"), field_manager="two", force=False)


async def test_a_list_is_read_in_chunks_and_filtered_by_the_server(kube, namespace):
    for number in range(7):
        await kube.create(CONFIG_MAPS, config_map(f"c{number}", namespace))
    pages = [page async for page in kube.pages(CONFIG_MAPS, namespace, chunk_size=3, label_selector="made-by=test")]
    assert [len(page.items) for page in pages] == [3, 3, 1]
    assert len({page.resource_version for page in pages}) == 1
    named = await kube.list(CONFIG_MAPS, namespace, field_selector="metadata.name=c4")
    assert [item["metadata"]["name"] for item in named.items] == ["c4"]


async def test_metadata_only_leaves_the_rest_on_the_server(kube, namespace):
    await kube.create(CONFIG_MAPS, config_map("a", namespace, x="1"))
    got = await kube.get(CONFIG_MAPS, "a", namespace, metadata_only=True)
    assert got["kind"] == "PartialObjectMetadata"
    assert "data" not in got
    listed = await kube.list(CONFIG_MAPS, namespace, metadata_only=True)
    assert all("data" not in item for item in listed.items)


async def test_a_watch_brings_changes_in_order_and_ends_when_the_server_says_so(kube, namespace):
    start = await kube.list(CONFIG_MAPS, namespace)
    made = await kube.create(CONFIG_MAPS, config_map("a", namespace))
    await kube.replace(CONFIG_MAPS, {**made, "data": {"x": "1" * 300_000}})
    await kube.delete(CONFIG_MAPS, "a", namespace)
    watch = kube.watch(CONFIG_MAPS, namespace, resource_version=start.resource_version, timeout_seconds=2)
    events = [event async for event in watch]
    assert [event.type for event in events if event.type != "BOOKMARK"] == ["ADDED", "MODIFIED", "DELETED"]


async def until_ready(cluster):
    async with await Kube.from_settings(cluster.kubeconfig) as client:
        await until(lambda: client.list(CONFIG_MAPS, "default"), refusals=(k.Unavailable, k.Forbidden))


async def test_an_informer_follows_creation_change_and_deletion(kube, namespace):
    changes = Changes()
    informer = Informer(kube, CONFIG_MAPS, lambda obj: obj.get("data"), namespace=namespace, on_change=changes)
    key = (namespace, "a")
    async with running(informer):
        made = await kube.create(CONFIG_MAPS, config_map("a", namespace, x="1"))
        await changes.until((key, None, {"x": "1"}))
        await kube.replace(CONFIG_MAPS, {**made, "data": {"x": "2"}})
        await changes.until((key, {"x": "1"}, {"x": "2"}))
        assert informer.store[key] == {"x": "2"}
        await kube.delete(CONFIG_MAPS, "a", namespace)
        await changes.until((key, {"x": "2"}, None))
        assert key not in informer.store


async def test_an_informer_outlives_the_api_server_and_finds_what_changed_meanwhile(cluster, kube, namespace):
    await kube.create(CONFIG_MAPS, config_map("old", namespace, x="1"))
    changes = Changes()
    informer = Informer(kube, CONFIG_MAPS, lambda obj: obj["data"]["x"], namespace=namespace, on_change=changes)
    async with running(informer):
        cluster.restart("apiserver")
        await until_ready(cluster)
        await kube.delete(CONFIG_MAPS, "old", namespace)
        await kube.create(CONFIG_MAPS, config_map("new", namespace, x="2"))
        await changes.until(((namespace, "old"), "1", None))
        await changes.until(((namespace, "new"), None, "2"))
        assert dict(informer.store) == {(namespace, "new"): "2"}

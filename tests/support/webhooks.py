"""A webhook on free ports with caches filled by hand, and reviews as the API server writes them."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import io
import json
import ssl
from dataclasses import dataclass

import aiohttp
import jsonpatch

from assembling import regular
from cluster import objects
from raddle import delivery
from raddle.cpus.topology import Kubelet
from raddle_operator.certificates import local_issue
from raddle_operator.objects import nodetopology
from raddle_operator.webhook.process import Webhook, serve_until
from raddle_operator.webhook.settings import WebhookSettings
from raddle_operator.webhook.sources import MemorySources
from support.waiting import until

UID = "7d1c2f2e-6f3a-4f57-9d8c-1f0f5b7a1c11"


def namespace(name="models", inject="enabled"):
    return objects.namespace(name, {"raddle.dev/inject": inject} if inject else {})


def policy(name="fast", namespace="models", **spec):
    return objects.policy(name, namespace, metadata={"uid": f"uid-{name}", "generation": 1}, **spec)


def pod(name="resnet-1", namespace="models", cpu="4", **spec):
    return objects.pod(objects.container(cpu=cpu), name=name, namespace=namespace, labels={"app": "resnet"}, **spec)


def injected(name="resnet-1", namespace="models", uid="pod-1", **changes):
    """What the watch shows of a pod that this webhook has injected; fill `annotations` from a patched pod."""
    labels = {"app": "resnet", "raddle.dev/injected": "true"}
    return {"metadata": {"name": name, "namespace": namespace, "uid": uid, "labels": labels, **changes}}


def shim(namespace="models"):
    content = delivery.content_hash()
    metadata = {"name": f"raddle-shim-{content}", "namespace": namespace, "labels": {"raddle.dev/shim": content}}
    return {"metadata": metadata}


def machine(cores=8, *, threads_per_core=1):
    facts = {"architecture": "x86_64", "kubelet": Kubelet("none"), "boot_id": "b"}
    return regular(cores, threads_per_core, l3_domains=0, **facts)


def topology(node="n1", *, fresh=None, of=None):
    obj = {"metadata": {"name": node}, "spec": nodetopology.to_spec(of or machine())}
    if fresh is not None:
        obj["status"] = {"conditions": [{"type": "Fresh", "status": "True" if fresh else "False"}]}
    return obj


def binding(name="resnet-1", namespace="models", uid="pod-1", node="n1"):
    metadata = {"name": name, "namespace": namespace, **({"uid": uid} if uid else {})}
    return {"apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": {"kind": "Node", "name": node}}


def review(obj, *, resource="pods", subresource="", operation="CREATE", uid=UID, dry_run=False, **changes):
    metadata = obj.get("metadata", {})
    request = {
        "uid": uid,
        "kind": {"group": "", "version": "v1", "kind": obj.get("kind", "")},
        "resource": {"group": "", "version": "v1", "resource": resource},
        **({"subResource": subresource} if subresource else {}),
        "name": metadata.get("name", ""),
        "namespace": metadata.get("namespace", ""),
        "operation": operation,
        "userInfo": {"username": "system:serviceaccount:kube-system:replicaset-controller"},
        "object": obj,
        "oldObject": None,
        "dryRun": dry_run,
        "options": {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"},
        **changes,
    }
    return {"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": request}


def binding_review(obj, **changes):
    return review(obj, resource="pods", subresource="binding", **changes)


def operations(response):
    """The JSON patch of an answer's response, [] for none."""
    if "patch" not in response:
        return []
    assert response["patchType"] == "JSONPatch"
    return json.loads(base64.b64decode(response["patch"]))


def patched(obj, response):
    return jsonpatch.apply_patch(obj, operations(response))


@dataclass
class Served:
    """A running webhook and a client that trusts it."""

    webhook: Webhook
    memory: MemorySources
    session: aiohttp.ClientSession
    stop: asyncio.Event
    stopped: asyncio.Task

    @property
    def url(self):
        return f"https://127.0.0.1:{self.webhook.addresses['https']}"

    @property
    def health(self):
        return f"http://127.0.0.1:{self.webhook.addresses['health']}"

    async def post(self, path, body, query="?timeout=2s"):
        """(status, text or bytes) of a review sent to a path; `body` is bytes or becomes JSON."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        async with self.session.post(self.url + path + query, data=io.BytesIO(data)) as response:
            return response.status, await response.read()

    async def admit(self, path, body, query="?timeout=2s"):
        """The response of an answer that is an AdmissionReview, as it must be."""
        status, data = await self.post(path, body, query)
        assert status == 200, data
        answer = json.loads(data)
        assert answer.keys() == {"apiVersion", "kind", "response"}
        assert (answer["apiVersion"], answer["kind"]) == ("admission.k8s.io/v1", "AdmissionReview")
        assert answer["response"]["allowed"] is True
        return answer["response"]

    async def create(self, obj, **changes):
        return await self.admit("/mutate/pods", review(obj, **changes))

    async def bind(self, obj, query="?timeout=1s", **changes):
        return await self.admit("/mutate/binding", binding_review(obj, **changes), query)

    async def get(self, address, path):
        async with self.session.get(address + path) as response:
            return response.status, await response.text()

    def count(self, name, **labels):
        return self.webhook.metrics.value(name, **labels)


def trusting(folder):
    return ssl.create_default_context(cafile=folder / "ca.crt")


def settings(folder, **changes):
    given = {
        "tls_dir": folder,
        "host": "127.0.0.1",
        "port": 0,
        "health_port": 0,
        "drain_delay_s": 0.0,
        "certificate_check_s": 0.02,
        **changes,
    }
    return WebhookSettings(**given)


@contextlib.asynccontextmanager
async def running(folder, memory=None, *, kube=None, **changes):
    """A webhook and its client; its certificate is in `folder`, with these caches (empty ones when none are given)."""
    memory = memory or MemorySources.empty()
    if not (folder / "tls.crt").exists():
        local_issue(folder, ["127.0.0.1", "localhost"])
    told = settings(folder, **changes)
    sources = memory.sources(tuning=told.tuning)
    webhook = Webhook(told, sources, kube)
    stop = asyncio.Event()
    stopped = asyncio.create_task(serve_until(stop, webhook))
    await until(lambda: "https" in webhook.addresses or stopped.done())
    assert not stopped.done(), stopped.result()
    connector = aiohttp.TCPConnector(ssl=trusting(folder), limit=0)
    async with aiohttp.ClientSession(connector=connector) as session:
        try:
            yield Served(webhook, memory, session, stop, stopped)
        finally:
            stop.set()
            await stopped
            await asyncio.sleep(0)


def stocked():
    """Caches of a small cluster: one enabled namespace with one policy, one node of 8 cores."""
    memory = MemorySources.empty()
    memory.namespaces.put(namespace())
    memory.policies.put(policy())
    memory.topologies.put(topology())
    memory.shims.put(shim())
    return memory

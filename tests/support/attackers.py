"""Those who mean ill: a user of one namespace, a service account by its token, and what to measure of their victims."""

import base64
import contextlib
import http.client
import json
import ssl
import statistics
import time
from typing import NamedTuple
from urllib.parse import urlsplit

import psutil
import yaml

from cluster.objects import injected
from cluster.waiting import wait
from support import rights
from support.reliability.installed import CONFIGURATION_PATH, pod

MERGE_PATCH, APPLY_PATCH = "application/merge-patch+json", "application/apply-patch+yaml"
FORBIDDEN, UNPROCESSABLE, CREATED = 403, 422, 201
MIB = 2**20
# What another tenant's create may take: the API server's share alone takes a tenth of it on a busy machine.
CREATE_SECONDS = 1.0
# The chart's memory limits.
WEBHOOK_BYTES, CONTROLLER_BYTES = 256 * MIB, 512 * MIB


class Answer(NamedTuple):
    """An HTTP status and the JSON object that came with it."""

    status: int
    body: dict

    @property
    def message(self):
        """What the API server said of a refusal, "" where it refused nothing."""
        return str(self.body.get("message", "")) if self.status >= http.client.BAD_REQUEST else ""


class Caller:
    """Somebody who talks to the API server: by a bearer token, or by a certificate."""

    def __init__(self, cluster, *, token="", pair=None):
        address = urlsplit(cluster.server)
        context = ssl.create_default_context(cafile=str(cluster.ca_file))
        if pair is not None:
            context.load_cert_chain(*pair)
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._connection = http.client.HTTPSConnection(address.hostname, address.port, timeout=30, context=context)

    @classmethod
    def account(cls, cluster, name, namespace, bound_to=None):
        """A service account by a new token, bound to a pod where one is given, as the kubelet binds them."""
        return cls(cluster, token=cluster.account_token(name, namespace, bound_to))

    @classmethod
    def user(cls, cluster, name):
        """A user by a certificate."""
        kubeconfig = cluster.user(name)
        user = yaml.safe_load(kubeconfig.read_text())["users"][0]["user"]
        pair = kubeconfig.with_suffix(".crt"), kubeconfig.with_suffix(".key")
        for path, content in zip(pair, ("client-certificate-data", "client-key-data"), strict=True):
            path.write_bytes(base64.b64decode(user[content]))
        return cls(cluster, pair=pair)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._connection.close()

    def request(self, method, path, body=None, content_type="application/json"):
        """Send a request; its answer, whatever it is."""
        headers = {**self._headers, "Content-Type": content_type}
        self._connection.request(method, path, None if body is None else json.dumps(body), headers)
        response = self._connection.getresponse()
        content = response.read()
        if response.headers.get_content_type() != "application/json":
            return Answer(response.status, {"message": content.decode(errors="replace")})
        return Answer(response.status, json.loads(content))

    def merge(self, path, patch):
        """Patch an object (RFC 7386)."""
        return self.request("PATCH", path, patch, MERGE_PATCH)

    def apply(self, path, manifest):
        """Create or change an object by server-side apply."""
        return self.request("PATCH", f"{path}?fieldManager=somebody&force=true", manifest, APPLY_PATCH)


@contextlib.contextmanager
def user_of(space):
    """Somebody with `edit` in a namespace, who may write pods/status there as well."""
    name = f"mallory-of-{space.name}"
    rules = [rights.rule("", "pods/status", "get patch update")]
    rights.grant(space.client, "pod-status", rules, rights.user(name), namespace=space.name)
    rights.bind(space.client, "edit", rights.user(name), namespace=space.name)
    with Caller.user(space.cluster, name) as caller:
        own = f"/apis/raddle.dev/v1alpha1/namespaces/{space.name}/inferencethreadings"
        wait(lambda: caller.request("GET", own).status == http.client.OK, f"{name} has the rights of edit")
        yield caller


@contextlib.contextmanager
def unharmed(raddle):
    """Hold that meanwhile no process of Raddle's has ended, and no answer was an exception."""
    pids = raddle.webhook.pid, raddle.controller.pid
    failed_open = raddle.webhook.metric("raddle_webhook_fail_open_total")
    yield
    assert None not in pids
    assert (raddle.webhook.pid, raddle.controller.pid) == pids
    assert raddle.webhook.metric("raddle_webhook_fail_open_total") == failed_open


def webhook_address(client):
    """Host and port of the webhook, as its configuration says by a URL."""
    parts = urlsplit(client.get(CONFIGURATION_PATH)["webhooks"][0]["clientConfig"]["url"])
    return parts.hostname, parts.port


# --- measuring --------------------------------------------------------------------------------------------------------


def create_seconds(space, count=20):
    """The median seconds of so many creations of pods that get values, tried by dry run."""
    taken = []
    for number in range(count):
        began_s = time.monotonic()
        made = space.probe(pod(f"p{number}"))
        taken.append(time.monotonic() - began_s)
        assert injected(made)
    return statistics.median(taken)


def told_ms(*seconds):
    """Times as text, in milliseconds."""
    return ", ".join(f"{1000 * one:.0f} ms" for one in seconds)


class Usage(NamedTuple):
    """What a process has taken so far."""

    cpu_s: float
    memory_bytes: int

    @classmethod
    def of(cls, pid):
        process = psutil.Process(pid)
        times = process.cpu_times()
        return cls(times.user + times.system, process.memory_info().rss)

    @property
    def memory(self):
        return f"{self.memory_bytes / MIB:.0f} MiB"

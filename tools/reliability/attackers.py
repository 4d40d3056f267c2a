"""Those who mean ill: a user of one namespace, a service account by its token, and what to measure of their victims."""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import ssl
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Self
from urllib.parse import urlsplit

import psutil
import yaml

from cluster import Cluster
from cluster.local_raddle import NAMESPACE, LocalRaddle
from cluster.namespaces import TestNamespace
from cluster.objects import injected
from cluster.waiting import wait
from reliability.model import BrokenError
from reliability.world import pod

RBAC = "rbac.authorization.k8s.io"
MERGE_PATCH, APPLY_PATCH = "application/merge-patch+json", "application/apply-patch+yaml"
FORBIDDEN, UNPROCESSABLE, CREATED = 403, 422, 201
MIB = 2**20
# What another tenant's create may take: the API server's share alone takes a tenth of it on a busy machine.
CREATE_SECONDS = 1.0
# The chart's memory limit of the webhook.
WEBHOOK_BYTES = 256 * MIB


class Answer(NamedTuple):
    """An HTTP status and the JSON object that came with it."""

    status: int
    body: dict[str, Any]

    @property
    def message(self) -> str:
        """Return what the API server said of a refusal, "" where it refused nothing."""
        return str(self.body.get("message", "")) if self.status >= http.client.BAD_REQUEST else ""


class Caller:
    """Somebody who talks to the API server: by a bearer token, or by a certificate."""

    def __init__(self, cluster: Cluster, *, token: str = "", pair: tuple[Path, Path] | None = None) -> None:
        """Connect at the first request."""
        address = urlsplit(cluster.server)
        context = ssl.create_default_context(cafile=str(cluster.ca_file))
        if pair is not None:
            context.load_cert_chain(*pair)
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._connection = http.client.HTTPSConnection(
            address.hostname or "", address.port, timeout=30, context=context
        )

    @classmethod
    def account(cls, cluster: Cluster, name: str, namespace: str, bound_to: Mapping[str, Any] | None = None) -> Self:
        """Return a service account by a new token, bound to a pod where one is given, as the kubelet binds them."""
        spec: dict[str, Any] = {"expirationSeconds": 3600}
        if bound_to is not None:
            metadata = bound_to["metadata"]
            spec["boundObjectRef"] = {
                "apiVersion": "v1", "kind": "Pod", "name": metadata["name"], "uid": metadata["uid"],
            }  # fmt: skip
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token"
        made = cluster.client.post(path, {"spec": spec})
        return cls(cluster, token=made["status"]["token"])

    @classmethod
    def user(cls, cluster: Cluster, name: str) -> Self:
        """Return a user by a certificate."""
        kubeconfig = cluster.user(name)
        user = yaml.safe_load(kubeconfig.read_text())["users"][0]["user"]
        pair = kubeconfig.with_suffix(".crt"), kubeconfig.with_suffix(".key")
        for path, content in zip(pair, ("client-certificate-data", "client-key-data"), strict=True):
            path.write_bytes(base64.b64decode(user[content]))
        return cls(cluster, pair=pair)

    def __enter__(self) -> Self:
        """Return the caller itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the connection."""
        self._connection.close()

    def request(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, content_type: str = "application/json"
    ) -> Answer:
        """Send a request and return its answer, whatever it is."""
        headers = {**self._headers, "Content-Type": content_type}
        self._connection.request(method, path, None if body is None else json.dumps(body), headers)
        response = self._connection.getresponse()
        content = response.read()
        if response.headers.get_content_type() != "application/json":
            return Answer(response.status, {"message": content.decode(errors="replace")})
        return Answer(response.status, json.loads(content))

    def merge(self, path: str, patch: Mapping[str, Any]) -> Answer:
        """Patch an object (RFC 7386)."""
        return self.request("PATCH", path, patch, MERGE_PATCH)

    def apply(self, path: str, manifest: Mapping[str, Any]) -> Answer:
        """Create or change an object by server-side apply."""
        return self.request("PATCH", f"{path}?fieldManager=somebody&force=true", manifest, APPLY_PATCH)


@contextlib.contextmanager
def user_of(space: TestNamespace) -> Iterator[Caller]:
    """Somebody with `edit` in a namespace, who may write pods/status there as well."""
    name = f"mallory-of-{space.name}"
    rules = [{"apiGroups": [""], "resources": ["pods/status"], "verbs": ["get", "patch", "update"]}]
    space.store({"apiVersion": f"{RBAC}/v1", "kind": "Role", "metadata": {"name": "pod-status"}, "rules": rules})
    for kind, role in (("ClusterRole", "edit"), ("Role", "pod-status")):
        space.store(
            {
                "apiVersion": f"{RBAC}/v1",
                "kind": "RoleBinding",
                "metadata": {"name": f"mallory-{role}"},
                "roleRef": {"apiGroup": RBAC, "kind": kind, "name": role},
                "subjects": [{"apiGroup": RBAC, "kind": "User", "name": name}],
            }
        )
    with Caller.user(space.cluster, name) as caller:
        own = f"/apis/raddle.dev/v1alpha1/namespaces/{space.name}/inferencethreadings"
        wait(lambda: caller.request("GET", own).status == http.client.OK, f"{name} has the rights of edit")
        yield caller


@contextlib.contextmanager
def unharmed(raddle: LocalRaddle) -> Iterator[None]:
    """Raise BrokenError at the end if a process of Raddle's has ended meanwhile, or an answer was an exception."""
    pids = raddle.webhook.pid, raddle.controller.pid
    failed_open = raddle.webhook.metric("raddle_webhook_fail_open_total")
    yield
    if None in pids or (raddle.webhook.pid, raddle.controller.pid) != pids:
        raise BrokenError("a process of Raddle's has ended")
    if raddle.webhook.metric("raddle_webhook_fail_open_total") != failed_open:
        raise BrokenError("the webhook has met an exception of its own")


# --- measuring --------------------------------------------------------------------------------------------------------


def create_seconds(space: TestNamespace, count: int = 20) -> list[float]:
    """Seconds of each of so many creations of pods that get values, tried by dry run, in order of size."""
    taken = []
    for number in range(count):
        began_s = time.monotonic()
        made = space.probe(pod(f"p{number}"))
        taken.append(time.monotonic() - began_s)
        if not injected(made):
            raise BrokenError(f"pod p{number} of {space.name} got no values")
    return sorted(taken)


def median_ms(seconds: list[float]) -> str:
    """The median as text, in milliseconds."""
    return f"{1000 * median_s(seconds):.0f} ms"


def median_s(seconds: list[float]) -> float:
    """The median of sorted values."""
    return seconds[len(seconds) // 2]


class Usage(NamedTuple):
    """What a process has taken so far."""

    cpu_s: float
    memory_bytes: int

    @classmethod
    def of(cls, pid: int | None) -> Self:
        """Read it; all 0 where nothing runs."""
        if pid is None:
            return cls(0.0, 0)
        process = psutil.Process(pid)
        times = process.cpu_times()
        return cls(times.user + times.system, process.memory_info().rss)


__all__ = [
    "APPLY_PATCH",
    "CREATED",
    "CREATE_SECONDS",
    "FORBIDDEN",
    "MERGE_PATCH",
    "MIB",
    "NAMESPACE",
    "UNPROCESSABLE",
    "WEBHOOK_BYTES",
    "Answer",
    "Caller",
    "Usage",
    "create_seconds",
    "median_ms",
    "median_s",
    "unharmed",
    "user_of",
]

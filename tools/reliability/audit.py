"""Who has written what, as the API server's audit log says: the only witness that no writer can talk to."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any, Final, NamedTuple

from cluster import Cluster
from cluster.local_raddle import NAMESPACE

ACCOUNTS: Final = tuple(
    f"system:serviceaccount:{NAMESPACE}:raddle-{name}" for name in ("controller", "webhook", "agent")
)
POLICY: Final[Mapping[str, Any]] = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [
        {"level": "RequestResponse", "users": list(ACCOUNTS), "verbs": ["create", "update", "patch", "delete"]},
        {"level": "None"},
    ],
}
"""What `Cluster(audit_policy=…)` takes: every write of Raddle's accounts, with what was sent and what came of it."""
# Each process of the local harness has a token of its own, and the API server tells them apart by it.
_CREDENTIAL: Final = "authentication.kubernetes.io/credential-id"


class Write(NamedTuple):
    """One write that the API server has carried out. `writer` is a token's id: a process."""

    at_s: float
    account: str
    writer: str
    verb: str
    resource: str
    name: str
    sent: Mapping[str, Any]
    stored: Mapping[str, Any]

    @property
    def version(self) -> str:
        """The object's resource version after the write."""
        return str(self.stored.get("metadata", {}).get("resourceVersion", ""))


def writes(cluster: Cluster) -> list[Write]:
    """Return all successful writes of Raddle's processes so far, in their order. `resource` is such as pods/status."""
    text = (cluster.directory / "logs" / "audit.log").read_text()
    return sorted(_writes(text.splitlines()))


def _writes(lines: Iterable[str]) -> Iterator[Write]:
    for line in lines:
        # An API server that was killed leaves half a line.
        if not line.endswith("}"):
            continue
        event = json.loads(line)
        reference, status = event.get("objectRef", {}), event.get("responseStatus", {})
        if not 200 <= int(status.get("code", 0)) < 300:
            continue
        subresource = reference.get("subresource")
        user = event["user"]
        yield Write(
            at_s=datetime.fromisoformat(event["stageTimestamp"]).timestamp(),
            account=user["username"].rpartition(":")[2],
            writer=(user.get("extra", {}).get(_CREDENTIAL) or [""])[0],
            verb=event["verb"],
            resource=reference.get("resource", "") + (f"/{subresource}" if subresource else ""),
            name="/".join(filter(None, (reference.get("namespace"), reference.get("name")))),
            sent=event.get("requestObject") or {},
            stored=event.get("responseObject") or {},
        )

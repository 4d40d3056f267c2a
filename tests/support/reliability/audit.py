"""Who has written what, as the API server's audit log says: the only witness that no writer can talk to."""

import json
from datetime import datetime
from typing import NamedTuple

from cluster.local_raddle import NAMESPACE

ACCOUNTS = [f"system:serviceaccount:{NAMESPACE}:raddle-{name}" for name in ("controller", "webhook", "agent")]
# What `Cluster(audit_policy=…)` takes: every write of Raddle's accounts, with what was sent and what came of it.
POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [
        {"level": "RequestResponse", "users": ACCOUNTS, "verbs": ["create", "update", "patch", "delete"]},
        {"level": "None"},
    ],
}
# Each process of the local harness has a token of its own, and the API server tells them apart by it.
CREDENTIAL = "authentication.kubernetes.io/credential-id"


class Write(NamedTuple):
    """One write that the API server has carried out. `writer` is a token's id: a process."""

    at_s: float
    account: str
    writer: str
    resource: str
    name: str
    sent: dict
    stored: dict

    @property
    def version(self):
        """The object's resource version after the write."""
        return self.stored.get("metadata", {}).get("resourceVersion", "")


def writes(cluster):
    """All successful writes of Raddle's processes so far, in their order. `resource` is such as pods/status."""
    lines = (cluster.directory / "logs" / "audit.log").read_text().splitlines()
    # An API server that was killed leaves half a line.
    events = [json.loads(line) for line in lines if line.endswith("}")]
    return sorted(_write(one) for one in events if 200 <= one.get("responseStatus", {}).get("code", 0) < 300)


def _write(event):
    reference, user = event.get("objectRef", {}), event["user"]
    return Write(
        at_s=datetime.fromisoformat(event["stageTimestamp"]).timestamp(),
        account=user["username"].rpartition(":")[2],
        writer=(user.get("extra", {}).get(CREDENTIAL) or [""])[0],
        resource="/".join(filter(None, (reference.get("resource"), reference.get("subresource")))),
        name="/".join(filter(None, (reference.get("namespace"), reference.get("name")))),
        sent=event.get("requestObject") or {},
        stored=event.get("responseObject") or {},
    )

"""Nodes without machines: Node objects that say Ready and leases that one thread keeps fresh.

The real scheduler binds pods to them, and the controller manager takes them as alive. Nothing runs there.
"""

from __future__ import annotations

import datetime as dt
import http.client
import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from cluster.client import ApiError, Client

NODES = "/api/v1/nodes"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
LEASE_SECONDS = 40
# The controller manager's grace period is 5 min here (flags.py), so that a thousand leases cost 33 writes a second.
RENEW_SECONDS = 30.0
KUBELET_VERSION = "v0.0.0-devcluster"


class NodeHandle:
    """A registered node. `uid` is that of its Node object: another node of the same name has another."""

    def __init__(self, nodes: Nodes, name: str, uid: str, boot_id: str) -> None:
        """Describes a node that was just made."""
        self._nodes = nodes
        self.name = name
        self.uid = uid
        self.boot_id = boot_id

    def delete(self) -> None:
        """Deletes the node and its lease; deleting it twice is no error."""
        self._nodes.forget(self.name, self.uid)

    def stop_heartbeat(self) -> None:
        """Lets the node's lease grow old, as a node that lost its network does."""
        self._nodes.stop_heartbeat(self.name)


class Nodes:
    """All nodes that were registered with one cluster, and the thread that renews their leases."""

    def __init__(self, new_client: Callable[[], Client]) -> None:
        """Prepare; the thread starts with the first node. `new_client` is called once for each of the two threads."""
        self._client = new_client()
        self._new_client = new_client
        self._lock = threading.Lock()
        self._beating: set[str] = set()
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None

    def register(
        self,
        name: str,
        *,
        cpus: int,
        memory: str,
        pods: int,
        labels: Mapping[str, str],
        taints: Sequence[Mapping[str, str]],
        boot_id: str | None,
        architecture: str,
        topology: Mapping[str, Any] | None,
    ) -> NodeHandle:
        """Makes the node as `Cluster.register_node` says, replacing one of this name."""
        boot = boot_id or str(uuid.uuid4())
        capacity = {"cpu": str(cpus), "memory": memory, "pods": str(pods), "ephemeral-storage": "100Gi"}
        manifest = _node(name, capacity, labels, boot, architecture)
        try:
            node = self._client.post(NODES, manifest)
        except ApiError as error:
            if error.status != http.client.CONFLICT:
                raise
            self._client.delete(f"{NODES}/{name}", missing_ok=True)
            node = self._client.post(NODES, manifest)
        # Admission taints every new node as not ready. The controller manager would take that away a moment later.
        self._client.merge(f"{NODES}/{name}", {"spec": {"taints": [dict(taint) for taint in taints]}})
        uid = str(node["metadata"]["uid"])
        self._client.apply(_lease(name))
        with self._lock:
            self._beating.add(name)
        self._start_thread()
        if topology is not None:
            self._client.apply(_owned(topology, name, uid))
        return NodeHandle(self, name, uid, boot)

    def forget(self, name: str, uid: str) -> None:
        """Deletes the node of this name and UID, and its lease; a newer node of that name is left alone."""
        try:
            if self._client.get(f"{NODES}/{name}")["metadata"]["uid"] != uid:
                return
        except ApiError as error:
            if error.status != http.client.NOT_FOUND:
                raise
        self.stop_heartbeat(name)
        self._client.delete(f"{NODES}/{name}", missing_ok=True)
        self._client.delete(f"{LEASES}/{name}", missing_ok=True)

    def stop_heartbeat(self, name: str) -> None:
        """Renews this node's lease no more."""
        with self._lock:
            self._beating.discard(name)

    def mark_running(self, namespace: str, name: str) -> None:
        """Sets a pod's phase, conditions and container statuses as if all its containers had started just now."""
        path = f"/api/v1/namespaces/{namespace}/pods/{name}"
        now = _now()
        conditions = [
            {"type": kind, "status": "True", "lastTransitionTime": now}
            for kind in ("PodScheduled", "PodReadyToStartContainers", "Initialized", "ContainersReady", "Ready")
        ]
        statuses = [
            {
                "name": container["name"],
                "image": container["image"],
                "imageID": "",
                "containerID": f"devcluster://{uuid.uuid4().hex}",
                "ready": True,
                "started": True,
                "restartCount": 0,
                "state": {"running": {"startedAt": now}},
            }
            for container in self._client.get(path)["spec"]["containers"]
        ]
        status = {"phase": "Running", "startTime": now, "conditions": conditions, "containerStatuses": statuses}
        self._client.merge(f"{path}/status", {"status": status})

    def close(self) -> None:
        """Stops the thread and closes the connections; the nodes stay as they are."""
        self._closed.set()
        if self._thread is not None:
            self._thread.join()
        self._client.close()

    def _start_thread(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._renew_forever, name="devcluster-leases", daemon=True)
            self._thread.start()

    def _renew_forever(self) -> None:
        with self._new_client() as client:
            while not self._closed.wait(RENEW_SECONDS):
                with self._lock:
                    names = sorted(self._beating)
                for name in names:
                    if self._closed.is_set():
                        return
                    self._renew(client, name)

    def _renew(self, client: Client, name: str) -> None:
        try:
            client.merge(f"{LEASES}/{name}", {"spec": {"renewTime": _now(micro=True)}})
        except ApiError as error:
            # Somebody deleted the lease, so the node too is gone or on its way out.
            if error.status == http.client.NOT_FOUND:
                self.stop_heartbeat(name)
        except (OSError, http.client.HTTPException):
            # The API server is stopped or restarts; the grace period is ten times the interval.
            return


def _now(*, micro: bool = False) -> str:
    now = dt.datetime.now(dt.UTC)
    return now.strftime("%Y-%m-%dT%H:%M:%S.%fZ" if micro else "%Y-%m-%dT%H:%M:%SZ")


def _lease(name: str) -> dict[str, Any]:
    # No owner, unlike the kubelet's: the garbage collector could take it for the lease of an earlier node of this name.
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": name, "namespace": "kube-node-lease"},
        "spec": {"holderIdentity": name, "leaseDurationSeconds": LEASE_SECONDS, "renewTime": _now(micro=True)},
    }


def _node(
    name: str, capacity: Mapping[str, str], labels: Mapping[str, str], boot_id: str, architecture: str
) -> dict[str, Any]:
    well_known = {
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": architecture,
    }
    now = _now()
    conditions = [
        {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "registered by devcluster"},
        {"type": "MemoryPressure", "status": "False", "reason": "KubeletHasSufficientMemory"},
        {"type": "DiskPressure", "status": "False", "reason": "KubeletHasNoDiskPressure"},
        {"type": "PIDPressure", "status": "False", "reason": "KubeletHasSufficientPID"},
    ]
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {**well_known, **labels}},
        "status": {
            "capacity": dict(capacity),
            "allocatable": dict(capacity),
            "conditions": [{**entry, "lastHeartbeatTime": now, "lastTransitionTime": now} for entry in conditions],
            "addresses": [{"type": "Hostname", "address": name}],
            "nodeInfo": {
                "architecture": architecture,
                "bootID": boot_id,
                "machineID": uuid.uuid4().hex,
                "systemUUID": str(uuid.uuid4()),
                "operatingSystem": "linux",
                "osImage": "devcluster",
                "kernelVersion": "",
                "containerRuntimeVersion": "devcluster://0",
                "kubeletVersion": KUBELET_VERSION,
                "kubeProxyVersion": "",
            },
        },
    }


def _owned(manifest: Mapping[str, Any], node_name: str, node_uid: str) -> dict[str, Any]:
    owner = {"apiVersion": "v1", "kind": "Node", "name": node_name, "uid": node_uid}
    metadata = {**manifest["metadata"], "name": node_name, "ownerReferences": [owner]}
    return {**manifest, "metadata": metadata}

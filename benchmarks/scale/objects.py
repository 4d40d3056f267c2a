"""What a large cluster holds, as JSON: its layout in namespaces and apps, nodes as kubelets report them, pods.

A namespace has five apps of 20 replicas and two policies, of which one governs the first three apps and the other the
rest; the last namespace has one policy for all, since the 200th is the cluster policy `fleet`. That one selects by a
label that no pod has, until a measurement lets it take everything.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import injection
from raddle import env
from raddle.cpus import cpuset
from raddle.cpus.topology import Machine
from raddle_operator.objects import nodetopology
from webhook import machine

Object = dict[str, Any]

APPS: Final = 5
FRONT_APPS: Final = 3
SHAPES: Final = 8
FLEET: Final = "fleet"
GENERATION: Final = "7d4b9c6f5"
"""The hash of the first pods' template."""
IMAGES_OF_A_NODE: Final = 50
"""As many as a kubelet reports."""
# Settings to toggle between: every pod that was given one of them is stale under the other.
SETTINGS: Final = ({"maxIntraOp": 4}, {"maxIntraOp": 3})


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """How much there is. Pods are those of all namespaces together."""

    pods: int = 10_000
    nodes: int = 1_000
    policies: int = 200

    @property
    def namespaces(self) -> list[str]:
        """The namespaces' names: one for each two policies."""
        return [f"tenant-{number:03}" for number in range(self.policies // 2)]

    @property
    def replicas(self) -> int:
        """Pods of one app."""
        return self.pods // (len(self.namespaces) * APPS)


def namespace(name: str) -> Object:
    """An opted-in namespace."""
    return {"metadata": {"name": name, "labels": {env.INJECT_LABEL: "enabled", "team": name}}}


def policies(size: Size) -> Iterator[Object]:
    """All InferenceThreadings: one fewer than the policies, because `fleet` is one too."""
    *most, last = size.namespaces
    for where in most:
        yield _policy(where, "front", range(FRONT_APPS))
        yield _policy(where, "back", range(FRONT_APPS, APPS))
    yield _policy(last, "front", range(APPS))


def fleet() -> Object:
    """The cluster policy, which selects nothing yet."""
    return {
        "metadata": {"name": FLEET},
        "spec": {"tier": "Admin", "podSelector": nobody(), "containers": ["serve"], "threads": dict(SETTINGS[0])},
    }


def nobody() -> Object:
    """A selector that selects no pod here."""
    return {"matchLabels": {"raddle-scale": "nobody"}}


def _policy(where: str, name: str, apps: range) -> Object:
    values = [f"app-{number}" for number in apps]
    return {
        "metadata": {"name": name, "namespace": where},
        "spec": {
            "podSelector": {"matchExpressions": [{"key": "app", "operator": "In", "values": values}]},
            "containers": ["serve"],
            "threads": dict(SETTINGS[0]),
        },
    }


def pods(where: str, size: Size, generation: str = GENERATION) -> Iterator[Object]:
    """All pods of a namespace, as ReplicaSets make them; `generation` is the pod template's hash."""
    for app in range(APPS):
        for replica in range(size.replicas):
            yield pod(where, app, replica, generation)


def pod(where: str, app: int, replica: int, generation: str, containers: int = 3, variables: int = 12) -> Object:
    """A pod without a node, of about 6 kB where nothing is said of its containers and their variables."""
    result = injection.pod(containers, variables)
    metadata, spec = result["metadata"], result["spec"]
    del metadata["generateName"], metadata["managedFields"]  # the API server writes its own
    set_of_app = f"app-{app}-{generation}"
    metadata |= {"name": f"{set_of_app}-{replica:05}", "namespace": where}
    metadata["labels"] = {"app": f"app-{app}", "pod-template-hash": generation, "team": where}
    metadata["ownerReferences"][0]["name"] = set_of_app
    # The token's volume too is the API server's.
    del spec["volumes"]
    for container in spec["containers"]:
        del container["volumeMounts"]
    return result


def binding(obj: Object, node: str) -> Object:
    """What a scheduler posts to a pod's binding subresource."""
    metadata = {key: obj["metadata"][key] for key in ("name", "namespace")}
    return {"apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": {"kind": "Node", "name": node}}


def running(obj: Object, now: str) -> Object:
    """The status that a kubelet writes once all containers of a pod run. `now` is RFC 3339."""
    kinds = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled")
    statuses = [
        {
            "name": container["name"],
            "image": container["image"],
            "imageID": f"{container['image']}@sha256:{'0123456789abcdef' * 4}",
            "containerID": f"containerd://{random.randbytes(32).hex()}",
            "ready": True,
            "started": True,
            "restartCount": 0,
            "state": {"running": {"startedAt": now}},
            "lastState": {},
        }
        for container in obj["spec"]["containers"]
    ]
    return {
        "status": {
            "phase": "Running",
            "startTime": now,
            "podIP": "10.0.0.1",
            "conditions": [{"type": kind, "status": "True", "lastTransitionTime": now} for kind in kinds],
            "containerStatuses": statuses,
        }
    }


def node_name(number: int) -> str:
    """The name of a node."""
    return f"node-{number:04}"


def machine_of(number: int) -> Machine:
    """The machine of a node: one of eight makes, in a boot of its own."""
    return machine(number % SHAPES)._replace(boot_id=f"boot-{number:04}")


def node(number: int, now: str) -> Object:
    """A Node of about 10 kB, as its kubelet would register and report it."""
    made = machine_of(number)
    capacity = {"cpu": str(cpuset.count(made.online)), "memory": "256Gi", "pods": "110", "ephemeral-storage": "100Gi"}
    images = [
        {
            "names": [f"example.test/{n}@sha256:{'0123456789abcdef' * 4}", f"example.test/team/image-{n}:1"],
            "sizeBytes": n,
        }
        for n in range(IMAGES_OF_A_NODE)
    ]
    labels = {"kubernetes.io/hostname": node_name(number), "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"}
    return {
        "metadata": {"name": node_name(number), "labels": labels},
        "status": {
            "capacity": capacity,
            "allocatable": capacity,
            "conditions": heartbeat(now)["status"]["conditions"],
            "addresses": [{"type": "Hostname", "address": node_name(number)}],
            "nodeInfo": node_info(made.boot_id),
            "images": images,
        },
    }


def node_info(boot_id: str) -> Mapping[str, str]:
    """What a kubelet says of the system."""
    words = ("machineID", "systemUUID", "kernelVersion", "osImage", "kubeProxyVersion")
    return {
        **dict.fromkeys(words, "raddle-scale"),
        "bootID": boot_id,
        "architecture": "amd64",
        "operatingSystem": "linux",
        "containerRuntimeVersion": "containerd://2.1.0",
        "kubeletVersion": "v1.34.0",
    }


def heartbeat(now: str) -> Object:
    """What a kubelet writes to its node every five minutes: the same conditions, seen just now."""
    states = {"MemoryPressure": "False", "DiskPressure": "False", "PIDPressure": "False", "Ready": "True"}
    conditions = [
        {
            "type": kind,
            "status": status,
            "reason": "Kubelet",
            "message": "as the kubelet says",
            "lastHeartbeatTime": now,
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }
        for kind, status in states.items()
    ]
    return {"status": {"conditions": conditions}}


def topology(number: int, node_uid: str) -> Object:
    """The NodeCPUTopology of a node, owned by it, as its agent writes it."""
    owner = {"apiVersion": "v1", "kind": "Node", "name": node_name(number), "uid": node_uid}
    return {
        "metadata": {"name": node_name(number), "ownerReferences": [owner]},
        "spec": nodetopology.to_spec(machine_of(number)),
    }

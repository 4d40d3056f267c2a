"""NodeCPUTopology and Machine: the same facts, as the API server keeps them and as the planner reads them.

The spec is the document of `raddle.document` with the sets of CPUs under `cpus`, counts for tables, and
no list of problems. crds/nodecputopologies.yaml is the source of truth for its form.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from raddle import cpuset
from raddle.document import DocumentError, from_document, to_document
from raddle.topology import Machine

API_VERSION = "raddle.dev/v1alpha1"
KIND = "NodeCPUTopology"
PLURAL = "nodecputopologies"

# The document's key for each field of spec.cpus.
_CPUS = {"online": "cpusOnline", "offline": "cpusOffline", "isolated": "cpusIsolated"}
_COPIED = (
    "bootID",
    "architecture",
    "model",
    "threadsPerCore",
    "sockets",
    "dies",
    "numaNodes",
    "l3Domains",
    "cores",
    "coreTypes",
    "kubelet",
)


class TopologyError(ValueError):
    """A NodeCPUTopology that is no machine: `path` of the field, the `value` there, what is `allowed`."""

    def __init__(self, path: str, value: str, allowed: str) -> None:
        self.path = path
        self.value = value
        self.allowed = allowed
        super().__init__(f"{path}: {value} is not {allowed}")


def to_spec(machine: Machine) -> dict[str, Any]:
    """The `.spec` of the machine's NodeCPUTopology. Unknown facts and empty lists are left out."""
    document = to_document(machine)
    cpus = {field: document[key] for field, key in _CPUS.items() if document[key] or field == "online"}
    spec = {"cpus": cpus} | {key: document[key] for key in _COPIED if document[key]}
    spec["counts"] = {
        "cpus": cpuset.count(machine.online),
        "cores": len(machine.cores),
        "sockets": len(machine.sockets),
        "numaNodes": sum(1 for node in machine.numa_nodes if node.cpus),
    }
    if not machine.cores:
        del spec["threadsPerCore"]
    else:
        spec["smtEnabled"] = document["threadsPerCore"] > 1
    return spec


def to_object(machine: Machine, node_name: str, node_uid: str) -> dict[str, Any]:
    """The whole NodeCPUTopology of a node, ready to be applied: named after the Node and gone with it."""
    owner = {"apiVersion": "v1", "kind": "Node", "name": node_name, "uid": node_uid}
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {"name": node_name, "ownerReferences": [owner]},
        "spec": to_spec(machine),
    }


def from_object(obj: Mapping[str, Any]) -> Machine:
    """The machine that a NodeCPUTopology object describes; unknown fields are ignored.

    Raises TopologyError naming the field (spec.numaNodes[1].cpus) for anything that is no machine.
    """
    spec = obj.get("spec") if isinstance(obj, Mapping) else None
    if not isinstance(spec, Mapping):
        raise TopologyError("spec", repr(spec)[:80], "an object")
    cpus = spec.get("cpus")
    if not isinstance(cpus, Mapping):
        raise TopologyError("spec.cpus", repr(cpus)[:80], "an object")
    document = {key: spec.get(key) for key in _COPIED}
    document |= {key: cpus.get(field) for field, key in _CPUS.items()}
    try:
        return from_document(document)
    except DocumentError as error:
        paths = {key: f"cpus.{field}" for field, key in _CPUS.items()}
        raise TopologyError(f"spec.{paths.get(error.path, error.path)}", error.value, error.allowed) from None


def content_hash(spec: Mapping[str, Any]) -> str:
    """A hash of the whole spec, 64 hexadecimal digits: the same facts give the same hash in every process."""
    return hashlib.sha256(_canonical(spec)).hexdigest()


def shape_hash(spec: Mapping[str, Any]) -> str:
    """As `content_hash`, but the same for all machines that differ in nothing but their boot: a key to share values."""
    return hashlib.sha256(_canonical({key: value for key, value in spec.items() if key != "bootID"})).hexdigest()


def _canonical(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()

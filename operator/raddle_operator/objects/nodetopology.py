"""NodeCPUTopology and Machine: the same facts, as the API server keeps them and as the planner reads them.

The spec holds the kernel's ids beside the sets of CPUs, names as the DRA CPU driver names them (socketID, numaNodeID,
cacheL3ID) and counts for tables. The list of problems, and what nothing is decided by (caches, memory's kinds),
are not in it. crds/nodecputopologies.yaml is the source of truth for its form.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from raddle.cpus import cpuset
from raddle.cpus.topology import GPU, CoreType, Group, Machine, NUMANode, threads_per_core
from raddle.machine.document import core_type_object, kubelet_object, read_kubelet
from raddle.machine.fields import CPUGroupReader, DocumentError, Fields

API_VERSION = "raddle.dev/v1alpha1"
KIND = "NodeCPUTopology"
PLURAL = "nodecputopologies"


class TopologyError(ValueError):
    """A NodeCPUTopology that is no machine: `path` of the field, the `value` there, what is `allowed`."""

    def __init__(self, path: str, value: str, allowed: str) -> None:
        self.path = path
        self.value = value
        self.allowed = allowed
        super().__init__(f"{path}: {value} is not {allowed}")


def to_spec(machine: Machine) -> dict[str, Any]:
    """The `.spec` of the machine's NodeCPUTopology. Unknown facts and empty lists are left out."""
    cpus = {
        "online": cpuset.format_list(machine.online),
        "offline": cpuset.format_list(machine.offline),
        "isolated": cpuset.format_list(machine.isolated),
    }
    facts: dict[str, Any] = {
        "bootID": machine.boot_id,
        "architecture": machine.architecture,
        "model": machine.model,
        "sockets": [{"socketID": group.id, "cpus": cpuset.format_list(group.cpus)} for group in machine.sockets],
        "dies": [_die(machine, die) for die in machine.dies],
        "numaNodes": [_numa_node(node) for node in machine.numa_nodes],
        "l3Domains": [{"cacheL3ID": group.id, "cpus": cpuset.format_list(group.cpus)} for group in machine.l3_domains],
        "cores": [cpuset.format_list(core) for core in machine.cores],
        "coreTypes": [{"coreType": kind.name} | core_type_object(kind) for kind in machine.core_types],
        "gpus": [_gpu(gpu) for gpu in machine.gpus],
        "kubelet": kubelet_object(machine.kubelet),
    }
    spec: dict[str, Any] = {"cpus": {key: text for key, text in cpus.items() if text or key == "online"}}
    spec |= {key: value for key, value in facts.items() if value}
    spec["counts"] = {
        "cpus": cpuset.count(machine.online),
        "cores": len(machine.cores),
        "sockets": len(machine.sockets),
        "numaNodes": sum(1 for node in machine.numa_nodes if node.cpus),
    }
    if machine.cores:
        threads = threads_per_core(machine)
        spec |= {"threadsPerCore": threads, "smtEnabled": threads > 1}
    return spec


def _die(machine: Machine, die: Group) -> dict[str, Any]:
    result: dict[str, Any] = {"dieID": die.id, "cpus": cpuset.format_list(die.cpus)}
    for socket in machine.sockets:
        if die.cpus and not die.cpus & ~socket.cpus:
            result["socketID"] = socket.id
    return result


def _numa_node(node: NUMANode) -> dict[str, Any]:
    result: dict[str, Any] = {"numaNodeID": node.id, "cpus": cpuset.format_list(node.cpus)}
    if node.memory_mib is not None:
        result["memoryMiB"] = node.memory_mib
    if node.distances:
        result["distances"] = list(node.distances)
    return result


def _gpu(gpu: GPU) -> dict[str, Any]:
    return {"address": gpu.address} | ({} if gpu.numa_node is None else {"numaNodeID": gpu.numa_node})


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
    if not isinstance(spec.get("cpus"), Mapping):
        raise TopologyError("spec.cpus", repr(spec.get("cpus"))[:80], "an object")
    try:
        return _machine(Fields(spec))
    except DocumentError as error:
        raise TopologyError(f"spec.{error.path}", error.value, error.allowed) from None


def _machine(fields: Fields) -> Machine:
    cpus = fields.child("cpus")
    online = cpus.cpus("online")
    if not online:
        raise DocumentError(cpus.at("online"), "", "a CPU list with at least one CPU")
    within = CPUGroupReader(online)

    def groups(key: str, id_key: str) -> tuple[Group, ...]:
        return tuple(Group(one.id(id_key), mask) for one, mask in within.objects(fields.children(key)))

    return Machine(
        online=online,
        cores=tuple(within.lists(fields, "cores")),
        offline=cpus.cpus("offline") & ~online,
        isolated=cpus.cpus("isolated"),
        sockets=groups("sockets", "socketID"),
        dies=groups("dies", "dieID"),
        numa_nodes=tuple(
            NUMANode(one.id("numaNodeID"), mask, one.number("memoryMiB"), one.numbers("distances"))
            for one, mask in within.objects(fields.children("numaNodes"))
        ),
        l3_domains=groups("l3Domains", "cacheL3ID"),
        core_types=tuple(
            CoreType(
                one.text("coreType"), mask, one.number("maxFrequencyMHz"), one.number("capacity"), one.text("model")
            )
            for one, mask in within.objects(fields.children("coreTypes"))
        ),
        gpus=tuple(GPU(one.text("address"), one.number("numaNodeID")) for one in fields.children("gpus")),
        architecture=fields.text("architecture"),
        model=fields.text("model"),
        boot_id=fields.text("bootID"),
        kubelet=read_kubelet(fields.child("kubelet")),
    )


def with_stable_memory(result: Machine, before: Machine | None) -> Machine:
    """The machine with the memory of each NUMA node as it was `before`, unless it differs by more than a part in 16.

    Where a hypervisor's balloon takes and gives memory, MemTotal is another at every look.
    """
    known = {node.id: node.memory_mib for node in before.numa_nodes} if before is not None else {}
    return result._replace(
        numa_nodes=tuple(_with_stable_memory(node, known.get(node.id)) for node in result.numa_nodes)
    )


def _with_stable_memory(node: NUMANode, before_mib: int | None) -> NUMANode:
    if node.memory_mib is None or before_mib is None or abs(node.memory_mib - before_mib) * 16 > before_mib:
        return node
    return node._replace(memory_mib=before_mib)


def content_hash(spec: Mapping[str, Any]) -> str:
    """A hash of the whole spec, 64 hexadecimal digits: the same facts give the same hash in every process."""
    return hashlib.sha256(_canonical(spec)).hexdigest()


def shape_hash(spec: Mapping[str, Any]) -> str:
    """As `content_hash`, but the same for all machines that differ in nothing but their boot: a key to share values."""
    return hashlib.sha256(_canonical({key: value for key, value in spec.items() if key != "bootID"})).hexdigest()


def _canonical(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()

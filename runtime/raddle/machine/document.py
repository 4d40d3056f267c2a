"""The machine as a JSON document: what `raddle topology -o json` prints. docs/reference/topology.md explains each key.

Sets of CPUs are kernel list strings, and the position in a list is the only number that a socket, die or L3 domain
has here: the kernel's own ids repeat, are -1 or are missing. Version 1 of the document:

    {"version": 1, "bootID": "", "architecture": "x86_64", "model": "", "threadsPerCore": 2,
     "cpusOnline": "0-3", "cpusOffline": "", "cpusIsolated": "",
     "sockets": ["0-3"], "dies": ["0-3"], "cores": ["0,2", "1,3"], "l3Domains": ["0-3"],
     "numaNodes": {"0": {"cpus": "0-3", "memoryMiB": 65536, "distances": [10]}},
     "coreTypes": {"standard": {"cpus": "0-3", "maxFrequencyMHz": 3500, "capacity": 1024}},
     "caches": [{"level": 2, "cpus": ["0,2", "1,3"], "sizeKiB": 1280}],
     "gpus": [{"address": "0000:3b:00.0", "numaNode": 0}],
     "kubelet": {"cpuManagerPolicy": "unknown", "cpuManagerPolicyOptions": {}, "topologyManagerPolicy": "unknown",
                 "topologyManagerScope": "pod", "topologyManagerPolicyOptions": {}, "source": "Configz",
                 "reservedCPUs": "0-1"},
     "problems": [{"path": "sys/...", "reason": "is empty"}],
     "allowed": "0-1", "quotaCPUs": 1.5}

Every key but the last two is always there: "", [], {} and null mean unknown or none. Inside numaNodes, coreTypes,
caches, gpus and kubelet an unknown fact is an absent key. `allowed` and `quotaCPUs` are what one process may use of the
machine; they are there only where its cgroup or status files tell.
"""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Optional, Tuple

from raddle.cpus import cpuset
from raddle.cpus.topology import GPU, Cache, CoreType, Group, Kubelet, Machine, NUMANode, Problem, threads_per_core
from raddle.machine.fields import MAX_ITEMS, CPUGroupReader, DocumentError, Fields

VERSION = 1

CPU_MANAGER_POLICIES = ("unknown", "none", "static")
TOPOLOGY_MANAGER_POLICIES = ("unknown", "none", "best-effort", "restricted", "single-numa-node")
TOPOLOGY_MANAGER_SCOPES = ("unknown", "container", "pod")
MEMORY_KINDS = ("", "persistent", "cxl", "special-purpose")
# Who told the kubelet's settings, and the reserved CPUs; "" where nobody did.
KUBELET_SOURCES = ("", "Configz", "Proxy")


def to_document(machine: Machine, allowed: Optional[int] = None, quota_cpus: Optional[float] = None) -> Dict[str, Any]:
    """The document of a machine, and what a process may use of it where that is known: CPUs and a quota."""
    document: Dict[str, Any] = {
        "version": VERSION,
        "bootID": machine.boot_id,
        "architecture": machine.architecture,
        "model": machine.model,
        "threadsPerCore": threads_per_core(machine) if machine.cores else None,
        "cpusOnline": cpuset.format_list(machine.online),
        "cpusOffline": cpuset.format_list(machine.offline),
        "cpusIsolated": cpuset.format_list(machine.isolated),
        "sockets": _lists(machine.sockets),
        "dies": _lists(machine.dies),
        "cores": [cpuset.format_list(core) for core in machine.cores],
        "l3Domains": _lists(machine.l3_domains),
        "numaNodes": {str(node.id): _numa_node(node) for node in machine.numa_nodes},
        "coreTypes": {kind.name: core_type_object(kind) for kind in machine.core_types},
        "caches": [cache_object(cache) for cache in machine.caches],
        "gpus": [_gpu(gpu) for gpu in machine.gpus],
        "kubelet": kubelet_object(machine.kubelet),
        "problems": [problem._asdict() for problem in machine.problems],
    }
    if allowed is not None:
        document["allowed"] = cpuset.format_list(allowed)
    if quota_cpus is not None:
        document["quotaCPUs"] = quota_cpus
    return document


def cache_object(cache: Cache) -> Dict[str, Any]:
    """The caches of one level and size."""
    result: Dict[str, Any] = {"level": cache.level, "cpus": [cpuset.format_list(group) for group in cache.groups]}
    if cache.size_kib is not None:
        result["sizeKiB"] = cache.size_kib
    return result


def _lists(groups: Tuple[Group, ...]) -> List[str]:
    return [cpuset.format_list(group.cpus) for group in groups]


def _numa_node(node: NUMANode) -> Dict[str, Any]:
    result: Dict[str, Any] = {"cpus": cpuset.format_list(node.cpus)}
    if node.memory_mib is not None:
        result["memoryMiB"] = node.memory_mib
    if node.distances:
        result["distances"] = list(node.distances)
    if node.initiators:
        result["initiators"] = list(node.initiators)
    if node.memory_kind:
        result["memoryKind"] = node.memory_kind
    told = {"memoryTier": node.memory_tier, "readMBPerSecond": node.read_mb_s, "readNanoseconds": node.read_ns}
    result.update((key, value) for key, value in told.items() if value is not None)
    return result


def _gpu(gpu: GPU) -> Dict[str, Any]:
    result: Dict[str, Any] = {"address": gpu.address}
    if gpu.numa_node is not None:
        result["numaNode"] = gpu.numa_node
    return result


def core_type_object(kind: CoreType) -> Dict[str, Any]:
    """What is known of a core type, apart from its name."""
    result: Dict[str, Any] = {"cpus": cpuset.format_list(kind.cpus)}
    if kind.max_frequency_mhz is not None:
        result["maxFrequencyMHz"] = kind.max_frequency_mhz
    if kind.capacity is not None:
        result["capacity"] = kind.capacity
    if kind.model:
        result["model"] = kind.model
    return result


def kubelet_object(kubelet: Kubelet) -> Dict[str, Any]:
    """What is known of the kubelet's settings."""
    result: Dict[str, Any] = {
        "cpuManagerPolicy": kubelet.cpu_manager_policy,
        "topologyManagerPolicy": kubelet.topology_manager_policy,
    }
    if kubelet.cpu_manager_policy_options:
        result["cpuManagerPolicyOptions"] = dict(kubelet.cpu_manager_policy_options)
    if kubelet.topology_manager_scope != "unknown":
        result["topologyManagerScope"] = kubelet.topology_manager_scope
    if kubelet.topology_manager_policy_options:
        result["topologyManagerPolicyOptions"] = dict(kubelet.topology_manager_policy_options)
    if kubelet.source:
        result["source"] = kubelet.source
    if kubelet.reserved_cpus is not None:
        result["reservedCPUs"] = cpuset.format_list(kubelet.reserved_cpus)
    return result


def from_document(document: Mapping[str, Any]) -> Machine:
    """The machine that a document describes; keys it does not know are ignored, absent ones are unknown facts.

    Groups get their ids in order, dies within their socket. Raises DocumentError naming the field for anything
    else than what `to_document` may write: a wrong type, a text that is no CPU set, CPUs that are not online or
    are in two groups of one kind, a row of distances of another length than there are nodes.
    """
    fields = Fields(document)
    version = fields.number("version", VERSION)
    if version != VERSION:
        raise DocumentError("version", version, str(VERSION))
    online = fields.cpus("cpusOnline")
    if not online:
        raise DocumentError("cpusOnline", document.get("cpusOnline"), "a CPU list with at least one CPU")
    within = CPUGroupReader(online)
    sockets = sorted(within.lists(fields, "sockets"), key=cpuset.lowest)
    return Machine(
        online=online,
        cores=tuple(sorted(within.lists(fields, "cores"), key=cpuset.lowest)),
        offline=fields.cpus("cpusOffline") & ~online,
        isolated=fields.cpus("cpusIsolated"),
        sockets=_in_order(sockets),
        dies=_dies(sorted(within.lists(fields, "dies"), key=cpuset.lowest), sockets),
        numa_nodes=_numa_nodes(fields.child("numaNodes"), within),
        l3_domains=_in_order(sorted(within.lists(fields, "l3Domains"), key=cpuset.lowest)),
        core_types=_core_types(fields.child("coreTypes"), within),
        gpus=tuple(GPU(gpu.text("address"), gpu.number("numaNode")) for gpu in fields.children("gpus")),
        architecture=fields.text("architecture"),
        model=fields.text("model"),
        boot_id=fields.text("bootID"),
        caches=read_caches(fields, within),
        kubelet=read_kubelet(fields.child("kubelet")),
        problems=tuple(Problem(one.text("path"), one.text("reason")) for one in fields.children("problems")),
    )


def _in_order(groups: List[int]) -> Tuple[Group, ...]:
    return tuple(Group(index, group) for index, group in enumerate(groups))


def _dies(groups: List[int], sockets: List[int]) -> Tuple[Group, ...]:
    """Dies count from 0 in each socket, as the kernel numbers them."""
    seen: Dict[int, int] = {}
    dies = []
    for group in groups:
        socket = next((socket for socket in sockets if not group & ~socket), 0)
        dies.append(Group(seen.get(socket, 0), group))
        seen[socket] = seen.get(socket, 0) + 1
    return tuple(dies)


def _numa_nodes(nodes: Fields, within: CPUGroupReader) -> Tuple[NUMANode, ...]:
    ids = []
    for name in nodes.names(MAX_ITEMS):
        if not (name.isascii() and name.isdigit() and len(name) < 8 and name == str(int(name))):
            raise DocumentError(nodes.path, name, "a map from the numbers of NUMA nodes")
        ids.append(int(name))
    ids.sort()
    result = within.objects([nodes.child(str(number)) for number in ids])
    return tuple(
        NUMANode(
            number,
            cpus,
            node.number("memoryMiB"),
            _distances(node, len(ids)),
            _initiators(node, ids),
            node.word("memoryKind", MEMORY_KINDS),
            node.number("memoryTier"),
            node.number("readMBPerSecond"),
            node.number("readNanoseconds"),
        )
        for number, (node, cpus) in zip(ids, result)
    )


def _distances(node: Fields, nodes: int) -> Tuple[int, ...]:
    distances = node.numbers("distances")
    if distances and len(distances) != nodes:
        raise DocumentError(node.at("distances"), distances, "a distance to every NUMA node")
    return distances


def _initiators(node: Fields, ids: List[int]) -> Tuple[int, ...]:
    initiators = node.numbers("initiators")
    if not set(initiators) <= set(ids):
        raise DocumentError(node.at("initiators"), initiators, "numbers of NUMA nodes")
    return initiators


def _core_types(kinds: Fields, within: CPUGroupReader) -> Tuple[CoreType, ...]:
    names = kinds.names()
    result = within.objects([kinds.child(name) for name in names])
    types = [
        CoreType(name, cpus, kind.number("maxFrequencyMHz"), kind.number("capacity"), kind.text("model"))
        for name, (kind, cpus) in zip(names, result)
    ]
    return tuple(sorted(types, key=lambda kind: kind.cpus & -kind.cpus))


def read_caches(fields: Fields, within: CPUGroupReader) -> Tuple[Cache, ...]:
    """What `cache_object` wrote. Raises DocumentError naming the field for anything else."""
    return tuple(
        Cache(one.id("level"), tuple(within.lists(one, "cpus")), one.number("sizeKiB"))
        for one in fields.children("caches")
    )


def read_kubelet(fields: Fields) -> Kubelet:
    """What `kubelet_object` wrote. Raises DocumentError naming the field for anything else."""
    reserved = fields.has("reservedCPUs")
    return Kubelet(
        cpu_manager_policy=fields.word("cpuManagerPolicy", CPU_MANAGER_POLICIES),
        cpu_manager_policy_options=_options(fields.child("cpuManagerPolicyOptions")),
        topology_manager_policy=fields.word("topologyManagerPolicy", TOPOLOGY_MANAGER_POLICIES),
        reserved_cpus=fields.cpus("reservedCPUs") if reserved else None,
        topology_manager_scope=fields.word("topologyManagerScope", TOPOLOGY_MANAGER_SCOPES),
        topology_manager_policy_options=_options(fields.child("topologyManagerPolicyOptions")),
        source=fields.word("source", KUBELET_SOURCES),
    )


def _options(fields: Fields) -> Tuple[Tuple[str, str], ...]:
    return tuple((key, fields.text(key)) for key in fields.names())

"""The machine as a JSON document: what `raddle topology -o json` prints, and the form in which machines travel.

Version 1 of the document. Sets of CPUs are kernel list strings, ids are integers, an unknown fact is an
absent key. Names follow the DRA CPU driver (socketID, numaNodeID, cacheL3ID, coreType).

    {"version": 1, "bootID": "", "architecture": "x86_64", "model": "",
     "cpusOnline": "0-3", "cpusOffline": "", "cpusIsolated": "", "threadsPerCore": 2,
     "sockets": [{"socketID": 0, "cpus": "0-3"}], "dies": [{"socketID": 0, "dieID": 0, "cpus": "0-3"}],
     "numaNodes": [{"numaNodeID": 0, "cpus": "0-3", "memoryMiB": 65536, "distances": [10]}],
     "l3Domains": [{"cacheL3ID": 0, "cpus": "0-3"}], "cores": ["0,2", "1,3"],
     "coreTypes": [{"coreType": "standard", "cpus": "0-3", "maxFrequencyMHz": 3500, "capacity": 1024}],
     "kubelet": {"cpuManagerPolicy": "unknown", "cpuManagerPolicyOptions": {}, "topologyManagerPolicy": "unknown",
                 "topologyManagerScope": "pod", "topologyManagerPolicyOptions": {}, "source": "Configz",
                 "reservedCPUs": "0-1", "reservedCPUsSource": "ReservedSystemCPUs"},
     "problems": [{"path": "sys/...", "reason": "is empty"}],
     "allowed": "0-1", "quotaCPUs": 1.5}

`allowed` and `quotaCPUs` are this process's own share of the machine; they are there only when asked for.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Mapping, Optional, Tuple, TypeVar

from raddle import cpuset
from raddle.cgroup import Allotment, usable_cpus
from raddle.topology import CoreType, Group, Kubelet, Machine, NUMANode, Problem, threads_per_core

VERSION = 1

CPU_MANAGER_POLICIES = ("unknown", "none", "static")
TOPOLOGY_MANAGER_POLICIES = ("unknown", "none", "best-effort", "restricted", "single-numa-node")
TOPOLOGY_MANAGER_SCOPES = ("unknown", "container", "pod")
# Who told the kubelet's settings, and the reserved CPUs; "" where nobody did.
KUBELET_SOURCES = ("", "Configz", "Proxy")
RESERVED_SOURCES = ("", "ReservedSystemCPUs", "PodResources")

# The bounds of crds/nodecputopologies.yaml: a document from elsewhere must not cost more than one from there.
MAX_TEXT = 256
MAX_CPUS_TEXT = 8192
MAX_ITEMS = 8192
MAX_OPTIONS = 32
MAX_NUMBER = 2**63 - 1

_Fact = TypeVar("_Fact")


class DocumentError(ValueError):
    """A document that is no machine: `path` of the field, the `value` there (shortened), what is `allowed`."""

    def __init__(self, path: str, value: object, allowed: str) -> None:
        self.path = path
        self.value = repr(value)[:80]
        self.allowed = allowed
        super().__init__(f"{path}: {self.value} is not {allowed}")


def to_document(machine: Machine, allotment: Optional[Allotment] = None) -> Dict[str, Any]:
    """The document of a machine; with an allotment also what this process may use of it."""
    document: Dict[str, Any] = {
        "version": VERSION,
        "bootID": machine.boot_id,
        "architecture": machine.architecture,
        "model": machine.model,
        "cpusOnline": cpuset.format_list(machine.online),
        "cpusOffline": cpuset.format_list(machine.offline),
        "cpusIsolated": cpuset.format_list(machine.isolated),
        "threadsPerCore": threads_per_core(machine),
        "sockets": [{"socketID": group.id, "cpus": cpuset.format_list(group.cpus)} for group in machine.sockets],
        "dies": [_die(machine, die) for die in machine.dies],
        "numaNodes": [_numa_node(node) for node in machine.numa_nodes],
        "l3Domains": [{"cacheL3ID": group.id, "cpus": cpuset.format_list(group.cpus)} for group in machine.l3_domains],
        "cores": [cpuset.format_list(core) for core in machine.cores],
        "coreTypes": [_core_type(core_type) for core_type in machine.core_types],
        "kubelet": _kubelet(machine.kubelet),
        "problems": [problem._asdict() for problem in machine.problems],
    }
    if allotment is not None:
        usable, quota_cpus = usable_cpus(allotment, machine.online)
        document["allowed"] = cpuset.format_list(usable or 0)
        if quota_cpus is not None:
            document["quotaCPUs"] = quota_cpus
    return document


def _die(machine: Machine, die: Group) -> Dict[str, Any]:
    found: Dict[str, Any] = {"dieID": die.id, "cpus": cpuset.format_list(die.cpus)}
    for socket in machine.sockets:
        if die.cpus and not die.cpus & ~socket.cpus:
            found["socketID"] = socket.id
    return found


def _numa_node(node: NUMANode) -> Dict[str, Any]:
    found: Dict[str, Any] = {"numaNodeID": node.id, "cpus": cpuset.format_list(node.cpus)}
    if node.memory_mib is not None:
        found["memoryMiB"] = node.memory_mib
    if node.distances:
        found["distances"] = list(node.distances)
    return found


def _core_type(core_type: CoreType) -> Dict[str, Any]:
    found: Dict[str, Any] = {"coreType": core_type.name, "cpus": cpuset.format_list(core_type.cpus)}
    if core_type.max_frequency_mhz is not None:
        found["maxFrequencyMHz"] = core_type.max_frequency_mhz
    if core_type.capacity is not None:
        found["capacity"] = core_type.capacity
    return found


def _kubelet(kubelet: Kubelet) -> Dict[str, Any]:
    found: Dict[str, Any] = {
        "cpuManagerPolicy": kubelet.cpu_manager_policy,
        "topologyManagerPolicy": kubelet.topology_manager_policy,
    }
    if kubelet.cpu_manager_policy_options:
        found["cpuManagerPolicyOptions"] = dict(kubelet.cpu_manager_policy_options)
    if kubelet.topology_manager_scope != "unknown":
        found["topologyManagerScope"] = kubelet.topology_manager_scope
    if kubelet.topology_manager_policy_options:
        found["topologyManagerPolicyOptions"] = dict(kubelet.topology_manager_policy_options)
    if kubelet.source:
        found["source"] = kubelet.source
    if kubelet.reserved_cpus is not None:
        found["reservedCPUs"] = cpuset.format_list(kubelet.reserved_cpus)
        if kubelet.reserved_source:
            found["reservedCPUsSource"] = kubelet.reserved_source
    return found


def from_document(document: Mapping[str, Any]) -> Machine:
    """The machine that a document describes; keys it does not know are ignored.

    Raises DocumentError naming the field for anything else than what `to_document` may write: a wrong
    type, a text that is no CPU set, CPUs that are not online or are in two groups of one kind.
    """
    fields = _Fields(document, "")
    version = fields.number("version", VERSION)
    if version != VERSION:
        raise DocumentError("version", version, str(VERSION))
    online = fields.cpus("cpusOnline")
    if not online:
        raise DocumentError("cpusOnline", document.get("cpusOnline"), "a CPU list with at least one CPU")
    within = _Within(online)
    return Machine(
        online=online,
        cores=within.cores(fields),
        offline=fields.cpus("cpusOffline") & ~online,
        isolated=fields.cpus("cpusIsolated"),
        sockets=within.groups(fields, "sockets", "socketID"),
        dies=within.groups(fields, "dies", "dieID"),
        numa_nodes=within.numa_nodes(fields),
        l3_domains=within.groups(fields, "l3Domains", "cacheL3ID"),
        core_types=within.core_types(fields),
        architecture=fields.text("architecture"),
        model=fields.text("model"),
        boot_id=fields.text("bootID"),
        kubelet=_read_kubelet(fields.child("kubelet")),
        problems=tuple(Problem(one.text("path"), one.text("reason")) for one in fields.children("problems")),
    )


class _Fields:
    """One JSON object at `path`, its fields read with their type checked; absent and null are the default."""

    __slots__ = ("_object", "path")

    def __init__(self, value: Any, path: str) -> None:
        if not isinstance(value, Mapping):
            raise DocumentError(path or "document", value, "an object")
        self._object = value
        self.path = path

    def at(self, key: str) -> str:
        return self.path + "." + key if self.path else key

    def _get(self, key: str, default: _Fact, check: Callable[[Any], bool], allowed: str) -> _Fact:
        value = self._object.get(key)
        if value is None:
            return default
        if not check(value):
            raise DocumentError(self.at(key), value, allowed)
        return value  # type: ignore[no-any-return]

    def text(self, key: str) -> str:
        return self._get(
            key,
            "",
            lambda v: isinstance(v, str) and len(v) <= MAX_TEXT,
            f"a text of at most {MAX_TEXT} characters",
        )

    def number(self, key: str, default: Optional[int]) -> Optional[int]:
        return self._get(key, default, _is_number, "an integer that is not negative")

    def id(self, key: str) -> int:
        value = self.number(key, None)
        if value is None:
            raise DocumentError(self.at(key), None, "an integer that is not negative")
        return value

    def items(self, key: str) -> List[Any]:
        empty: List[Any] = []
        return self._get(
            key, empty, lambda v: isinstance(v, list) and len(v) <= MAX_ITEMS, f"a list of at most {MAX_ITEMS}"
        )

    def child(self, key: str) -> "_Fields":
        value = self._object.get(key)
        return _Fields({} if value is None else value, self.at(key))

    def children(self, key: str) -> "List[_Fields]":
        return [_Fields(item, f"{self.at(key)}[{index}]") for index, item in enumerate(self.items(key))]

    def has(self, key: str) -> bool:
        return self._object.get(key) is not None

    def names(self) -> List[str]:
        """The keys of a map, sorted. Raises DocumentError for more than a machine can have."""
        if len(self._object) > MAX_OPTIONS or not all(isinstance(key, str) for key in self._object):
            raise DocumentError(self.path, self._object, f"a map of at most {MAX_OPTIONS} texts")
        return sorted(self._object)

    def cpus(self, key: str) -> int:
        return _parse_cpus(self._object.get(key) or "", self.at(key))


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_NUMBER


def _parse_cpus(value: Any, path: str) -> int:
    if not isinstance(value, str) or len(value) > MAX_CPUS_TEXT:
        raise DocumentError(path, value, "a CPU list such as 0-3,8")
    try:
        return cpuset.parse_list(value)
    except ValueError:
        raise DocumentError(path, value, "a CPU list such as 0-3,8") from None


class _Within:
    """Reads the groups of one machine: every CPU in them is online, and in one group of a kind only."""

    __slots__ = ("_online",)

    def __init__(self, online: int) -> None:
        self._online = online

    def _take(self, cpus: int, rest: int, path: str) -> int:
        if cpus & ~self._online:
            raise DocumentError(path, cpuset.format_list(cpus & ~self._online), "online")
        if cpus & ~rest:
            raise DocumentError(path, cpuset.format_list(cpus & ~rest), "in this group only")
        return rest & ~cpus

    def _each(self, fields: _Fields, key: str) -> List[Tuple[_Fields, int]]:
        rest = self._online
        found = []
        for one in fields.children(key):
            cpus = one.cpus("cpus")
            rest = self._take(cpus, rest, one.at("cpus"))
            found.append((one, cpus))
        return found

    def cores(self, fields: _Fields) -> Tuple[int, ...]:
        rest = self._online
        found = []
        for index, text in enumerate(fields.items("cores")):
            path = "{}[{}]".format(fields.at("cores"), index)
            core = _parse_cpus(text, path)
            if not core:
                raise DocumentError(path, text, "a CPU list with at least one CPU")
            rest = self._take(core, rest, path)
            found.append(core)
        return tuple(found)

    def groups(self, fields: _Fields, key: str, id_key: str) -> Tuple[Group, ...]:
        return tuple(Group(one.id(id_key), cpus) for one, cpus in self._each(fields, key))

    def numa_nodes(self, fields: _Fields) -> Tuple[NUMANode, ...]:
        return tuple(
            NUMANode(one.id("numaNodeID"), cpus, one.number("memoryMiB", None), _read_distances(one))
            for one, cpus in self._each(fields, "numaNodes")
        )

    def core_types(self, fields: _Fields) -> Tuple[CoreType, ...]:
        return tuple(
            CoreType(one.text("coreType"), cpus, one.number("maxFrequencyMHz", None), one.number("capacity", None))
            for one, cpus in self._each(fields, "coreTypes")
        )


def _read_distances(node: _Fields) -> Tuple[int, ...]:
    distances = node.items("distances")
    for index, distance in enumerate(distances):
        if not _is_number(distance):
            raise DocumentError(
                "{}[{}]".format(node.at("distances"), index), distance, "an integer that is not negative"
            )
    return tuple(distances)


def _read_kubelet(fields: _Fields) -> Kubelet:
    reserved = fields.has("reservedCPUs")
    return Kubelet(
        cpu_manager_policy=_word(fields, "cpuManagerPolicy", CPU_MANAGER_POLICIES),
        cpu_manager_policy_options=_options(fields.child("cpuManagerPolicyOptions")),
        topology_manager_policy=_word(fields, "topologyManagerPolicy", TOPOLOGY_MANAGER_POLICIES),
        reserved_cpus=fields.cpus("reservedCPUs") if reserved else None,
        topology_manager_scope=_word(fields, "topologyManagerScope", TOPOLOGY_MANAGER_SCOPES),
        topology_manager_policy_options=_options(fields.child("topologyManagerPolicyOptions")),
        source=_word(fields, "source", KUBELET_SOURCES, ""),
        reserved_source=_word(fields, "reservedCPUsSource", RESERVED_SOURCES, "") if reserved else "",
    )


def _word(fields: _Fields, key: str, allowed: Tuple[str, ...], absent: str = "unknown") -> str:
    word = fields.text(key) or absent
    if word not in allowed:
        raise DocumentError(fields.at(key), word, "one of " + ", ".join(filter(None, allowed)))
    return word


def _options(fields: _Fields) -> Tuple[Tuple[str, str], ...]:
    return tuple((key, fields.text(key)) for key in fields.names())

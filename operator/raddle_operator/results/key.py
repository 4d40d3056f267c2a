"""What a result is valid for: the model, the image, the kind of node, the limit, the objective and the runtime."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from raddle.cpus import cpuset
from raddle.cpus.topology import Machine
from raddle_operator.results.objective import Objective

# As many characters of a digest as Docker and Git show at most: sha256: and 12 more.
_SHOWN: Final = 19


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeClass:
    """The shape of a machine, whatever its CPUs are numbered; machines of one class are equal.

    Counts are 0 and texts "" where the kernel does not tell. `core_types` is CPUs by kind of core, () where all are
    alike.
    """

    architecture: str
    model: str
    sockets: int
    numa_nodes: int
    l3_domains: int
    cores: int
    cpus: int
    core_types: tuple[tuple[str, int], ...] = ()

    @classmethod
    def of(cls, machine: Machine) -> NodeClass:
        """The class of a machine, read here or from its NodeCPUTopology."""
        kinds = tuple((kind.name, cpuset.count(kind.cpus)) for kind in machine.core_types)
        return cls(
            architecture=machine.architecture,
            model=machine.model,
            sockets=len(machine.sockets),
            numa_nodes=sum(1 for node in machine.numa_nodes if node.cpus),
            l3_domains=len(machine.l3_domains),
            cores=len(machine.cores),
            cpus=cpuset.count(machine.online),
            core_types=kinds if len(kinds) > 1 else (),
        )

    @property
    def title(self) -> str:
        """For people: `AMD EPYC 7B13, 2 sockets, 4 NUMA nodes, 16 cores, 32 CPUs`, without what is not known."""
        counts = (
            (self.sockets, "socket"),
            (self.numa_nodes, "NUMA node"),
            (self.l3_domains, "L3 domain"),
            (self.cores, "core"),
            (self.cpus, "CPU"),
        )
        said = [f"{count} {name}{'' if count == 1 else 's'}" for count, name in counts if count]
        kinds = [f"{count} of them {name}" for name, count in self.core_types]
        return ", ".join([self.model or self.architecture or "a CPU that isn't known", *said, *kinds])


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """`model` and `image` are digests (`sha256:...`), `limit_cpus` is limits.cpu, None: no limit.

    `exclusive`: the container has its CPUs for itself, by the kubelet's static CPU manager.
    `runtime` is a policy's name for it (`onnxruntime`). "" where something isn't known or isn't there: a server's
    model, the image of a program on this machine.
    """

    model: str
    image: str
    node_class: NodeClass
    limit_cpus: float | None
    objective: Objective
    runtime: str
    runtime_version: str
    exclusive: bool = False

    @property
    def limit(self) -> str:
        """For people: `2 CPUs`, `2 exclusive CPUs`, `0.5 CPUs`, `no limit`."""
        if self.limit_cpus is None:
            return "no limit"
        return f"{self.limit_cpus:g} {'exclusive ' * self.exclusive}CPU{'' if self.limit_cpus == 1 else 's'}"


def mismatch(key: Key, there: Key) -> str:
    """Why a result for `key` isn't valid where `there` holds, all reasons in words for people; "" where it is.

    Node class, limit and exclusive CPUs have to be the same. The rest is compared where both sides know it: a webhook
    knows no model's digest, and few policies say a rate.
    """
    return "; ".join(
        f"{what} is {item}, but the tuning is for {tuned}" for what, tuned, item in _differences(key, there)
    )


def _differences(key: Key, there: Key) -> Iterator[tuple[str, str, str]]:
    """Yields what differs: its name, what it was tuned for, what it is there."""
    if key.node_class != there.node_class:
        yield "the node", *_told_apart(key.node_class, there.node_class)
    if (key.limit_cpus, key.exclusive) != (there.limit_cpus, there.exclusive):
        yield "the CPU limit", key.limit, there.limit
    known = (
        ("the model", key.model[:_SHOWN], there.model[:_SHOWN], key.model == there.model),
        ("the image", key.image[:_SHOWN], there.image[:_SHOWN], key.image == there.image),
        ("the runtime", key.runtime, there.runtime, key.runtime == there.runtime),
    )
    for what, tuned, item, same in known:
        if tuned and item and not same:
            yield what, tuned, item
    versions = (key.runtime_version, there.runtime_version)
    if all(versions) and key.runtime == there.runtime and versions[0] != versions[1]:
        yield f"{key.runtime or 'the runtime'}", *versions
    yield from _of_objective(key.objective, there.objective)


def _told_apart(one: NodeClass, other: NodeClass) -> tuple[str, str]:
    """The titles of two classes, the architecture with them where those are the same."""
    if one.title != other.title:
        return one.title, other.title
    return f"{one.title} ({one.architecture or '?'})", f"{other.title} ({other.architecture or '?'})"


def _of_objective(tuned: Objective, result: Objective) -> Iterator[tuple[str, str, str]]:
    if tuned.kind != result.kind:
        yield "the objective", tuned.kind.value, result.kind.value
    for what, unit, one, other in (
        ("the rate", "requests/s", tuned.rate, result.rate),
        ("the bound of p99", "ms", tuned.p99_ms, result.p99_ms),
    ):
        if one is not None and other is not None and one != other:
            yield what, f"{one:g} {unit}", f"{other:g} {unit}"

"""The part of a machine that RADDLE_PLAN carries: all that `placement` decides by on a container's exclusive CPUs.

`fields_of` writes it at binding, `machine_of` reads it in the container, where it is untrusted. Sets are CPU lists of
the kernel ("0-3,8", "0-14:1/2" for every second one), several sets are joined by "|".

Siblings are numbered apart (0 and 8) or side by side (0 and 1), for all cores alike. So `cores` lists first threads,
then second ones, in one order: "0-7|8-15", "0-14:1/2|1-15:1/2". The third CPUs of both lists are one core.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

from raddle import env
from raddle.cpus import cpuset
from raddle.cpus.placement import slow_kinds, speed
from raddle.cpus.topology import GPU, CoreType, Group, Machine, NUMANode

# Linux's own largest NR_CPUS, which is as far as the native shim counts.
MAX_CPUS = 8192
MAX_KINDS = 16


def fields_of(machine: Machine, *, gpu: bool) -> Iterator[Dict[str, str]]:
    """What may be handed over, the best first: all, then without the L3 domains, which only order cores; at last {}.

    Nothing of a machine with more than MAX_CPUS, or with absurdly many kinds.
    """
    if machine.online.bit_length() <= MAX_CPUS and len(machine.core_types) <= MAX_KINDS:
        fields = written(machine, gpu=gpu)
        for without in ((), ("l3",)):
            result = {key: text for key, text in fields.items() if key not in without}
            if all(len(text) <= env.MAX_LIST_TEXT for text in result.values()):
                yield result
    yield {}


# Takes as long as the plan itself on hundreds of CPUs; pods come to the same nodes again.
@lru_cache(maxsize=256)
def written(machine: Machine, *, gpu: bool) -> Dict[str, str]:
    """The lists of a machine, absent where they would say nothing."""
    numa_nodes = sorted(machine.numa_nodes, key=lambda node: node.id)
    nodes = [node.cpus for node in numa_nodes]
    if [node for node in nodes if node] == [machine.online]:
        nodes = []
    kinds = sorted(machine.core_types, key=speed) if len(machine.core_types) > 1 else []
    slow = slow_kinds(kinds)
    with_gpu = {one.numa_node for one in machine.gpus} if gpu and nodes else set()
    fields = {
        "cpus": _list(machine.online),
        "cores": "|".join(map(_in_order, _threads(machine.cores))),
        "nodes": _texts(nodes),
        "sockets": _texts(_dividing([socket.cpus for socket in machine.sockets], nodes, machine.online)),
        "l3": _texts(_dividing([domain.cpus for domain in sorted(machine.l3_domains)], nodes, machine.online)),
        "kinds": _texts([kind.cpus for kind in kinds]),
        "slow": "" if slow is None else str(slow),
        "isolated": _list(machine.isolated & machine.online),
        "gpu_nodes": _in_order([place for place, node in enumerate(numa_nodes) if node.id in with_gpu]),
    }
    return {key: text for key, text in fields.items() if text}


def _threads(cores: Sequence[int]) -> List[List[int]]:
    """The first threads of the cores that have several, then their second ones, and so on."""
    several = sorted((ids for ids in map(cpuset.ids, cores) if len(ids) > 1), key=lambda ids: (-len(ids), ids))
    return [[ids[depth] for ids in several if len(ids) > depth] for depth in range(len(several[0]) if several else 0)]


def _dividing(groups: List[int], nodes: List[int], online: int) -> List[int]:
    """The groups; none where they divide no NUMA node, and so decide nothing."""
    known = 0
    for node in nodes or [online]:
        if not any(node & ~group == 0 for group in groups):
            return groups
        known |= node
    return [] if known == online else groups


def _texts(sets: Sequence[int]) -> str:
    return "|".join(map(_list, sets))


def _list(cpus: int) -> str:
    # Every second CPU, as of a NUMA node on many boards with two sockets, is one stride and many ranges.
    ranges = cpuset.format_list(cpus)
    return ranges if ranges.count(",") < 2 else _in_order(cpuset.ids(cpus))


def _in_order(cpus: Sequence[int]) -> str:
    """A CPU list in this order, with strides, which `cpuset.format_list` doesn't write."""
    parts = []
    first = 0
    while first < len(cpus):
        step = cpus[first + 1] - cpus[first] if first + 1 < len(cpus) else 1
        last = first
        while last + 1 < len(cpus) and cpus[last + 1] - cpus[last] == step:
            last += 1
        if step < 1 or (step > 1 and last < first + 2):
            last = first
        span = str(cpus[first]) if last == first else f"{cpus[first]}-{cpus[last]}"
        parts.append(span if step == 1 or last == first else f"{span}:1/{step}")
        first = last + 1
    return ",".join(parts)


def machine_of(fields: Mapping[str, object], cpus: int) -> Optional[Machine]:
    """The machine that the plan's fields (env.decode) tell of, for a container on these CPUs.

    None where it isn't told, contradicts itself, or lacks one of the CPUs: virtual machines number theirs otherwise.
    """
    told = {key: str(fields[key]) for key in env.LISTS if key in fields}
    try:
        known = _cpus(told.get("cpus", ""), (1 << MAX_CPUS) - 1)
        if not all(told.values()) or not cpus or cpus & ~known:
            return None
        nodes, kinds = _groups(told, "nodes", known), _groups(told, "kinds", known)
        slow = _slow(told, len(kinds))
        with_gpu = _cpus(told.get("gpu_nodes", ""), (1 << len(nodes)) - 1)
        return Machine(
            online=known,
            cores=_cores(told, known),
            isolated=_cpus(told.get("isolated", ""), known),
            sockets=tuple(map(Group._make, enumerate(_groups(told, "sockets", known)))),
            numa_nodes=tuple(NUMANode(place, node) for place, node in enumerate(nodes)),
            l3_domains=tuple(map(Group._make, enumerate(_groups(told, "l3", known)))),
            # Only which of them are of the slow class matters of their capacities.
            core_types=tuple(
                CoreType("", kind, capacity=slow and (1 if place < slow else 2)) for place, kind in enumerate(kinds)
            ),
            gpus=tuple(GPU("", place) for place in cpuset.ids(with_gpu)),
        )
    except ValueError:
        return None


def _groups(told: Mapping[str, str], key: str, known: int) -> List[int]:
    """Disjoint sets within the known CPUs. Raises ValueError."""
    result: List[int] = []
    left = known
    for text in told[key].split("|") if key in told else ():
        result.append(_cpus(text, left))
        left &= ~result[-1]
    return result


def _cpus(text: str, within: int) -> int:
    cpus = cpuset.parse_list(text)
    if cpus & ~within:
        raise ValueError(f"{text[:64]!r} names what isn't there, or what another has")
    return cpus


def _cores(told: Mapping[str, str], known: int) -> Tuple[int, ...]:
    """Raises ValueError."""
    cores: List[int] = []
    left = known
    for depth, text in enumerate(told["cores"].split("|") if "cores" in told else ()):
        place = 0
        for part in text.split(","):
            threads = _cpus(part, left)
            left &= ~threads
            for cpu in cpuset.ids(threads):
                if depth == 0:
                    cores.append(1 << cpu)
                elif place < len(cores):
                    cores[place] |= 1 << cpu
                else:
                    raise ValueError("more second threads than first ones")
                place += 1
    return tuple(cores)


def _slow(told: Mapping[str, str], kinds: int) -> Optional[int]:
    """Raises ValueError."""
    if kinds > MAX_KINDS:
        raise ValueError("too many kinds of core")
    if "slow" not in told:
        return None
    slow = int(told["slow"][:3])
    if not 0 < slow <= kinds or len(told["slow"]) > 2:
        raise ValueError("not as many kinds of core")
    return slow

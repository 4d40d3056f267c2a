"""The machine's memory nodes, from /sys/devices/system/node (Documentation/ABI/stable/sysfs-devices-node)."""

from __future__ import annotations

from raddle.cpus import cpuset
from raddle.cpus.topology import NUMANode
from raddle.machine.tree import Directory

NODE_DIRECTORY = "sys/devices/system/node"

_FILES = ("cpulist", "cpumap")


def read(nodes: Directory, online: int) -> tuple[NUMANode, ...]:
    """The nodes, sorted by id, with their online CPUs; `distances` are to these nodes, in this order.

    A node whose CPUs can't be known is left out: it has no list, no mask and no links to CPUs, or it claims CPUs of
    a lower node (firmware that lets each node have all; hwloc leaves those out too). Both are problems.
    """
    present = cpuset.ids(nodes.numbered("node"))
    columns = _columns(nodes, present)
    result: list[NUMANode] = []
    rest = online
    for node in present:
        directory = f"node{node}"
        told = _cpus(nodes, directory)
        if told is None:
            nodes.problem(directory, "lists no CPUs")
            continue
        mask = told[0] & online
        if mask & ~rest:
            nodes.problem(told[1], f"CPUs {cpuset.format_list(mask & ~rest)[:64]} are in a lower node too")
            continue
        rest &= ~mask
        result.append(NUMANode(node, mask, _memory_mib(nodes, directory)))
    ids = [node.id for node in result]
    return tuple(node._replace(distances=_distances(nodes, node.id, columns, ids)) for node in result)


def _cpus(nodes: Directory, directory: str) -> tuple[int, str] | None:
    """The node's CPUs, online or not, and what tells them; its links to them in a tree without list and mask."""
    result: tuple[int, str] | None = None
    for name in _FILES:
        path = f"{directory}/{name}"
        mask = nodes.cpus(path)
        if mask:
            return mask, path
        if mask == 0:
            result = mask, path
    if result is None:
        links = nodes.numbered("cpu", directory)
        result = (links, directory) if links else None
    return result


def _columns(nodes: Directory, present: list[int]) -> list[int]:
    """The nodes that a row of distances is about: those online, which a tree may hold only in part."""
    online = cpuset.ids(nodes.cpus("online") or 0)
    return online if set(present) < set(online) else present


def _memory_mib(nodes: Directory, directory: str) -> int | None:
    """MemTotal of a line such as "Node 0 MemTotal:  16772456 kB"."""
    path = directory + "/meminfo"
    text = nodes.text(path)
    if text is None:
        return None
    for line in text.splitlines():
        words = line.split()
        if len(words) == 5 and words[2] == "MemTotal:" and _is_number(words[3], 15):
            return int(words[3]) // 1024
    nodes.problem(path, "has no MemTotal")
    return None


def _distances(nodes: Directory, node: int, columns: list[int], wanted: list[int]) -> tuple[int, ...]:
    path = f"node{node}/distance"
    text = nodes.text(path)
    if text is None:
        return ()
    words = text.split()
    if len(words) != len(columns) or not all(_is_number(word, 5) for word in words):
        nodes.problem(path, "{!r} is not {} distances".format(" ".join(words)[:64], len(columns)))
        return ()
    told = dict(zip(columns, words))
    return tuple(int(told[other]) for other in wanted)


def _is_number(text: str, most_digits: int) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= most_digits

"""What Linux says of each NUMA node's memory, by which nothing is decided: its nearest CPUs, its kind and its speed.

It names no HBM and no DRAM. What it tells is the device that memory was added from (Documentation/ABI/testing/
sysfs-bus-dax), the tier that it gives each node (sysfs-kernel-mm-memory-tiers), and the firmware's numbers
(Documentation/admin-guide/mm/numaperf.rst).
"""

from __future__ import annotations

import os

from raddle import errors
from raddle.cpus import cpuset
from raddle.cpus.topology import NUMANode
from raddle.machine.tree import Directory, Problems

_TIERS = "sys/devices/virtual/memory_tiering"
_DAX = "sys/bus/dax/devices"
# A part of the device's path -> the kind of memory: drivers/nvdimm, drivers/cxl, drivers/dax/hmem.
_DEVICES = (("ndbus", "persistent"), ("dax_region", "cxl"), ("hmem", "special-purpose"))


def read(root: str, nodes: Directory, result: tuple[NUMANode, ...], problems: Problems) -> tuple[NUMANode, ...]:
    """The nodes with what is known of their memory; `nodes` is their directory."""
    tiers = _tiers(root, problems)
    devices = _devices(root, problems)
    return tuple(
        node._replace(
            initiators=() if node.cpus else _initiators(nodes, node.id, result),
            memory_tier=tiers.get(node.id),
            # A node with CPUs has other memory too.
            memory_kind="" if node.cpus else devices.get(node.id, ""),
            # The kernel shows 0 for what it does not know.
            read_mb_s=nodes.number(f"node{node.id}/access0/initiators/read_bandwidth") or None,
            read_ns=nodes.number(f"node{node.id}/access0/initiators/read_latency") or None,
        )
        for node in result
    )


def _initiators(nodes: Directory, node: int, result: tuple[NUMANode, ...]) -> tuple[int, ...]:
    """Of the nodes with CPUs, those that the kernel links as nearest; a node with CPUs is its own."""
    # Class 0 may name devices only, class 1 looks at CPUs; but Linux 6.1 was seen to link a far node there.
    folders = (f"node{node}/access{number}/initiators" for number in (0, 1))
    with_cpus = sum(1 << other.id for other in result if other.cpus)
    linked = next(filter(None, (nodes.numbered("node", folder) & with_cpus for folder in folders)), 0)
    return tuple(other.id for other in result if linked >> other.id & 1)


def _tiers(root: str, problems: Problems) -> dict[int, int]:
    """NUMA node -> the number of its tier."""
    result: dict[int, int] = {}
    with Directory(root, _TIERS, problems) as tiers:
        for tier in cpuset.ids(tiers.numbered("memory_tier")):
            for node in cpuset.ids(tiers.cpus(f"memory_tier{tier}/nodelist") or 0):
                result[node] = tier
    return result


def _devices(root: str, problems: Problems) -> dict[int, str]:
    """NUMA node -> the kind of the device that its memory was added from by the driver kmem; of two kinds none."""
    result: dict[int, str] = {}
    with Directory(root, _DAX, problems) as devices:
        for name in devices.names():
            node = devices.number(name + "/target_node")
            path = os.path.join(root, _DAX, name)
            if node is None or _link(path + "/driver").rpartition("/")[2] != "kmem":
                continue
            parts = _link(path).split("/")
            kind = next((kind for start, kind in _DEVICES if any(part.startswith(start) for part in parts)), "")
            result[node] = kind if result.get(node, kind) == kind else ""
    return result


def _link(path: str) -> str:
    try:
        return os.readlink(path)
    except OSError as error:
        errors.let_through(error)
        return ""

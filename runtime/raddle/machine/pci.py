"""The machine's GPUs, by what the PCI bus says about every device: which they are and the NUMA node of each.

A driver need not be loaded for it, and nothing of a vendor's own is asked. Paths follow
Documentation/ABI/testing/sysfs-bus-pci, classes and vendors the PCI ID repository (pci.ids).
"""

from __future__ import annotations

import re
from typing import Collection

from raddle.cpus.topology import GPU
from raddle.machine.tree import Directory, Problems

PCI_DIRECTORY = "sys/bus/pci/devices"

# A machine with more of either is no machine that was built.
MAX_DEVICES = 4096
MAX_GPUS = 64

_VGA, _3D, _OTHER_DISPLAY, _ACCELERATOR = "0x0300", "0x0302", "0x0380", "0x1200"
# Vendor -> classes of its GPUs. Not: Intel's integrated graphics (VGA), a board's management controller (ASPEED,
# Matrox), virtual screens (virtio, QXL). AMD's Instinct call themselves other displays or accelerators.
_GPU_CLASSES = {
    "0x10de": (_VGA, _3D, _OTHER_DISPLAY),
    "0x1002": (_VGA, _3D, _OTHER_DISPLAY, _ACCELERATOR),
    "0x8086": (_3D, _OTHER_DISPLAY),
}
_CLASSES = frozenset(name for classes in _GPU_CLASSES.values() for name in classes)
_NUMBER = re.compile("0x[0-9a-f]{4,8}")
_ADDRESS = re.compile("[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}[.][0-7]")


def read_gpus(root: str, numa_nodes: Collection[int], problems: Problems) -> tuple[GPU, ...]:
    """The GPUs of NVIDIA, AMD and, apart from integrated graphics, Intel, sorted by address; at most MAX_GPUS.

    `numa_nodes` are the machine's nodes: a GPU's `numa_node` is one of them, or None where the firmware
    does not say (-1), the kernel is built without NUMA, or the node isn't there, which is a problem.
    """
    result = []
    with Directory(root, PCI_DIRECTORY, problems) as devices:
        for address in sorted(devices.names())[:MAX_DEVICES]:
            if not _ADDRESS.fullmatch(address):
                continue
            kind = _hexadecimal(devices, address + "/class")[:6]
            if kind not in _CLASSES or kind not in _GPU_CLASSES.get(_hexadecimal(devices, address + "/vendor"), ()):
                continue
            node = devices.number(address + "/numa_node")
            if node is not None and node not in numa_nodes:
                if numa_nodes:
                    devices.problem(address + "/numa_node", f"there is no NUMA node {node}")
                node = None
            result.append(GPU(address, node))
    return tuple(result[:MAX_GPUS])


def _hexadecimal(devices: Directory, name: str) -> str:
    text = devices.text(name)
    if text is None:
        return ""
    if not _NUMBER.fullmatch(text):
        devices.problem(name, f"{text[:64]!r} is not a number such as 0x10de")
        return ""
    return text

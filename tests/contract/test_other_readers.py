"""The recorded machines as lscpu and hwloc read them, where these are installed: the same CPUs, groups and distances.

What they can't show is left out: lscpu has no sockets where their numbers are missing, hwloc no node where the kernel
has none.
"""

import os
import shutil
import subprocess
import xml.etree.ElementTree as ET

import pytest
from support.captures import cpus

import machines
from raddle.machine.document import to_document
from raddle.machine.sysfs import read_machine


def groups(texts):
    return sorted(cpus(text) for text in texts)


def of_mask(text):
    """The CPUs of hwloc's form of a mask: 0x0000000f,0xffffffff; a word of nothing is 0."""
    mask = 0
    for word in text.split(","):
        mask = mask << 32 | int(word or "0", 16)
    return [cpu for cpu in range(mask.bit_length()) if mask >> cpu & 1]


@pytest.fixture(scope="module", params=machines.names())
def recorded(request):
    root = machines.path(request.param)
    return root, to_document(read_machine(root))


def said(command, root, environ=None):
    """What a tool prints of a machine. Both need masks, which archives written by hand or cut down do without."""
    if not list(root.glob("sys/devices/system/cpu/cpu0/topology/*_siblings")):
        pytest.skip(f"{command[0]} can't read this tree: it has lists only")
    return subprocess.run(command, env=environ, capture_output=True, text=True, check=True).stdout


@pytest.fixture(scope="module")
def hwloc(recorded):
    if shutil.which("lstopo-no-graphics") is None:
        pytest.skip("hwloc is not installed")
    command = ["lstopo-no-graphics", "-i", str(recorded[0]), "--whole-system", "--no-io", "--of", "xml"]
    environ = os.environ | {"HWLOC_THISSYSTEM": "0", "HWLOC_COMPONENTS": "linux,stop", "HWLOC_HIDE_ERRORS": "2"}
    return ET.fromstring(said(command, recorded[0], environ))


def sets(topology, kind):
    return sorted(of_mask(found.get("cpuset")) for found in topology.iter("object") if found.get("type") == kind)


@pytest.mark.parametrize(("key", "kind"), [("sockets", "Package"), ("cores", "Core"), ("l3Domains", "L3Cache")])
def test_hwloc_shows_the_same_groups(recorded, hwloc, key, kind):
    assert groups(recorded[1][key]) == sets(hwloc, kind)


def test_hwloc_shows_the_same_nodes_and_distances(recorded, hwloc):
    nodes = [found for found in hwloc.iter("object") if found.get("type") == "NUMANode"]
    ours = recorded[1]["numaNodes"]
    assert sorted(ours) == sorted(node.get("os_index") for node in nodes)
    for node in nodes:
        mine = cpus(ours[node.get("os_index")]["cpus"])
        # A node of memory only has the CPUs near it there.
        assert mine in ([], of_mask(node.get("cpuset")))
    matrices = list(hwloc.iter("distances2"))
    assert len(matrices) == (len(nodes) > 1)
    for matrix in matrices:
        ids = " ".join(part.text for part in matrix.findall("indexes")).split()
        values = iter(" ".join(part.text for part in matrix.findall("u64values")).split())
        assert ids == sorted(ours, key=int)
        shown = {one: [int(next(values)) for _ in ids] for one in ids}
        assert {node: told["distances"] for node, told in ours.items()} == shown


def test_lscpu_shows_the_same_cpus_cores_sockets_and_nodes(recorded):
    if shutil.which("lscpu") is None:
        pytest.skip("lscpu is not installed")
    command = ["lscpu", "-s", str(recorded[0]), "-p=CPU,CORE,SOCKET,NODE"]
    rows = [line.split(",") for line in said(command, recorded[0]).splitlines() if line[:1].isdigit()]
    document = recorded[1]
    assert [int(row[0]) for row in rows] == cpus(document["cpusOnline"])

    def column(index):
        found = {}
        for row in rows:
            found.setdefault(row[index], []).append(int(row[0]))
        return sorted(members for name, members in found.items() if name)

    assert column(1) == groups(document["cores"])
    assert column(2) == groups(document["sockets"])
    assert column(3) == [mine for mine in groups(node["cpus"] for node in document["numaNodes"].values()) if mine]

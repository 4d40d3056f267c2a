"""What is known of each NUMA node's memory, from files as a kernel has shown them.

They are those of Linux 6.1 under QEMU 7.2 with five nodes: two sockets, fast memory near each, and an NVDIMM near the
second that was given to the driver kmem.
"""

import pytest

import machines
from raddle.machine.sysfs import read_machine

NODE = "sys/devices/system/node"
NVDIMM = "LNXSYSTM:00/LNXSYBUS:00/ACPI0012:00/ndbus0/region0/dax0.0/dax0.0"
CXL = "platform/ACPI0017:00/root0/decoder0.0/region0/dax_region0/dax0.0"
HMEM = "platform/hmem.0/dax0.0"


def recorded():
    files = machines.synthesize(sockets=2, numa_nodes=2, l3_domains=2, cores=4, threads=1)
    files |= {f"{NODE}/node{node}/cpulist": "\n" for node in (2, 3, 4)}
    for node in range(5):
        files[f"{NODE}/node{node}/distance"] = " ".join("10" if node == other else "20" for other in range(5)) + "\n"
    files["sys/devices/virtual/memory_tiering/memory_tier4/nodelist"] = "0-3\n"
    files["sys/devices/virtual/memory_tiering/memory_tier22/nodelist"] = "4\n"
    near = {0: (0, 102400, 80), 1: (1, 102400, 80), 2: (0, 409600, 90), 3: (1, 409600, 90), 4: (1, 8192, 300)}
    wrong = {0: (0, 102400, 80), 1: (0, 51200, 140), 2: (0, 409600, 90), 3: (0, 4096, 350), 4: (1, 0, 0)}
    for access, told in enumerate((near, wrong)):
        for node, (initiator, mb_s, ns) in told.items():
            folder = f"{NODE}/node{node}/access{access}/initiators"
            files[f"{folder}/node{initiator}"] = f"\0../../../node{initiator}"
            files[f"{folder}/read_bandwidth"] = f"{mb_s}\n"
            files[f"{folder}/read_latency"] = f"{ns}\n"
    return files


def dax(device, driver="kmem", node="4\n"):
    return {
        "sys/bus/dax/devices/dax0.0": f"\0../../../devices/{device}",
        f"sys/devices/{device}/driver": f"\0{'../' * (device.count('/') + 3)}bus/dax/drivers/{driver}",
        f"sys/devices/{device}/target_node": node,
    }


def nodes(tmp_path, files, **wanted):
    machine = read_machine(str(machines.write(files, tmp_path)), **wanted)
    assert machine.problems == ()
    return machine.numa_nodes


def test_memory_has_its_nearest_node_its_tier_and_the_speed_that_firmware_tells(tmp_path):
    found = nodes(tmp_path, recorded() | dax(NVDIMM))
    assert [(one.initiators, one.memory_kind, one.memory_tier, one.read_mb_s, one.read_ns) for one in found] == [
        ((), "", 4, 102400, 80),
        ((), "", 4, 102400, 80),
        ((0,), "", 4, 409600, 90),
        # Its access1 names node 0, which is far.
        ((1,), "", 4, 409600, 90),
        ((1,), "persistent", 22, 8192, 300),
    ]


@pytest.mark.parametrize(
    ("devices", "kind"),
    [
        (dax(NVDIMM), "persistent"),
        (dax(CXL), "cxl"),
        (dax(HMEM), "special-purpose"),
        (dax("platform/else.0/dax0.0"), ""),
        # A program maps it: it is no memory of the node.
        (dax(HMEM, driver="device_dax"), ""),
        (dax(HMEM, node="-1\n"), ""),
    ],
)
def test_the_device_that_memory_was_added_from_tells_its_kind(tmp_path, devices, kind):
    assert nodes(tmp_path, recorded() | devices)[4].memory_kind == kind


def test_memory_of_a_node_with_cpus_is_not_named_after_a_device(tmp_path):
    assert {one.memory_kind for one in nodes(tmp_path, recorded() | dax(CXL, node="1\n"))} == {""}


def test_processes_that_only_decide_read_nothing_of_it(tmp_path):
    found = nodes(tmp_path, recorded() | dax(NVDIMM), details=False)
    assert {one[4:] for one in found} == {((), "", None, None, None)}

"""docs/reference/topology.md names exactly the keys of the document, and its example is what the command prints."""

import json
import re
from pathlib import Path

import machines
from raddle.cpus.topology import GPU, Cache, CoreType, Group, Kubelet, Machine, NUMANode, Problem
from raddle.machine.document import (
    CPU_MANAGER_POLICIES,
    KUBELET_SOURCES,
    TOPOLOGY_MANAGER_POLICIES,
    TOPOLOGY_MANAGER_SCOPES,
    to_document,
)
from raddle.machine.sysfs import read_machine
from raddle.machine.tree import MAX_PROBLEMS

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "topology.md").read_text()

# A machine of which everything is known.
FULL = Machine(
    online=0b0111,
    cores=(0b0011, 0b0100),
    offline=0b1000,
    isolated=0b0100,
    sockets=(Group(0, 0b0111),),
    dies=(Group(0, 0b0111),),
    numa_nodes=(NUMANode(0, 0b0111, 1024, (10, 20)), NUMANode(1, 0, 1024, (20, 10), (0,), "cxl", 22, 8192, 300)),
    l3_domains=(Group(0, 0b0111),),
    core_types=(CoreType("standard", 0b0111, 3000, 1024, "Neoverse-N1"),),
    gpus=(GPU("0000:3b:00.0", 0),),
    architecture="aarch64",
    model="Neoverse-N1",
    boot_id="b",
    kubelet=Kubelet("static", (("a", "b"),), "none", 1, "pod", (("c", "d"),), "Configz"),
    caches=(Cache(2, (0b0011, 0b0100), 1280),),
    problems=(Problem("sys/a", "is empty"),),
)
# Maps whose keys are data.
MAPS = ("numaNodes", "coreTypes")
OPAQUE = ("cpuManagerPolicyOptions", "topologyManagerPolicyOptions")


def keys(value, path=""):
    """The paths of all keys below a value, as the page writes them."""
    if isinstance(value, list):
        return {key for item in value if isinstance(item, dict) for key in keys(item, path + "[]")}
    if not isinstance(value, dict) or path.rpartition(".")[2] in OPAQUE:
        return set()
    if path in MAPS:
        return {key for item in value.values() for key in keys(item, path + ".*")}
    found = set()
    for key, item in value.items():
        at = f"{path}.{key}" if path else key
        found |= {at} | keys(item, at)
    return found


def rows(heading):
    """First cell -> the others, of the table below a heading."""
    table = PAGE.split(f"{heading}\n", 1)[1].split("\n#", 1)[0]
    cells = [line.strip("| ").split(" | ") for line in table.splitlines() if line.startswith("| `")]
    return {re.match("`([^`]*)`", row[0]).group(1): row[1:] for row in cells}


def test_every_key_has_a_row_and_every_row_a_key():
    document = to_document(FULL, 0b0011, 1.5)
    assert rows("## Keys").keys() == keys(document)


def test_every_word_that_a_key_may_hold_is_named():
    told = {key: " ".join(cells) for key, cells in rows("## Keys").items()}
    for key, words in {
        "kubelet.cpuManagerPolicy": CPU_MANAGER_POLICIES,
        "kubelet.topologyManagerPolicy": TOPOLOGY_MANAGER_POLICIES,
        "kubelet.topologyManagerScope": TOPOLOGY_MANAGER_SCOPES[1:],
        "kubelet.source": KUBELET_SOURCES[1:],
    }.items():
        assert all(f"`{word}`" in told[key] for word in words), key
    assert f"at most {MAX_PROBLEMS}" in told["problems"]


def test_the_example_is_what_is_printed():
    example = json.loads(re.search("```json\n(.*?)```", PAGE, re.DOTALL).group(1))
    assert example == to_document(read_machine(machines.path("2s3n-8c16t-memory")))

"""Machines that other projects recorded, with the answers of their own tools: `raddle topology` says the same.

Every key of an expected.json is either compared here or named as no fact; `soft` names the keys in which a correct
reader may differ, with the reason.
"""

import json
import shutil

import pytest
from click.testing import CliRunner
from support import captures as recorded
from support.captures import cpus

from raddle.machine.document import to_document
from raddle.machine.sysfs import read_machine
from raddle_operator.cli import main

# What an expected.json says about itself.
NO_FACTS = {"name", "provenance", "remark", "source", "inspect", "completed", "soft", "scope"}


@pytest.fixture(scope="session")
def captures(tmp_path_factory):
    return recorded.unpack(tmp_path_factory.mktemp("captures"))


def printed(root):
    """The document that the command line prints for a folder."""
    done = CliRunner().invoke(main, ["topology", "--root", str(root), "-o", "json"])
    assert done.exit_code == 0, done.output
    return json.loads(done.output)


def groups(texts):
    return [cpus(text) for text in texts]


def facts(document):
    """The document under the keys of expected.json."""
    numa_nodes = {node: cpus(told["cpus"]) for node, told in document["numaNodes"].items()}
    return {
        "cpus_online": cpus(document["cpusOnline"]),
        "cpus_online_count": len(cpus(document["cpusOnline"])),
        "cpus_offline": cpus(document["cpusOffline"]),
        "allowed": cpus(document.get("allowed", "")),
        "sockets": len(document["sockets"]),
        "socket_groups": groups(document["sockets"]),
        "dies": len(document["dies"]),
        "die_groups": groups(document["dies"]),
        "cores": len(document["cores"]),
        "core_groups": groups(document["cores"]),
        "threads_per_core_max": document["threadsPerCore"],
        "l3_domains": groups(document["l3Domains"]),
        "numa_nodes": numa_nodes,
        "numa_node_count": len(numa_nodes),
        "numa_locality": numa_nodes,
        "allowed_nodes": numa_nodes,
        "numa_distances": {
            node: told.get("distances") and dict(zip(sorted(numa_nodes, key=int), told["distances"], strict=True))
            for node, told in document["numaNodes"].items()
        },
        "kinds": {name: cpus(kind["cpus"]) for name, kind in document["coreTypes"].items()},
    }


def within(allowed, value):
    """The groups cut to the allowed CPUs, for a tool that shows no others."""
    return [cut for group in value if (cut := [cpu for cpu in group if cpu in allowed])]


def as_told(key, value, expected):
    """Our value of a key in the form, and to the extent, in which the other tool tells it."""
    told = expected[key]
    if key in ("socket_groups", "core_groups", "l3_domains") and expected.get("scope") == "allowed":
        return within(expected["allowed"], value)
    if key == "numa_distances":
        return {one: {two: value[one][two] for two in told[one]} for one in told}
    if key == "allowed_nodes":
        return {node: [cpu for cpu in value[node] if cpu in expected["allowed"]] for node in told}
    if key == "numa_locality":
        # hwloc gives a node without CPUs those that are near it; the kernel gives it none.
        return {node: value[node] or told[node] for node in value}
    return value


def sizes(kinds):
    return sorted(kind["count"] if "count" in kind else len(kind["cpus"]) for kind in kinds)


@pytest.mark.parametrize("name", recorded.NAMES)
def test_a_recorded_machine_is_read_as_other_tools_read_it(captures, name):
    expected = json.loads((captures / name / "expected.json").read_text())
    document = printed(captures / name)
    found = facts(document)
    assert expected.keys() - NO_FACTS <= found.keys(), "a fact that nobody compares"
    for key in expected.keys() - NO_FACTS - expected.get("soft", {}).keys() - {"kinds"}:
        assert as_told(key, found[key], expected) == expected[key], key
    kinds = expected.get("kinds", [])
    if kinds:
        assert sorted(len(kind) for kind in found["kinds"].values()) == sizes(kinds)
        listed = sorted(kind["cpus"] for kind in kinds if "cpus" in kind)
        assert not listed or sorted(found["kinds"].values()) == listed
    assert document["problems"] == []


def test_every_capture_is_compared(captures):
    assert sorted(path.name for path in captures.iterdir()) == sorted(recorded.NAMES)


@pytest.mark.parametrize("name", recorded.NAMES)
def test_the_document_and_the_machine_are_one(captures, name):
    document = printed(captures / name)
    share = {key: document.pop(key) for key in ("allowed", "quotaCPUs") if key in document}
    assert document == to_document(read_machine(captures / name))
    expected = json.loads((captures / name / "expected.json").read_text())
    assert ("allowed" in share) >= ("allowed" in expected)


@pytest.mark.parametrize("name", recorded.NAMES)
def test_a_tree_as_it_was_recorded_says_the_same(captures, name, tmp_path):
    """Without the files that were added to the capture: the masks and folders beside them tell."""
    expected = json.loads((captures / name / "expected.json").read_text())
    bare = shutil.copytree(captures / name, tmp_path / "bare", symlinks=True)
    deleted = 0
    for added in expected["completed"]:
        folder, _, file = added.rpartition("/")
        pattern = {"cpu": f"sys/devices/system/{added}", "node": f"sys/devices/system/node/**/{file}"}.get(
            folder, f"sys/devices/system/**/{file}"
        )
        for path in list(bare.glob(pattern)):
            path.unlink()
            deleted += 1
    assert deleted == sum(expected["completed"].values())
    assert printed(bare) == printed(captures / name)


def test_cores_are_named_as_lscpu_names_them(captures):
    name = "lscpu-arm-A510-A710-A715-X3"
    expected = json.loads((captures / name / "expected.json").read_text())["kinds"]
    kinds = printed(captures / name)["coreTypes"]
    found = sorted((kind["model"], len(cpus(kind["cpus"]))) for kind in kinds.values())
    assert found == sorted((kind["name"], kind["count"]) for kind in expected)
    assert [(kind, told["cpus"], told["capacity"]) for kind, told in kinds.items()] == [
        ("capacity-280", "0-2", 280),
        ("capacity-855", "3-4", 855),
        ("capacity-855-0xd47", "5-6", 855),
        ("capacity-1024", "7", 1024),
    ]


@pytest.mark.parametrize(
    ("name", "architecture", "model"),
    [
        ("hwloc-32amd64-4s2n4c-cgroup2", "x86_64", "AMD Opteron(tm) Processor 6134"),
        ("iree-x86_64_ryzen9_7950x", "", ""),
        ("lscpu-arm-A510-A710-A715-X3", "aarch64", "Cortex-A510"),
        ("lscpu-ppc64-POWER7", "ppc64", "POWER7 (architected), altivec supported"),
        ("lscpu-s390-lpar-drawer", "s390x", "IBM/S390 machine 2964"),
        ("nto-worker2", "x86_64", "Intel(R) Xeon(R) Gold 6130 CPU @ 2.10GHz"),
    ],
)
def test_architecture_and_model(captures, name, architecture, model):
    document = printed(captures / name)
    assert (document["architecture"], document["model"]) == (architecture, model)

import json

import pytest
from hypothesis import given
from support.machines import decisive, described_machines

import machines
from raddle.cpus.topology import GPU, Kubelet, NUMANode
from raddle.machine.sysfs import read_machine
from raddle_operator.objects.nodetopology import (
    TopologyError,
    content_hash,
    from_object,
    shape_hash,
    to_spec,
    with_stable_memory,
)


def obj(spec):
    return {"apiVersion": "raddle.dev/v1alpha1", "kind": "NodeCPUTopology", "metadata": {"name": "n"}, "spec": spec}


@given(described_machines())
def test_a_machine_survives_the_api_object(machine):
    spec = json.loads(json.dumps(to_spec(machine)))
    assert from_object(obj(spec)) == decisive(machine)


@pytest.mark.parametrize("name", machines.names())
def test_a_recorded_machine_fits_the_schema(name, schema):
    machine = read_machine(machines.path(name), details=False)
    schema.validate(obj(to_spec(machine)))
    assert from_object(obj(to_spec(machine))) == machine


def known(schema, spec):
    """Every field of the spec is one that the schema declares: the API server would drop another."""
    properties = schema.get("properties")
    if schema.get("type") == "array":
        return all(known(schema["items"], item) for item in spec)
    if properties is None:
        return True
    return spec.keys() <= properties.keys() and all(known(properties[key], value) for key, value in spec.items())


def test_no_field_is_written_that_the_schema_does_not_have(schema):
    machine = read_machine(machines.path("hybrid-6p8e-20t"), details=False)
    kinds = [kind._replace(capacity=1024, model="Cortex-X3") for kind in machine.core_types]
    machine = machine._replace(
        core_types=tuple(kinds),
        gpus=(GPU("0000:3b:00.0", 0), GPU("0000:af:00.0")),
        offline=1 << 40,
        isolated=1,
        boot_id="b" * 36,
        kubelet=Kubelet("static", (("a", "b"),), "none", 3),
    )
    spec = to_spec(machine)
    assert known(schema.schema["properties"]["spec"], spec)
    schema.validate(obj(spec))
    assert from_object(obj(json.loads(json.dumps(spec)))) == machine


def test_the_counts_are_for_tables():
    counts = to_spec(read_machine(machines.path("2s16c32t")))["counts"]
    assert counts == {"cpus": 32, "cores": 16, "sockets": 2, "numaNodes": 2}


@pytest.mark.parametrize(("l3_domains", "threads", "cores"), [(16, 2, 128), (32, 2, 128), (2, 2, 128), (16, 1, 256)])
def test_256_cpus_take_at_most_8_kb(tmp_path, l3_domains, threads, cores):
    files = machines.synthesize(l3_domains=l3_domains, cores=cores, threads=threads)
    spec = to_spec(read_machine(machines.write(files, tmp_path)))
    assert spec["counts"]["cpus"] == 256
    assert len(json.dumps(obj(spec))) <= 8192


def test_smt_is_told_only_where_cores_are_known(tmp_path):
    machine = read_machine(machines.path("2s16c32t"))
    assert to_spec(machine)["smtEnabled"] is True
    assert to_spec(machine._replace(cores=tuple(1 << cpu for cpu in range(32))))["smtEnabled"] is False
    unknown = to_spec(machine._replace(cores=()))
    assert "smtEnabled" not in unknown
    assert "threadsPerCore" not in unknown


def test_a_hash_depends_on_the_content_and_not_on_the_order_of_keys():
    spec = to_spec(read_machine(machines.path("2s16c32t")))
    turned = dict(reversed(spec.items()))
    assert content_hash(spec) == content_hash(turned)
    assert content_hash(spec) != content_hash(spec | {"model": "other"})


def test_machines_of_one_shape_share_a_hash_across_boots():
    spec = to_spec(read_machine(machines.path("2s16c32t")))
    rebooted = spec | {"bootID": "another"}
    assert shape_hash(spec) == shape_hash(rebooted)
    assert content_hash(spec) != content_hash(rebooted)
    assert shape_hash(spec) != shape_hash(spec | {"model": "other"})


@pytest.mark.parametrize(
    ("before_mib", "found_mib", "published_mib"),
    [
        (16000, 15500, 16000), (16000, 17000, 16000), (16000, 14900, 14900), (16000, 32000, 32000),
        (16000, None, None), (None, 16000, 16000), (0, 16000, 16000), (0, 0, 0),
    ],
)  # fmt: skip
def test_a_balloon_in_the_memory_makes_no_other_machine(before_mib, found_mib, published_mib):
    machine = read_machine(machines.path("1s2c2t"))
    before, found = (machine._replace(numa_nodes=(NUMANode(0, 15, mib),)) for mib in (before_mib, found_mib))
    assert with_stable_memory(found, before).numa_nodes == (NUMANode(0, 15, published_mib),)


def test_a_node_that_was_not_there_has_the_memory_that_it_has():
    machine = read_machine(machines.path("2s3n-8c16t-memory"))
    assert with_stable_memory(machine, None) == machine
    assert with_stable_memory(machine, machine._replace(numa_nodes=())) == machine


@pytest.mark.parametrize(
    ("broken", "path"),
    [
        (None, "spec"),
        ([], "spec"),
        ({}, "spec"),
        ({"spec": None}, "spec"),
        ({"spec": {}}, "spec.cpus"),
        ({"spec": {"cpus": "0-3"}}, "spec.cpus"),
        ({"spec": {"cpus": {}}}, "spec.cpus.online"),
        ({"spec": {"cpus": {"online": "x"}}}, "spec.cpus.online"),
        ({"spec": {"cpus": {"online": "0", "isolated": 5}}}, "spec.cpus.isolated"),
        ({"spec": {"cpus": {"online": "0"}, "cores": ["0", "0"]}}, "spec.cores[1]"),
        ({"spec": {"cpus": {"online": "0"}, "numaNodes": [{"numaNodeID": 0, "cpus": "1"}]}}, "spec.numaNodes[0].cpus"),
    ],
)
def test_a_broken_object_is_an_error_that_names_the_field(broken, path):
    with pytest.raises(TopologyError) as caught:
        from_object(broken)
    assert caught.value.path == path


def test_unknown_fields_are_ignored():
    assert from_object({"spec": {"cpus": {"online": "0", "x": 1}, "y": {}}, "status": 3}).online == 1

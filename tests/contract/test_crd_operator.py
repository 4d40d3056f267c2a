"""The CRDs and the operator's readers and writers say the same."""

import re

import jsonschema
import pytest

import machines
from cluster import objects
from generate import crds
from raddle.cpus.topology import Kubelet
from raddle.machine import sysfs
from raddle_operator.cli import schema
from raddle_operator.controller.status import LAYOUTS_SHOWN
from raddle_operator.objects import nodetopology
from raddle_operator.objects import policy as spec
from raddle_operator.objects.reasons import SkipReason


def crd_schema(kind):
    return crds.read(kind)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]


CLUSTER_SPEC = crd_schema("clusterinferencethreadings")["spec"]["properties"]
STATUS = crd_schema("inferencethreadings")["status"]["properties"]


def policy(**fields):
    return objects.policy("latency", kind="ClusterInferenceThreading", **fields)


@pytest.mark.parametrize("field", ["mode", "tier"])
def test_the_reader_takes_the_words_of_the_schema_and_no_other(field):
    for word in CLUSTER_SPEC[field]["enum"]:
        assert getattr(spec.policy_from_object(policy(**{field: word})), field) == word
    assert getattr(spec.policy_from_object(policy()), field) == CLUSTER_SPEC[field]["default"]
    with pytest.raises(spec.SpecError):
        spec.policy_from_object(policy(**{field: "Other"}))


def test_the_reader_takes_as_many_containers_as_the_schema():
    most = CLUSTER_SPEC["containers"]["maxItems"]
    names = [f"c{number}" for number in range(most + 1)]
    assert spec.policy_from_object(policy(containers=names[:most])).containers == tuple(names[:most])
    with pytest.raises(spec.SpecError):
        spec.policy_from_object(policy(containers=names))


def test_the_reader_takes_a_selector_at_the_schemas_bounds():
    selector = {
        "matchLabels": {
            f"l{number}": "v"
            for number in range(CLUSTER_SPEC["podSelector"]["properties"]["matchLabels"]["maxProperties"])
        },
        "matchExpressions": [
            {"key": f"e{number}", "operator": "In", "values": [f"v{value}" for value in range(64)]}
            for number in range(CLUSTER_SPEC["podSelector"]["properties"]["matchExpressions"]["maxItems"])
        ],
    }
    spec.policy_from_object(policy(podSelector=selector, namespaceSelector=selector))


def test_status_has_room_for_every_skip_reason():
    reason = STATUS["skippedPods"]["items"]["properties"]["reason"]
    assert len(SkipReason) <= STATUS["skippedPods"]["maxItems"]
    for word in SkipReason:
        assert re.fullmatch(reason["pattern"], word)
        assert len(word) <= reason["maxLength"]


def test_status_has_room_for_every_layout_that_is_shown():
    layouts = STATUS["layouts"]
    assert layouts["maxItems"] == LAYOUTS_SHOWN
    for layout in ("1x1", "65536x1", "99999x99999"):
        assert re.fullmatch(layouts["items"]["properties"]["layout"]["pattern"], layout)
        assert len(layout) <= layouts["items"]["properties"]["layout"]["maxLength"]


@pytest.mark.parametrize(
    "kubelet", [Kubelet(), Kubelet(cpu_manager_policy="static", reserved_cpus=0b11)], ids=["unknown", "static"]
)
@pytest.mark.parametrize("name", machines.names())
def test_what_the_agent_writes_of_a_recorded_machine_fits_the_schema(name, kubelet):
    machine = sysfs.read_machine(str(machines.path(name)), details=False)._replace(kubelet=kubelet)
    written = {
        "apiVersion": nodetopology.API_VERSION,
        "kind": nodetopology.KIND,
        "metadata": {"name": name},
        "spec": nodetopology.to_spec(machine),
    }
    jsonschema.validate(written, schema.schema("NodeCPUTopology"))
    assert nodetopology.from_object(written) == machine._replace(problems=())


def test_that_check_can_fail():
    written = {"spec": {"cpus": {"online": "0"}, "surprise": 1}}
    with pytest.raises(jsonschema.ValidationError, match="surprise"):
        jsonschema.validate(written, schema.schema("NodeCPUTopology"))

"""CPUs that ResourceClaims give a pod's containers, read when it is bound. The claims are those of the documents and
examples of kubernetes-sigs/dra-driver-cpu 0.2, as the scheduler allocates them."""

import copy
import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.injections import KNOWN, inject

from assembling import regular
from cluster import objects
from raddle.cpus.topology import Kubelet
from raddle.planning.wire import has_claims
from raddle_operator.injection.binding import BindingOutcome, rebind
from raddle_operator.injection.claims import Claimed, claimed, references


def result(device="cpudevnuma000", cpus="10", *, request="req-cpu-slice", driver="dra.cpu"):
    consumed = {"consumedCapacity": {"dra.cpu/cpu": cpus}} if cpus else {}
    return {"request": request, "driver": driver, "pool": "node-1", "device": device, **consumed}


def claim(*results, config=()):
    return {"status": {"allocation": {"devices": {"results": list(results), "config": list(config)}}}}


def grouped(cpus="10"):
    """hack/examples/pod_with_resource_claim_grouped_mode.yaml."""
    return claim(result(cpus=cpus))


def individual(count):
    """hack/examples/pod_with_resource_claim_individual_mode.yaml: a device for each CPU."""
    return claim(*(result(f"cpudev{number:03}", None) for number in range(count)))


def chosen(cpuset):
    """docs/user/opaque-cpuset-overrides.md: CPUs that a scheduler of somebody's has chosen."""
    parameters = {"apiVersion": "v1alpha1", "cpuConfig": {"cpuset": cpuset}}
    opaque = {"driver": "dra.cpu", "parameters": parameters}
    config = {"source": "FromClaim", "requests": ["cpu-request-1"], "opaque": opaque}
    requests = [{"name": "cpu-request-1", "exactly": {"deviceClassName": "dra.cpu", "count": 4}}]
    allocated = claim(result("cpudevmachine", "4", request="cpu-request-1"), config=[config])
    metadata = {"name": "exclusive-cores-claim", "namespace": "default", "uid": "claim-uid-123456"}
    return {"metadata": metadata, "spec": {"devices": {"requests": requests}}, **allocated}


CHOSEN = chosen("2-5")


def using(*names, cpu=None, **request):
    """A container that uses claims of its pod."""
    limit = {"requests": {"cpu": cpu}, "limits": {"cpu": cpu}} if cpu else {}
    return {**objects.container("serve"), "resources": {**limit, "claims": [{"name": one, **request} for one in names]}}


def pod(*containers, **names):
    """A pod whose claims by name in the pod have these names in the cluster."""
    return objects.pod(
        *containers, resourceClaims=[{"name": own, "resourceClaimName": name} for own, name in names.items()]
    )


GPU = claim(result("gpu-0", None, driver="gpu.example.com", request="gpu"))
MIXED = claim(result(request="cpus/large"), result("gpu-0", None, driver="gpu.example.com", request="gpu"))


@pytest.mark.parametrize(
    ("container", "claims", "found"),
    [
        (using("cpus", cpu="10"), {"c": grouped()}, Claimed(10, None, "DRA claim cpus")),
        # Pod-level resources: a container with a claim may have no CPUs of its own (docs/user/workload-requirements.md).
        (using("cpus"), {"c": grouped()}, Claimed(10, None, "DRA claim cpus")),
        # count: 2 with capacity, spread over two NUMA nodes (docs/user/device-attributes.md).
        (using("cpus"), {"c": claim(result(), result("cpudevnuma001"))}, Claimed(20, None, "DRA claim cpus")),
        (using("cpus"), {"c": claim(result("cpudevsocket000", "8"))}, Claimed(8, None, "DRA claim cpus")),
        (using("cpus", cpu="4"), {"c": individual(4)}, Claimed(4, None, "DRA claim cpus")),
        (using("cpus", cpu="4"), {"c": CHOSEN}, Claimed(4, 0b111100, "DRA claim cpus")),
        (using("cpus", "more"), {"c": CHOSEN, "d": grouped("2")}, Claimed(6, None, "DRA claim cpus, more")),
        (using("cpus", "gpu"), {"c": grouped(), "d": GPU}, Claimed(10, None, "DRA claim cpus")),
        (using("cpus"), {"c": MIXED}, Claimed(10, None, "DRA claim cpus")),
        (using("cpus", request="cpus"), {"c": MIXED}, Claimed(10, None, "DRA claim cpus")),
        # The other container has the CPUs.
        (using("cpus", request="gpu"), {"c": MIXED}, None),
        (using("gpu"), {"d": GPU}, None),
        (using("unknown"), {}, None),
        # A mistake: the limit throttles what runs on all of them.
        (using("cpus", cpu="4"), {"c": grouped()}, None),
        (using("cpus"), {"c": grouped("0.5")}, None),
        (using("cpus"), {"c": grouped("0")}, None),
        (using("cpus"), {"c": grouped("1e30")}, None),
        # Without the feature gate the API server drops how much of a group is taken.
        (using("cpus"), {"c": claim(result(cpus=None))}, None),
        (using("cpus"), {"c": {"status": {}}}, None),
        (using("cpus"), {"c": {}}, None),
        (using("cpus"), {}, None),
        # What the driver refuses is no choice.
        (using("cpus"), {"c": chosen("2-6")}, Claimed(4, None, "DRA claim cpus")),
        (using("cpus"), {"c": chosen("")}, Claimed(4, None, "DRA claim cpus")),
        (using("cpus"), {"c": chosen("0," * 5000 + "0")}, Claimed(4, None, "DRA claim cpus")),
        (using("cpus"), {"c": chosen("two")}, None),
    ],
)  # fmt: skip
def test_a_container_has_the_cpus_of_its_claims(container, claims, found):
    names = {"cpus": "c", "more": "d", "gpu": "d"}
    assert claimed(pod(container, **names), claims).get("serve") == found


def test_a_claim_made_from_a_template_has_its_name_in_the_pods_status():
    made = pod(using("cpus"))
    made["spec"]["resourceClaims"] = [{"name": "cpus", "resourceClaimTemplateName": "two"}]
    made["status"] = {"resourceClaimStatuses": [{"name": "cpus", "resourceClaimName": "app-cpus-x7h2k"}]}
    assert claimed(made, {"app-cpus-x7h2k": grouped("2")}) == {"serve": Claimed(2, None, "DRA claim cpus")}
    # It was not made, or is not needed.
    made["status"]["resourceClaimStatuses"][0]["resourceClaimName"] = None
    assert references(made) == {}


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
)


def _paths(obj, path=()):
    yield path
    for key, inner in obj.items() if isinstance(obj, dict) else enumerate(obj) if isinstance(obj, list) else ():
        yield from _paths(inner, (*path, key))


@given(st.data(), anything)
def test_no_shape_of_a_pod_or_a_claim_raises(data, other):
    both = {"pod": pod(using("cpus", cpu="4"), cpus="c"), "claims": {"c": copy.deepcopy(CHOSEN)}}
    path = data.draw(st.sampled_from([path for path in _paths(both) if path and path != ("claims",)]))
    inner = both
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = other
    found = claimed(both["pod"], both["claims"])
    assert all(one.whole_cpus > 0 for one in found.values())


# The driver needs a kubelet whose own CPU manager is off.
NODE = regular(16, 2, numa_nodes=2, kubelet=Kubelet("none"))


def injected(container):
    patched, _ = inject(pod(container, cpus="c"), facts=replace(KNOWN, smallest_cores=2))
    return patched["metadata"]["annotations"]


def planned(annotations):
    return json.loads(annotations["plan.raddle.dev/serve"])


@pytest.mark.parametrize("cpu", ["8", None])
def test_claimed_cpus_are_exclusive_and_the_reason_names_the_claim(cpu):
    annotations = injected(using("cpus", cpu=cpu))
    found = rebind(annotations, "node-1", NODE, claimed={"serve": Claimed(8, None, "DRA claim cpus")})
    assert found.outcome is BindingOutcome.NODE_SPECIFIC
    plan = planned(found.annotations)
    assert (plan["set"]["exclusiveCPUs"], plan["set"]["intraOp"]) == (8, 4)
    assert plan["because"]["intraOp"] == "8 exclusive CPUs (DRA claim cpus) on 4 physical cores"
    assert ";exclusive_cpus=8;" in found.annotations["shim.raddle.dev/serve"]
    again = rebind({**annotations, **found.annotations}, "node-1", NODE, claimed={"serve": Claimed(8, None, "DRA claim cpus")})  # fmt: skip
    assert again.annotations == found.annotations


def test_cpus_that_the_claim_names_are_those_that_are_planned_with():
    annotations = injected(using("cpus", cpu="4"))
    # Two cores of one NUMA node and two of the other, by the kernel's numbers; then CPUs that are not there.
    across = Claimed(4, 1 << 0 | 1 << 1 | 1 << 14 | 1 << 15, "DRA claim cpus")
    plan = planned(rebind(annotations, "node-1", NODE, claimed={"serve": across}).annotations)
    assert (plan["set"]["exclusiveCPUs"], plan["set"]["cpus"]) == (4, "0-1,14-15")
    gone = Claimed(4, 0b1111 << 900, "DRA claim cpus")
    plan = planned(rebind(annotations, "node-1", NODE, claimed={"serve": gone}).annotations)
    assert plan["set"]["exclusiveCPUs"] == 4
    assert "900" not in plan["set"].get("cpus", "")


def test_a_claim_goes_before_what_a_scheduler_says_of_the_pod():
    annotations = {**injected(using("cpus", cpu="4")), "scheduling.koordinator.sh/resource-status": '{"cpuset":"0-1"}'}
    plan = planned(rebind(annotations, "node-1", NODE, claimed={"serve": Claimed(4, 0b111100, "DRA claim cpus")}).annotations)  # fmt: skip
    assert "Koordinator" not in plan["because"]["intraOp"]
    assert plan["set"]["exclusiveCPUs"] == 4


def test_all_cpus_of_a_node_are_no_sign_of_a_claim():
    annotations = injected(using("cpus", cpu="32"))
    found = rebind(annotations, "node-1", NODE, claimed={"serve": Claimed(32, None, "DRA claim cpus")})
    assert "exclusiveCPUs" not in planned(found.annotations)["set"]


def test_a_plan_says_whether_its_container_has_claims_and_nothing_in_its_texts_does():
    assert has_claims(injected(using("cpus", cpu="4"))["plan.raddle.dev/serve"])
    container = {**objects.container("serve"), "resources": {"limits": {"cpu": "4"}}}
    assert not has_claims(injected(container)["plan.raddle.dev/serve"])
    assert not has_claims(json.dumps({"because": {"intraOp": '"claims":true'}}))

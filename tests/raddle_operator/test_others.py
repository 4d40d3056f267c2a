"""What others have decided about a pod's CPUs: boosts, CPUs that are lent, dedicated ones, and what a pod keeps for its
other containers. The annotations are those of the projects' own tests and documents, named beside each."""

import json

import pytest
from support.injections import inject

from assembling import regular
from cluster import objects
from raddle.planning.planner import plan
from raddle.planning.policy import Policy, PolicyError, from_settings, parse, to_settings
from raddle_operator.injection.binding import BindingOutcome, rebind
from raddle_operator.injection.budget import container_budget, pod_resources
from raddle_operator.objects.pods import pod_from_object

# VPA 1.8.1, pkg/utils/annotations/vpa_cpu_boost_test.go, "valid annotation".
VPA = {"vpaCpuStartupBoost/serve": '{"requests":{"cpu":"1","memory":"1Gi"},"limits":{"cpu":"2","memory":"2Gi"}}'}
# kube-startup-cpu-boost, internal/boost/pod/pod_test.go.
STARTUP = {
    "autoscaling.x-k8s.io/startup-cpu-boost": '{"timestamp":"2023-10-05T10:00:00Z","initCPURequests":{"serve":"500m"},'
    '"initCPULimits":{"serve":"1"}}'
}
# Koordinator, apis/slo/v1alpha1/nodeslo.go: CPUBurstConfig.
BURST = {"koordinator.sh/cpuBurst": '{"policy":"auto","cpuBurstPercent":1000,"cfsQuotaBurstPercent":300}'}
# nri-plugins, the balloons policy.
BALLOON = {"balloon.balloons.resource-policy.nri.io/container.serve": "dynamic"}
RECLAIMED = {"katalyst.kubewharf.io/qos_level": "reclaimed_cores"}
DEDICATED = {"katalyst.kubewharf.io/qos_level": "dedicated_cores"}


def budget(resources, annotations=None, labels=None, *, beside=(), of_pod=None, reserve=None):
    """What the first container counts with."""
    others = [{"name": name, "resources": part} for name, part in beside]
    spec = {"containers": [{"name": "serve", "resources": resources}, *others]}
    if of_pod:
        spec["resources"] = of_pod
    read = pod_from_object({"metadata": {"annotations": annotations or {}, "labels": labels or {}}, "spec": spec})
    return container_budget(read.containers[0], pod_resources(read, reserve))


def limit(cpu):
    return {"limits": {"cpu": cpu}, "requests": {"cpu": cpu}}


@pytest.mark.parametrize(
    ("resources", "annotations", "quota_cpus", "because"),
    [
        (limit("4"), VPA, 2.0, "limits.cpu 2 after VPA's startup boost"),
        (limit("4"), STARTUP, 1.0, "limits.cpu 1 after kube-startup-cpu-boost"),
        # With REMOVE_LIMITS=true there is no limit meanwhile.
        ({"requests": {"cpu": "2"}}, STARTUP, 1.0, "limits.cpu 1 after kube-startup-cpu-boost"),
        (limit("1"), VPA, 1.0, "limits.cpu 1"),
        (limit("4"), BURST, 4.0, "limits.cpu 4; without Koordinator's quota burst"),
        (limit("4"), {"koordinator.sh/cpuBurst": '{"policy":"cpuBurstOnly"}'}, 4.0, "limits.cpu 4"),
        (limit("4"), BALLOON, 4.0, "limits.cpu 4; nri-plugins may change its CPUs while it runs"),
        (limit("4"), {**BALLOON, "cpu.preserve.resource-policy.nri.io/pod": "true"}, 4.0, "limits.cpu 4"),
        (limit("4"), {"vpaCpuStartupBoost/other": VPA["vpaCpuStartupBoost/serve"]}, 4.0, "limits.cpu 4"),
    ],
)
def test_a_limit_that_is_boosted_for_a_while_is_not_the_limit(resources, annotations, quota_cpus, because):
    found = budget(resources, annotations)
    assert (found.quota_cpus, found.because) == (quota_cpus, because)


@pytest.mark.parametrize("key", ["vpaCpuStartupBoost/serve", "autoscaling.x-k8s.io/startup-cpu-boost"])
@pytest.mark.parametrize(
    "text",
    ["[" * 5000, '{"limits":{"cpu":"-1"},"requests":{},"initCPULimits":{"serve":"-1"}}',
     '{"limits":[],"requests":1,"initCPULimits":"serve"}',
     '{"limits":{"cpu":{}},"requests":{},"initCPULimits":{"serve":{}}}'],
)  # fmt: skip
def test_an_annotation_that_cannot_be_read_is_ignored(key, text):
    found = budget(limit("4"), {key: text})
    assert found.quota_cpus == 4.0
    if text[0] == "{":
        assert found.because == f"limits.cpu 4; {key} is ignored: it can't be read"


@pytest.mark.parametrize(
    ("resource", "annotations", "labels", "lender"),
    [
        # Koordinator, apis/extension/resource.go: thousandths of a CPU.
        ("kubernetes.io/batch-cpu", {}, {"koordinator.sh/qosClass": "BE"}, "Koordinator BE"),
        ("resource.katalyst.kubewharf.io/reclaimed_millicpu", RECLAIMED, {}, "Katalyst reclaimed_cores"),
        ("katalyst.kubewharf.io/reclaimed_millicpu", RECLAIMED, {}, "Katalyst reclaimed_cores"),
    ],
)
def test_lent_cpus_bound_the_threads_and_nothing_spins_on_them(resource, annotations, labels, lender):
    found = budget({"limits": {resource: "4k"}, "requests": {resource: "4k"}}, annotations, labels)
    assert (found.quota_cpus, found.request_cpus, found.because) == (4.0, 4.0, f"limits {resource} 4k ({lender})")
    made = plan(regular(16, 2), found, Policy())
    assert (made.intra_op, made.spinning) == (4, "never")
    assert made.because["spinning"] == "borrowed CPUs, which may be reclaimed"


@pytest.mark.parametrize(
    ("annotations", "labels", "who"),
    [
        ({}, {"koordinator.sh/qosClass": "LSE"}, "Koordinator LSE"),
        ({}, {"koordinator.sh/qosClass": "LSR"}, "Koordinator LSR"),
        (DEDICATED, {}, "Katalyst dedicated_cores"),
    ],
)
def test_dedicated_cpus_are_exclusive_without_the_kubelets_static_manager(annotations, labels, who):
    found = budget(limit("8"), annotations, labels)
    assert (found.whole_cpus, found.dedicated) == (8, who)
    made = plan(regular(16, 2), found, Policy())
    assert (made.exclusive_cpus, made.intra_op) == (8, 4)
    assert made.because["intraOp"].startswith(f"8 exclusive CPUs ({who})")
    # All CPUs of a node would be no sign of it.
    assert plan(regular(4, 2), found, Policy()).exclusive_cpus == 0
    # The container shows another number: they are not its own.
    assert plan(regular(16, 2), found._replace(cpus=0b1111), Policy()).exclusive_cpus == 0


def test_a_shared_class_is_as_if_it_said_nothing():
    assert budget(limit("8"), {}, {"koordinator.sh/qosClass": "LS"}) == budget(limit("8"))


POD = {"limits": {"cpu": "4"}}


@pytest.mark.parametrize(
    ("resources", "beside", "of_pod", "reserve", "quota_cpus", "because"),
    [
        ({}, [("istio-proxy", {"requests": {"cpu": "100m"}})], POD, None, 3.9,
         "pod-level limits.cpu 4, 3.9 after the requests of the others"),
        ({}, [("helper", {"requests": {"cpu": "3"}})], POD, None, 1.0,
         "pod-level limits.cpu 4, 1 after the requests of the others"),
        ({"requests": {"cpu": "3"}}, [("helper", {})], POD, None, 3.0,
         "pod-level limits.cpu 4, 3 after the requests of the others"),
        ({}, [("istio-proxy", {"requests": {"cpu": "100m"}})], POD, 0.2, 3.0,
         "pod-level limits.cpu 4 less budget.reserve 0.2"),
        ({}, [("istio-proxy", {"requests": {"cpu": "100m"}})], POD, 0.0, 4.0, "pod-level limits.cpu 4"),
        (limit("3"), [("istio-proxy", {})], POD, 2.0, 2.0, "pod-level limits.cpu 4 less budget.reserve 2"),
        (limit("4"), [], None, 0.2, 3.0, "limits.cpu 4 less budget.reserve 0.2"),
        (limit("1"), [], None, 0.2, 0.8, "limits.cpu 1 less budget.reserve 0.2"),
        (limit("1"), [], None, 8.0, 0.001, "limits.cpu 1 less budget.reserve 8"),
        ({}, [], None, 0.2, None, "no CPU limit"),
    ],
)  # fmt: skip
def test_the_other_containers_keep_their_cpus(resources, beside, of_pod, reserve, quota_cpus, because):
    found = budget(resources, beside=beside, of_pod=of_pod, reserve=reserve)
    assert (found.quota_cpus, found.because) == (quota_cpus, because)


@pytest.mark.parametrize(("text", "cpus"), [("200m", 0.2), ("1", 1.0), ("0.5", 0.5), ("0", 0.0)])
def test_a_reserve_is_written_as_kubernetes_writes_cpus(text, cpus):
    policy = parse({"budget": {"reserve": text}})
    assert policy.reserve_cpus == cpus
    assert from_settings(to_settings(policy)) == policy


@pytest.mark.parametrize("value", ["", "-1", "1e3", "2Gi", "1.0000", "9999", 1, 0.5, True, []])
def test_any_other_reserve_is_refused(value):
    with pytest.raises(PolicyError, match=r"budget\.reserve"):
        parse({"budget": {"reserve": value}})


# Koordinator, pkg/scheduler/plugins/nodenumaresource/plugin_test.go: what koord-scheduler writes before it binds a pod.
STATUS = "scheduling.koordinator.sh/resource-status"


def bound(status, labels=None, *, cpu="4", annotations=None):
    """What binding puts on a pod of one container, on a node with 16 cores of two threads in two NUMA nodes."""
    container = {**objects.container("serve"), "resources": limit(cpu)}
    annotations = {**(annotations or {}), **({STATUS: status} if status else {})}
    patched, _ = inject(objects.pod(container, labels=labels or {}, annotations=annotations))
    return rebind(patched["metadata"]["annotations"], "node-1", regular(16, 2, numa_nodes=2))


def planned(binding):
    return json.loads(binding.annotations["plan.raddle.dev/serve"])


def test_the_cpus_that_koordinator_has_chosen_are_planned_with_and_named():
    found = planned(bound('{"cpuset":"0-3"}', {"koordinator.sh/qosClass": "LSR"}))
    assert "Koordinator" in found["because"]["intraOp"]
    assert found["because"]["intraOp"].startswith("4 exclusive CPUs (Koordinator LSR)")


# Koordinator's docs/user-manuals/fine-grained-cpu-orchestration.md: both policies, and what they make of two CPUs on a
# node whose CPU n has the sibling n + 52. Which CPUs a policy comes to stands in the status; the policy itself is not read.
@pytest.mark.parametrize(("policy", "cpuset", "threads"), [("FullPCPUs", "2,18", 1), ("SpreadByPCPUs", "2-3", 2)])
def test_how_koordinator_binds_a_pod_counts_by_the_cpus_that_it_comes_to(policy, cpuset, threads):
    spec = {"scheduling.koordinator.sh/resource-spec": json.dumps({"preferredCPUBindPolicy": policy})}
    status, labels = json.dumps({"cpuset": cpuset}), {"koordinator.sh/qosClass": "LSR"}
    found = planned(bound(status, labels, cpu="2", annotations=spec))
    assert (found["set"]["intraOp"], found["set"]["exclusiveCPUs"]) == (threads, 2)


# Koordinator, pkg/koordlet/runtimehooks/hooks/cpuset/rule.go: such a pod runs on what is left for all.
def test_a_pod_that_koordinator_has_bound_without_cpus_of_its_own_shares_the_node():
    found = planned(bound("", {"koordinator.sh/qosClass": "LSR"}, cpu="8"))
    assert found["set"]["intraOp"] == 8
    assert found["because"]["intraOp"] == f"limits.cpu 8; Koordinator LSR, but no CPUs in {STATUS}"
    assert "exclusiveCPUs" not in found["set"]


@pytest.mark.parametrize(
    ("status", "why"),
    [
        ('{"cpuset":"900-903"}', "names CPUs that the node does not have"), ('{"cpuset":"0-x"}', "is not a CPU list"),
        ('{"cpuset":7}', "is not a CPU list"), ('{"cpuset":""}', ""), ('{"numaNodeResources":[{"node":0}]}', ""),
        ("[", ""), ("[" * 5000, ""), ('{"cpuset":"' + "0," * 9000 + '0"}', ""),
    ],
)  # fmt: skip
def test_a_choice_that_can_not_be_read_changes_no_number_and_is_named_where_it_is_one(status, why):
    found, without = bound(status), bound("")
    assert found.outcome is BindingOutcome.NODE_SPECIFIC
    assert planned(found)["set"] == planned(without)["set"]
    assert why in planned(found)["because"]["intraOp"]


def test_binding_writes_no_annotation_of_others_and_the_same_the_second_time():
    first = bound('{"cpuset":"0-3"}', {"koordinator.sh/qosClass": "LSR"})
    assert STATUS not in first.annotations
    again = rebind({STATUS: '{"cpuset":"0-3"}', **first.annotations}, "node-1", regular(16, 2, numa_nodes=2))
    assert again.annotations == first.annotations

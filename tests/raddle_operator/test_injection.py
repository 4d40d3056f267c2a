"""What a pod gets when it is created, case by case; test_injection_properties.py says what holds for all."""

import copy
import json
from dataclasses import replace

import pytest
from support.injections import ITEMS, KNOWN, SHIM, decide, inject, withheld

from cluster import objects
from raddle import env
from raddle.cpus.topology import Kubelet, Machine, NUMANode
from raddle.planning import families
from raddle.planning.wire import read_plan_text
from raddle_operator.injection import shipped
from raddle_operator.injection.decide import MAX_PLANNED_CONTAINERS, Facts
from raddle_operator.injection.volumes import ShimDelivery
from raddle_operator.objects.reasons import SkipReason

LIMITS = {"limits": {"cpu": "2", "memory": "1Gi"}, "requests": {"cpu": "1", "memory": "1Gi"}}
NODE = Machine(
    online=0xFF, cores=tuple(1 << n for n in range(8)), numa_nodes=(NUMANode(0, 0xF), NUMANode(1, 0xF0)),
    kubelet=Kubelet(cpu_manager_policy="static"),
)  # fmt: skip


def container(name="serve", **parts):
    return {"name": name, "image": "example.test/serve:1", "resources": LIMITS, **parts}


def pod(*containers, **more):
    return objects.pod(*(containers or [container()]), name="p", **more)


def environment(patched, name="serve"):
    """Variable -> literal value, or the annotation that it reads in []."""
    containers = patched["spec"]["containers"] + patched["spec"].get("initContainers", [])
    found = {}
    for entry in next(c for c in containers if c["name"] == name).get("env", []):
        source = entry.get("valueFrom", {})
        path = source.get("fieldRef", {}).get("fieldPath")
        found[entry["name"]] = [path.split("'")[1]] if path else entry.get("value", source)
    return found


def reason(skipped):
    """Why a pod or a container gets nothing; None where it gets something."""
    return skipped.skip and skipped.skip.reason


@pytest.mark.parametrize("obj", [pod(), pod(container(env=[], volumeMounts=[]), annotations={}, labels={}, volumes=[])])
def test_a_container_gets_its_plan_and_the_shim_and_no_variable_that_others_take_for_theirs(obj):
    patched, decision = inject(obj)
    assert decision.injected
    assert environment(patched) == {
        "RADDLE_PLAN": ["shim.raddle.dev/serve"],
        "RADDLE_LITERALS": "KMP_BLOCKTIME=1",
    }
    completed = ("ORT_INTRA_OP_NUM_THREADS", "ORT_INTER_OP_NUM_THREADS", "OMP_NUM_THREADS", "KMP_BLOCKTIME")
    assert decision.containers[0].variables == ("RADDLE_PLAN", *completed)
    annotations = patched["metadata"]["annotations"]
    plan = annotations.pop("plan.raddle.dev/serve")
    assert annotations.pop("raddle.dev/settings-hash")
    fields = env.decode(annotations.pop("shim.raddle.dev/serve"))
    assert (fields["intra_op"], fields["intra_op_without_shim"]) == (2, 1)
    assert annotations == {"raddle.dev/governed-by": "InferenceThreading/fast"}
    assert read_plan_text(plan).node is None
    assert patched["metadata"]["labels"] == {"raddle.dev/injected": "true"}
    spec = patched["spec"]
    assert spec["containers"][0]["volumeMounts"] == [
        {"name": "raddle-shim", "mountPath": "/opt/raddle", "readOnly": True},
        {"name": "raddle-shim", "mountPath": "/etc/ld.so.preload", "subPath": "ld.so.preload", "readOnly": True},
    ]
    mounted = {"name": SHIM.config_map, "items": ITEMS, "defaultMode": 0o444, "optional": True}
    assert spec["volumes"] == [{"name": "raddle-shim", "configMap": mounted}]


@pytest.mark.parametrize(("spec", "most"), [({}, 2500), ({"runtimes": list(families.NAMES)}, 4096)])
def test_a_container_grows_by_little_whatever_it_gets(spec, most):
    def grown(obj):
        patched, _ = inject(obj, spec, shim=shipped.shim())
        return len(json.dumps(patched, separators=(",", ":"))) - len(json.dumps(obj, separators=(",", ":")))

    assert grown(pod(container("a"), container("b"))) - grown(pod(container("a"))) <= most


def test_without_a_shim_a_container_gets_its_counts_as_variables():
    patched, _ = inject(pod(), {"shim": "None"})
    assert environment(patched) == {
        "ORT_INTRA_OP_NUM_THREADS": ["threads.raddle.dev/serve"],
        "ORT_INTER_OP_NUM_THREADS": ["inter-op-threads.raddle.dev/serve"],
        "OMP_NUM_THREADS": ["omp-threads.raddle.dev/serve"],
        "KMP_BLOCKTIME": "1",
        "RADDLE_LITERALS": "KMP_BLOCKTIME=1",
    }
    prefixes = ("threads", "inter-op-threads", "omp-threads")
    annotations = patched["metadata"]["annotations"]
    assert [annotations[f"{prefix}.raddle.dev/serve"] for prefix in prefixes] == ["1", "1", "1"]


def test_openblas_gets_its_own_count_only_where_it_differs_and_nothing_of_openmp_is_set():
    facts, spec = Facts(smallest_cores=4), {"shim": "None"}
    assert "OPENBLAS_NUM_THREADS" in environment(inject(pod(container(resources={"limits": {"cpu": "4"}})), spec)[0])
    assert "OPENBLAS_NUM_THREADS" not in environment(inject(pod(container(resources={})), spec, facts=facts)[0])
    for name in ("OMP_NUM_THREADS", "OMP_PROC_BIND"):
        obj = pod(container(env=[{"name": name, "value": "1"}]))
        assert "OPENBLAS_NUM_THREADS" not in environment(inject(obj, spec)[0])


@pytest.mark.parametrize(
    ("runtimes", "variables"),
    [
        (["onnxruntime"], {"ORT_INTRA_OP_NUM_THREADS", "ORT_INTER_OP_NUM_THREADS"}),
        (["openmp"], {"OMP_NUM_THREADS", "KMP_BLOCKTIME", "RADDLE_LITERALS"}),
        (["blas"], {"OPENBLAS_NUM_THREADS"}),
        (["torch"], {"OMP_NUM_THREADS", "KMP_BLOCKTIME", "RADDLE_LITERALS"}),
        (["go"], {"GOMAXPROCS", "RADDLE_LITERALS"}),
    ],
)
def test_only_the_chosen_families_get_counts(runtimes, variables):
    patched, _ = inject(pod(), {"runtimes": runtimes, "shim": "None"})
    assert set(environment(patched)) == variables


def test_workers_of_the_command_share_the_cpus():
    decision = decide(pod(container(command=["gunicorn", "-w", "2", "app:app"])))
    assert decision.containers[0].plan.intra_op == 1
    decision = decide(pod(container(command=["gunicorn", "-w", "2"])), {"budget": {"workersPerContainer": 1}})
    assert decision.containers[0].plan.intra_op == 2


@pytest.mark.parametrize(
    "placed",
    [
        {"nodeName": "n1"},
        {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
            {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}]}}}},
    ],
)  # fmt: skip
def test_a_pod_whose_node_is_known_at_creation_gets_that_nodes_values(placed):
    whole = {"resources": {"limits": {"cpu": "6", "memory": "1Gi"}, "requests": {"cpu": "6", "memory": "1Gi"}}}
    patched, decision = inject(pod(container(**whole), **placed), facts=Facts(machines={"n1": NODE}))
    recorded = read_plan_text(patched["metadata"]["annotations"]["plan.raddle.dev/serve"])
    assert (recorded.node, decision.node) == ("n1", "n1")
    assert recorded.values["exclusiveCPUs"] == 6
    unknown, decision = inject(pod(container(**whole), nodeName="n2"), facts=Facts(machines={"n1": NODE}))
    assert decision.node is None
    assert read_plan_text(unknown["metadata"]["annotations"]["plan.raddle.dev/serve"]).node is None


@pytest.mark.parametrize("own", [{"value": "7"}, {"valueFrom": {"configMapKeyRef": {"name": "c", "key": "k"}}}])
def test_a_count_that_the_pod_spec_sets_stays_and_is_named_in_the_plan(own):
    entry = {"name": "ORT_INTRA_OP_NUM_THREADS", **own}
    patched, decision = inject(pod(container(env=[entry])))
    assert patched["spec"]["containers"][0]["env"][0] == entry
    assert decision.containers[0].kept == ("ORT_INTRA_OP_NUM_THREADS",)
    annotations = patched["metadata"]["annotations"]
    assert "threads.raddle.dev/serve" not in annotations
    assert "intra_op" not in env.decode(annotations["shim.raddle.dev/serve"])
    because = read_plan_text(annotations["plan.raddle.dev/serve"]).because
    assert because["ORT_INTRA_OP_NUM_THREADS"] == "set in the pod spec"


@pytest.mark.parametrize("value", ["", "0"])
def test_a_count_that_a_runtime_reads_as_unset_counts_as_unset(value):
    obj = pod(container(env=[{"name": "ORT_INTRA_OP_NUM_THREADS", "value": value}]))
    assert environment(inject(obj, {"shim": "None"})[0])["ORT_INTRA_OP_NUM_THREADS"] == ["threads.raddle.dev/serve"]
    patched, _ = inject(obj)
    assert environment(patched)["ORT_INTRA_OP_NUM_THREADS"] == value
    assert env.decode(patched["metadata"]["annotations"]["shim.raddle.dev/serve"])["intra_op"] == 2


def test_override_replaces_the_entry_where_it_stands():
    entries = [{"name": "A", "value": "1"}, {"name": "OMP_NUM_THREADS", "value": "7"}, {"name": "B", "value": "$(A)"}]
    patched, decision = inject(pod(container(env=entries)), {"existingValues": "Override"})
    names = [entry["name"] for entry in patched["spec"]["containers"][0]["env"]]
    assert names[:3] == ["A", "OMP_NUM_THREADS", "B"]
    assert environment(patched)["OMP_NUM_THREADS"] == ["omp-threads.raddle.dev/serve"]
    assert decision.containers[0].kept == ()


@pytest.mark.parametrize(("existing", "counts"), [("Respect", False), ("Override", True)])
def test_with_env_from_there_are_no_count_variables_unless_the_policy_overrides(existing, counts):
    obj = pod(container(envFrom=[{"secretRef": {"name": "s"}}]))
    patched, decision = inject(obj, {"existingValues": existing})
    assert ("OMP_NUM_THREADS" in environment(patched)) is counts
    assert "RADDLE_PLAN" in environment(patched)
    fields = env.decode(patched["metadata"]["annotations"]["shim.raddle.dev/serve"])
    assert (fields["intra_op"], fields["intra_op_without_shim"]) == (2, 1)
    assert [reason for reason, _ in withheld(decision)] == ([] if counts else [SkipReason.ENV_FROM_PRESENT])


@pytest.mark.parametrize("name", ["PYTHONPATH", "PYTHONUSERBASE", "PYTHONNOUSERSITE", "NODE_OPTIONS", "LD_PRELOAD"])
def test_no_variable_of_a_loader_is_touched(name):
    own = {"name": name, "value": "/mine"}
    patched, decision = inject(pod(container(env=[own])))
    assert environment(patched)[name] == "/mine"
    assert environment(inject(pod())[0]).get(name) is None
    assert decision.containers[0].withheld == ()


@pytest.mark.parametrize(
    ("obj", "facts", "shim"),
    [
        (pod(), KNOWN, ShimDelivery(items=SHIM.items)),
        (pod(), replace(KNOWN, config_map_present=False), SHIM),
        (pod(volumes=[{"name": "raddle-shim", "hostPath": {"path": "/"}}]), KNOWN, SHIM),
    ],
)
def test_a_shim_that_cannot_be_delivered_is_missing_and_the_counts_are_given_all_the_same(obj, facts, shim):
    before = copy.deepcopy(obj["spec"].get("volumes"))
    patched, decision = inject(obj, facts=facts, shim=shim)
    assert [reason for reason, _ in withheld(decision)] == [SkipReason.SHIM_MISSING]
    assert patched["spec"].get("volumes") == before
    assert "ORT_INTRA_OP_NUM_THREADS" in environment(patched, decision.containers[0].name)


SIDECARS = {"initContainers": [container("init"), container("native", restartPolicy="Always")]}


def test_every_regular_container_but_known_sidecars_is_chosen():
    _, decision = inject(pod(container("istio-proxy"), container("a"), container("b"), **SIDECARS))
    assert [outcome.name for outcome in decision.containers] == ["a", "b"]


def test_named_containers_may_be_sidecars_and_init_containers_and_must_be_there():
    named = {"containers": ["istio-proxy", "native", "gone"]}
    patched, decision = inject(pod(container("istio-proxy"), container("a"), **SIDECARS), named)
    outcomes = {outcome.name: reason(outcome) for outcome in decision.containers}
    assert outcomes == {"istio-proxy": None, "native": None, "gone": SkipReason.CONTAINER_NOT_FOUND}
    assert "RADDLE_PLAN" in environment(patched, "native")
    assert not environment(patched, "a")


@pytest.mark.parametrize(
    ("obj", "spec", "expected"),
    [
        (pod(), {"containers": ["gone"]}, SkipReason.CONTAINER_NOT_FOUND),
        (pod(container("istio-proxy")), {}, SkipReason.CONTAINER_NOT_FOUND),
        (pod(container(envFrom=[{"secretRef": {"name": "s"}}])), {"shim": "None"}, SkipReason.ENV_FROM_PRESENT),
        (pod(container(image="vllm/vllm-openai:1")), {}, SkipReason.MANAGED_BY_SERVER),
        (pod(container(command=["torchrun", "x.py"])), {}, SkipReason.MANAGED_BY_SERVER),
        (pod(container(resources={})), {}, SkipReason.NO_CPU_BOUND),
        (pod(container(resources={})), {"budget": {"source": "Limit"}}, SkipReason.NO_CPU_BOUND),
        (pod(container(resources={"limits": {"cpu": "lots"}})), {}, SkipReason.MALFORMED),
        (pod(container("Not_A_Name")), {}, SkipReason.MALFORMED),
        (pod(os={"name": "windows"}), {}, SkipReason.WINDOWS_POD),
        (pod(nodeSelector={"kubernetes.io/os": "windows"}), {}, SkipReason.WINDOWS_POD),
        (pod(annotations={"kubernetes.io/config.mirror": "x"}), {}, SkipReason.MIRROR_POD),
        (pod(priorityClassName="system-node-critical"), {}, SkipReason.OPTED_OUT),
        (pod(annotations={"big": "x" * 240 * 1024}), {}, SkipReason.ANNOTATION_BUDGET),
        (pod(), {"mode": "Observe"}, SkipReason.OBSERVED),
        (pod(labels={env.INJECT_LABEL: "disabled"}), {}, SkipReason.OPTED_OUT),
        (pod(labels={env.POLICY_LABEL: "slow"}), {}, SkipReason.POLICY_NOT_FOUND),
        (pod(), {"podSelector": {"matchLabels": {"a": "b"}}}, SkipReason.NO_POLICY),
        ({"metadata": {}, "spec": {"containers": "none"}}, {}, SkipReason.MALFORMED),
        ([], {}, SkipReason.MALFORMED),
    ],
)
def test_a_pod_that_gets_nothing_is_left_as_it_is_with_a_reason(obj, spec, expected):
    decision = decide(obj, spec)
    assert (decision.operations, reason(decision), decision.injected) == ([], expected, False)


def test_a_self_binding_runtime_is_planned_when_the_policy_names_its_container():
    assert inject(pod(container(image="vllm/vllm-openai:1")), {"containers": ["serve"]})[1].injected


def test_a_policy_that_observes_still_says_what_it_would_do():
    decision = decide(pod(), {"mode": "Observe"})
    assert (decision.policy.name, decision.containers[0].plan.intra_op) == ("fast", 2)


def test_without_a_limit_the_smallest_known_node_is_safe():
    _, decision = inject(pod(container(resources={})), facts=replace(KNOWN, smallest_cores=6))
    assert (decision.containers[0].plan.intra_op, decision.containers[0].plan.intra_op_without_shim) == (6, 4)


def test_plans_of_a_pod_stay_within_32_kib():
    _, decision = inject(pod(*(container(f"c{n}") for n in range(MAX_PLANNED_CONTAINERS + 3))))
    reasons = [reason(outcome) for outcome in decision.containers]
    assert reasons == [None] * MAX_PLANNED_CONTAINERS + [SkipReason.ANNOTATION_BUDGET] * 3


def test_a_copy_that_is_opted_out_is_as_if_raddle_had_never_seen_it():
    entries = [{"name": "PYTHONPATH", "value": "/mine"}, {"name": "A", "value": "1"}]
    own = container(env=entries, volumeMounts=[{"name": "d", "mountPath": "/d"}])
    original = pod(own, annotations={"team": "x"}, labels={"app": "a"}, volumes=[{"name": "d"}])
    patched, _ = inject(original)
    assert patched != original
    restored, decision = inject(patched, opt_in="disabled")
    assert reason(decision) is SkipReason.OPTED_OUT
    assert restored == original


def test_a_limit_that_changed_since_the_first_call_gets_its_own_values():
    patched, _ = inject(pod())
    patched["spec"]["containers"][0]["resources"] = {"limits": {"cpu": "500m"}}
    again, _ = inject(patched)
    counts = [
        env.decode(one["metadata"]["annotations"]["shim.raddle.dev/serve"])["intra_op"] for one in (patched, again)
    ]
    assert counts == [2, 1]
    assert environment(again) == environment(patched)


def test_forged_marks_are_overwritten_or_removed():
    forged = {"threads.raddle.dev/serve": "999", "plan.raddle.dev/other": "{}"}
    forged["raddle.dev/governed-by"] = "InferenceThreading/evil"
    assert "threads.raddle.dev/serve" not in inject(pod(annotations=forged))[0]["metadata"]["annotations"]
    patched, _ = inject(pod(annotations=forged), {"shim": "None"})
    annotations = patched["metadata"]["annotations"]
    assert annotations["threads.raddle.dev/serve"] == "1"
    assert annotations["raddle.dev/governed-by"] == "InferenceThreading/fast"
    assert "plan.raddle.dev/other" not in annotations


def test_variables_that_another_webhook_added_behind_ours_are_no_reason_to_write_again():
    patched, _ = inject(pod())
    patched["spec"]["containers"][0]["env"].append({"name": "LATE", "value": "1"})
    assert decide(patched).operations == []


def test_a_shim_of_an_older_release_is_replaced():
    patched, _ = inject(pod(), shim=replace(SHIM, config_map="raddle-shim-old"))
    again, _ = inject(patched)
    assert again["spec"]["volumes"][0]["configMap"]["name"] == SHIM.config_map
    assert len(again["spec"]["volumes"]) == 1


def test_a_container_added_to_a_copy_gets_values_of_its_own():
    patched, _ = inject(pod())
    patched["spec"]["containers"].append(container("debugger"))
    again, _ = inject(patched)
    assert environment(again, "debugger")["RADDLE_PLAN"] == ["shim.raddle.dev/debugger"]
    assert env.decode(again["metadata"]["annotations"]["shim.raddle.dev/debugger"])["omp"] == 2


@pytest.mark.parametrize("entries", [None, [], [{"name": "SETTING", "value": "1"}], [{"name": "A"}, {"name": "A"}]])
def test_variables_that_raddle_does_not_look_at_change_nothing_of_what_is_added(entries):
    plain = environment(inject(pod(container()))[0])
    found = environment(inject(pod(container(env=entries)))[0])
    assert [entry for name, entry in found.items() if name in plain] == list(plain.values())


def test_what_one_pod_got_may_be_changed_without_another_noticing():
    first = inject(pod(container()))[0]
    before = copy.deepcopy(first)
    for entry in first["spec"]["containers"][0]["env"]:
        entry["name"] = "CHANGED"
    assert inject(pod(container()))[0] == before

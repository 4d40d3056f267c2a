"""From a pod to a row: which runtime it runs, its threads now, what they should be, why, and what mends it."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.injections import inject

from assembling import regular
from cluster import objects
from raddle import env
from raddle_operator.cli.scan.words import CAUSES
from raddle_operator.injection.matching import Policies
from raddle_operator.objects import nodereport
from raddle_operator.objects.pods import pod_from_object
from raddle_operator.objects.policy import policy_from_object
from raddle_operator.objects.reading import SpecError
from raddle_operator.scanning import measured
from raddle_operator.scanning.assess import Cause, Cluster, Drifted, Node, assess, workload
from raddle_operator.scanning.measured import Usage
from raddle_operator.scanning.rows import Gathered, to_document, totals

NOBODY = Policies()
LARGE = Node(64)
OPTED_IN = {"ns": {env.INJECT_LABEL: "enabled"}}


def cluster(policies=NOBODY, node=LARGE, **more):
    return Cluster(policies=policies, namespaces=OPTED_IN, nodes={"n": node}, **more)


def container(image="registry.test/app:1", cpu="2", **more):
    return {**objects.container("serve", cpu=cpu), "image": image, **more}


def variable(name, value):
    return {"name": name, "value": value}


def pod(*containers, node="n", **metadata):
    found = objects.pod(*containers, nodeName=node)
    found["metadata"] |= {"namespace": "ns", **metadata}
    return found


def seen(obj, where=None):
    return next(assess(pod(obj), where or cluster()), None)


@pytest.mark.parametrize(
    ("obj", "runtime", "threads", "planned", "cause", "fix"),
    [
        (container("ollama/ollama:1"), "ollama", 64, 2, Cause.NODE_CPUS, "LLAMA_ARG_THREADS=2"),
        (
            container("ggml-org/llama.cpp:s", args=["--threads", "16"]),
            *("llama.cpp", 16, 2, Cause.SET, "--threads 2"),
        ),
        (container("ggml-org/llama.cpp:s", args=["--threads=2"]), "llama.cpp", 2, 2, Cause.FITS, ""),
        (container("ggml-org/llama.cpp:s", args=["-t", "-1"]), *("llama.cpp", 64, 2, Cause.NODE_CPUS), "LLAMA_ARG_THREADS=2"),
        (
            container(env=[variable("LLAMA_ARG_THREADS", "8")], command=["llama-server"]),
            *("llama.cpp", 8, 2, Cause.SET, "LLAMA_ARG_THREADS=2"),
        ),
        (container("localai/localai", env=[variable("THREADS", "9")]), *("localai", 9, 2, Cause.SET, "THREADS=2")),
        (container(env=[variable("HF_HOME", "/models")]), "PyTorch", 64, 2, Cause.NODE_CPUS, "OMP_NUM_THREADS=2"),
        (container(env=[variable("OMP_NUM_THREADS", "16,2")]), "OpenMP", 16, 2, Cause.SET, "OMP_NUM_THREADS=2"),
        (container(env=[variable("OMP_NUM_THREADS", "2")]), "OpenMP", 2, 2, Cause.FITS, ""),
        (container(env=[variable(env.ORT_INTRA, "0")]), *("ONNX Runtime", 64, 2, Cause.NODE_CPUS), "ORT_INTRA_OP_NUM_THREADS=1"),
        (container("vllm/vllm-openai-cpu", cpu="8"), "vllm-cpu", 64, 8, Cause.NODE_CPUS, "OMP_NUM_THREADS=8 (+1)"),
        (container("huggingface/text-embeddings-inference:c"), *("text-embeddings-inference", 2, 2, Cause.FITS, "")),
        (container("ggml-org/llama.cpp:s", args=["-t", "$(N)"]), *("llama.cpp", None, 2, Cause.UNKNOWN, "")),
        (container("ggml-org/llama.cpp:s", args=["-t=16"]), *("llama.cpp", 16, 2, Cause.SET, "-t=2")),
        (container("ggml-org/whisper.cpp:m", args=["-t", "8"]), *("whisper.cpp", 8, 2, Cause.SET, "-t 2")),
        (container("ggml-org/whisper.cpp:m", args=["-t", "2"]), *("whisper.cpp", 2, 2, Cause.FITS, "")),
        (
            container("tensorflow/serving", args=["--tensorflow_intra_op_parallelism=2"]),
            *("tensorflow-serving", 2, 2, Cause.FITS, ""),
        ),
        (
            container("openvino/model_server", args=["--plugin_config", '{"INFERENCE_NUM_THREADS": 2}']),
            *("openvino-model-server", None, 2, Cause.UNKNOWN, ""),
        ),
        (container("rayproject/ray"), "ray", None, 2, Cause.UNKNOWN, ""),
        (container("ollama/ollama", envFrom=[{"configMapRef": {"name": "x"}}]), *("ollama", None, 2, Cause.UNKNOWN, "")),
        (
            container("ollama/ollama", env=[{"name": "LLAMA_ARG_THREADS", "valueFrom": {"configMapKeyRef": {"name": "x", "key": "y"}}}]),
            *("ollama", None, 2, Cause.UNKNOWN, ""),
        ),
        (container("ollama/ollama", cpu=None), "ollama", 64, None, Cause.UNKNOWN, ""),
    ],
)  # fmt: skip
def test_a_container_has_threads_by_its_runtimes_rule_and_a_plan(obj, runtime, threads, planned, cause, fix):
    found = seen(obj)
    assert (found.runtime, found.threads, found.planned, found.cause) == (runtime, threads, planned, cause)
    assert found.fix.short == fix


@pytest.mark.parametrize(
    "obj",
    [container("nginx"), container(command=["gunicorn", "-w", "4", "app"]), container(env=[variable("PORT", "80")])],
)
def test_a_container_that_nothing_tells_of_is_not_listed(obj):
    assert seen(obj) is None


def test_a_fixed_number_is_a_finding_below_it_and_its_advice_the_fix():
    found = seen(container("ggml-org/whisper.cpp:main"))
    assert (found.threads, found.planned, found.cause) == (4, 2, Cause.FIXED)
    assert "-t" in found.fix.text
    assert seen(container("ggml-org/whisper.cpp:main", cpu="8")).cause is Cause.FITS


@pytest.mark.parametrize(
    ("obj", "says"),
    [
        (container(command=["torchrun", "--nproc-per-node=4", "a.py"], env=[variable("OMP_NUM_THREADS", "16")]), "several processes"),
        (container("deepjavalibrary/djl-serving", env=[variable("OMP_NUM_THREADS", "16")]), "would change its workers"),
        (container("vllm/vllm-openai-cpu"), "older ones exit with it"),
    ],
)  # fmt: skip
def test_a_value_that_may_harm_a_server_is_no_command_and_its_fix_says_so(obj, says):
    owner = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "chat", "uid": "u", "controller": True}
    (found,) = assess(pod(obj, ownerReferences=[owner]), cluster())
    assert found.is_finding
    assert (found.fix.command, says in found.fix.text) == ("", True)


def test_a_command_is_one_whatever_a_manifest_names():
    owner = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "a b", "uid": "u", "controller": True}
    (found,) = assess(pod(container("ollama/ollama"), ownerReferences=[owner], namespace="n;id"), cluster())
    assert found.fix.command == "kubectl set env -n 'n;id' 'statefulset/a b' -c serve LLAMA_ARG_THREADS=2"


def test_the_nodes_cores_count_where_they_are_known():
    machine = regular(sockets=1, cores=16, threads=2)
    found = seen(container("ollama/ollama"), cluster(node=Node(32, machine)))
    assert (found.threads, found.node_cpus) == (16, 32)


def test_the_fix_is_a_command_for_what_can_be_changed():
    owner = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "chat", "uid": "u", "controller": True}
    (found,) = assess(pod(container("ollama/ollama"), ownerReferences=[owner]), cluster())
    assert found.fix.command == "kubectl set env -n ns statefulset/chat -c serve LLAMA_ARG_THREADS=2"
    assert seen(container("ollama/ollama")).fix.command == ""


def test_pods_without_a_node_and_broken_ones_are_left_out():
    assert not list(assess(pod(container("ollama/ollama"), node=""), cluster()))
    assert not list(assess({"metadata": {}, "spec": {"containers": 3}}, cluster()))
    assert list(assess(pod(container("ollama/ollama"), node=""), cluster(assumed=Node(8))))


POLICY = policy_from_object(objects.policy("fast", "ns"))


def test_what_a_policy_governs_and_no_webhook_has_met_is_an_older_pod():
    owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "chat", "uid": "u", "controller": True}
    (found,) = assess(pod(container("ollama/ollama"), ownerReferences=[owner]), cluster(Policies([POLICY])))
    assert (found.cause, found.governed_by) == (Cause.OLDER, "InferenceThreading/fast")
    assert found.fix.command == "kubectl rollout restart -n ns daemonset/chat"


def test_what_a_policy_leaves_alone_is_a_finding_also_in_a_manifest():
    (found,) = assess(pod(container("vllm/vllm-openai-cpu")), cluster(Policies([POLICY]), created=False))
    assert (found.cause, found.threads) == (Cause.NODE_CPUS, 64)


def test_a_count_that_the_pod_spec_keeps_is_the_users():
    injected, _ = inject(pod(container(env=[variable("OMP_NUM_THREADS", "16")])))
    (found,) = assess(injected, cluster(Policies([POLICY])))
    assert (found.cause, found.threads, found.fix.short) == (Cause.SET, 16, "OMP_NUM_THREADS=2")


def test_where_a_policy_states_a_load_and_nothing_is_measured_its_model_says_the_cost():
    stated = policy_from_object(objects.policy("fast", "ns", load={"runTime": "20ms"}))
    (part,) = Gathered().add(assess(pod(container("nvidia/tritonserver")), cluster(Policies([stated]))))
    assert part.seen.expected.throttled_share > 0.5
    assert 0 < part.gives_back_cpus == part.seen.expected.gives_back_cpus <= 2
    part.add(Usage(1.0, 100, 10))
    assert part.gives_back_cpus == pytest.approx(part.seen.surplus_share)


def test_a_manifest_that_a_policy_governs_fits():
    (found,) = assess(pod(container("ollama/ollama")), cluster(Policies([POLICY]), created=False))
    assert (found.cause, found.threads) == (Cause.FITS, 2)


@pytest.mark.parametrize("image", ["ollama/ollama", "registry.test/app:1", "nvidia/tritonserver"])
def test_what_raddle_has_given_values_fits_until_the_limit_changes(image):
    obj = pod(container(image))
    injected, _ = inject(obj)
    (found,) = assess(injected, cluster(Policies([POLICY])))
    assert (found.cause, found.threads, found.planned) == (Cause.FITS, 2, 2)
    injected["spec"]["containers"][0]["resources"]["limits"]["cpu"] = "1"
    (found,) = assess(injected, cluster(Policies([POLICY])))
    assert (found.threads, found.planned, found.cause) == (2, 1, Cause.STALE)


@pytest.mark.parametrize("cause", nodereport.Cause)
def test_each_cause_that_an_agent_tells_is_a_finding_with_its_fix(cause):
    finding = nodereport.Finding(cause=cause, detail="seen", fix="mend it")
    (found,) = assess(
        pod(container("ollama/ollama"), uid="u"), cluster(drifted={("u", "serve"): Drifted(finding, None)})
    )
    assert (str(found.cause), found.threads, found.fix.short) == (cause, 64, "mend it")
    assert found.is_finding
    assert found.is_from_agent
    assert found.threads_because == "its node's agent: seen"
    assert CAUSES[found.cause]


@pytest.mark.parametrize(
    ("owner", "labels", "name"),
    [
        (("ReplicaSet", "chat-7d4b"), {"pod-template-hash": "7d4b"}, "deployment/chat"),
        (("ReplicaSet", "chat-7d4b"), {"rollouts-pod-template-hash": "7d4b"}, "rollout/chat"),
        (("ReplicaSet", "chat-7d4b"), {}, "replicaset/chat-7d4b"),
        (("StatefulSet", "chat"), {}, "statefulset/chat"),
        (("Job", "nightly-29384756"), {}, "cronjob/nightly"),
        (("Job", "once"), {}, "job/once"),
        (None, {}, "pod/app"),
    ],
)
def test_a_workload_is_told_by_its_pod(owner, labels, name):
    references = [{"kind": owner[0], "name": owner[1], "controller": True}] if owner else []
    assert workload(pod_from_object(pod(container(), ownerReferences=references, labels=labels))) == name


# --- rows -------------------------------------------------------------------------------------------------------------


def gathered(*images_and_pods):
    found = Gathered()
    for image, cpu, count in images_and_pods:
        found.add(assess(pod(container(image, cpu=cpu), name=image.replace("/", "-")), cluster()), count)
    return found


def test_pods_of_one_workload_are_one_row_and_the_most_saved_comes_first():
    found = gathered(("ollama/ollama", "2", 3), ("nvidia/tritonserver", "8", 1), ("nvidia/tritonserver", "8", 1))
    rows = found.rows()
    assert [(row.seen.runtime, row.pods) for row in rows] == [("triton", 2), ("ollama", 3)]
    assert rows[0].gives_back_cpus == pytest.approx(2 * 8 * (1 - 8 / 64))
    assert found.pods == 5
    assert [row.seen.runtime for row in found.rows(10.0)] == ["triton"]


def test_a_pod_with_two_containers_to_be_mended_is_one_pod():
    two = pod(container("ollama/ollama"), {**container("ollama/ollama"), "name": "other"})
    gathered = Gathered()
    gathered.add(assess(two, cluster()), pods=3)
    (found,) = totals(gathered.rows())
    assert (found.findings, found.pods) == (2, 3)


def test_pods_on_different_nodes_are_a_range_and_the_worst_is_told():
    found = Gathered()
    where = Cluster(policies=NOBODY, namespaces={}, nodes={"small": Node(8), "large": Node(64)})
    for node in ("small", "large"):
        found.add(assess(pod(container("ollama/ollama"), node=node), where))
    (row,) = found.rows()
    assert (row.node_cpus, row.threads, row.planned) == ((8, 64), (8, 64), (2, 2))
    assert row.seen.threads == 64


def test_what_was_measured_takes_the_place_of_the_limit():
    found = Gathered()
    for usage in (Usage(1.0, 100, 80), Usage(0.5, 100, 40), None):
        (part,) = found.add(assess(pod(container("ollama/ollama", cpu="4")), cluster()))
        if usage is not None:
            part.add(usage)
    (row,) = found.rows()
    assert (row.used_cpus, row.throttled_share) == (2.25, 0.6)
    assert row.gives_back_cpus == pytest.approx(2.25 * (1 - 4 / 64))


@given(st.lists(st.tuples(st.sampled_from(["ollama/ollama", "rayproject/ray", "nvidia/tritonserver"]),
                          st.sampled_from(["500m", "2", "64", None]), st.integers(1, 5)), max_size=6))  # fmt: skip
def test_totals_are_the_sums_of_rows_and_nothing_is_given_back_twice(shapes):
    rows = gathered(*shapes).rows()
    document = to_document(rows, ())
    assert document["total"]["givesBackCpus"] == pytest.approx(sum(row.gives_back_cpus or 0 for row in rows), abs=0.01)
    assert sum(one.findings for one in totals(rows)) == document["total"]["findings"]
    limits = {"500m": 0.5, "2": 2, "64": 64, None: 0}
    assert document["total"]["givesBackCpus"] <= sum(pods * limits[cpu] for _, cpu, pods in shapes)
    saved = [row.gives_back_cpus or 0 for row in rows if row.seen.is_finding]
    assert all(one >= other for one, other in itertools.pairwise(saved))


# --- what was measured ------------------------------------------------------------------------------------------------

LABELS = 'container="serve",id="/kubepods",image="x",name="a{b",namespace="ns",pod="app"'
CADVISOR = f"""\
# TYPE container_cpu_usage_seconds_total counter
container_cpu_usage_seconds_total{{cpu="cpu00",{LABELS}}} 1 1700000000000
container_cpu_usage_seconds_total{{cpu="total",{LABELS}}} 50 1700000000000
container_cpu_usage_seconds_total{{cpu="total",{LABELS.replace("app", "other")}}} 7 1700000000000
container_cpu_cfs_periods_total{{{LABELS}}} 1000 1700000000000
container_cpu_cfs_throttled_periods_total{{{LABELS}}} 970
container_start_time_seconds{{{LABELS}}} 1.7e+09
container_memory_rss{{{LABELS}}} 1
container_cpu_usage_seconds_total{{cpu="total",{LABELS} nonsense
"""


def test_a_kubelets_lines_are_means_since_the_container_began():
    node = measured.Node({("ns", "app", "serve"): None}, now_s=1.7e9 + 100)
    for line in CADVISOR.encode().splitlines():
        node.read(line)
    assert list(node.usages()) == [(("ns", "app", "serve"), Usage(0.5, 1000, 970))]


@given(st.binary(max_size=200))
def test_no_line_of_a_kubelet_raises(rest):
    node = measured.Node({("ns", "app", "serve"): None}, now_s=1.7e9 + 100)
    node.read(b"container_cpu_usage_seconds_total{" + rest)
    node.read(rest)
    list(node.usages())


def answer(number):
    metric = {"namespace": "ns", "pod": "app", "container": "serve"}
    return {"status": "success", "data": {"resultType": "vector", "result": [{"metric": metric, "value": [1, number]}]}}


def test_prometheus_answers_are_numbers_by_container():
    answers = {measured.USED: answer("0.5"), measured.PERIODS: answer("100"), measured.THROTTLED: answer("97")}
    assert list(measured.of_prometheus(answers)) == [(("ns", "app", "serve"), Usage(0.5, 100, 97))]
    assert list(measured.of_prometheus({measured.PERIODS: answer("100")})) == []
    for broken in ({"data": []}, {"data": {"result": [{"value": [1]}]}}, answer("NaN")):
        with pytest.raises(SpecError):
            list(measured.of_prometheus({measured.USED: broken}))

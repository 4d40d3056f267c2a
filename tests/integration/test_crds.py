"""The CRDs on a real API server: what it fills in, what it refuses and with which advice, and what it prints."""

import json

import pytest
import yaml
from support import tunings

import machines
from cluster import ApiError, objects
from cluster.waiting import wait
from raddle.cpus.topology import GPU
from raddle.machine.sysfs import read_machine
from raddle.planning import entries, families
from raddle_operator.objects.nodetopology import to_object

pytestmark = pytest.mark.cluster

POLICIES = "/apis/raddle.dev/v1alpha1/namespaces/default/inferencethreadings"
CLUSTER_POLICIES = "/apis/raddle.dev/v1alpha1/clusterinferencethreadings"
TOPOLOGIES = "/apis/raddle.dev/v1alpha1/nodecputopologies"
TUNINGS = "/apis/raddle.dev/v1alpha1/namespaces/default/inferencetunings"
TRY = "?dryRun=All&fieldValidation=Strict"


@pytest.fixture(scope="module")
def cluster(api_server):
    yield api_server
    for collection in (POLICIES, CLUSTER_POLICIES, TOPOLOGIES, TUNINGS):
        api_server.client.delete(collection)


def policy(spec, *, name="latency", kind="InferenceThreading"):
    return objects.policy(name, kind=kind, **spec)


def refusal(cluster, manifest, path=POLICIES):
    """What the API server says when it refuses; fails the test when it does not."""
    with pytest.raises(ApiError) as refused:
        cluster.client.post(path + TRY, manifest)
    assert refused.value.status == 422, refused.value
    return str(refused.value)


def test_a_policy_that_names_pods_only_is_filled_in_to_the_last_field(cluster):
    assert cluster.client.post(POLICIES + TRY, policy({}))["spec"] == {
        "podSelector": {},
        "priority": 0,
        "mode": "Initial",
        "objective": "Latency",
        "budget": {"source": "Auto", "sessionsPerWorker": 1},
        "threads": {"minIntraOp": 1, "maxIntraOp": 1024, "executionMode": "Auto", "spinning": "Auto"},
        "placement": {"numa": "Auto", "smt": "Auto", "coreType": "Auto", "affinity": "Auto"},
        "onnxruntime": {
            "globalThreadPool": False,
            "sharedAllocator": False,
            "arenaShrinkage": False,
            "acknowledge": [],
        },
        "allocator": "System",
        "existingValues": "Respect",
        "presets": "Auto",
        "observe": "Sessions",
        "shim": "Auto",
    }


def test_a_cluster_policy_is_a_baseline_for_every_namespace(cluster):
    spec = cluster.client.post(CLUSTER_POLICIES + TRY, policy({}, kind="ClusterInferenceThreading"))["spec"]
    assert (spec["tier"], spec["namespaceSelector"]) == ("Baseline", {})


ACCEPTED = {
    "exact counts": {"threads": {"intraOp": 4, "interOp": 1}},
    "parallel execution": {"threads": {"interOp": 2, "executionMode": "Parallel"}},
    "bounds that meet": {"threads": {"intraOp": 4, "minIntraOp": 4, "maxIntraOp": 4}},
    "one NUMA node of a limit": {"placement": {"numa": "SingleNUMANode"}, "budget": {"source": "Limit"}},
    "a full selector": {
        "podSelector": {
            "matchLabels": {"app.kubernetes.io/name": "resnet", "tier": ""},
            "matchExpressions": [
                {"key": "a", "operator": "In", "values": ["x", "y"]},
                {"key": "example.com/b", "operator": "Exists"},
                {"key": "c", "operator": "DoesNotExist", "values": []},
                {"key": "d", "operator": "NotIn", "values": ["z"]},
            ],
        }
    },
    "every allowed configuration entry": {
        "onnxruntime": {
            "acknowledge": ["session.set_denormal_as_zero"],
            "configEntries": {
                "session.intra_op.allow_spinning": "0",
                "session.inter_op.allow_spinning": "1",
                "session.intra_op.spin_duration_us": "200",
                "session.inter_op.spin_duration_us": "-1",
                "session.intra_op.spin_backoff_max": "64",
                "session.inter_op.spin_backoff_max": "1",
                "session.force_spinning_stop": "1",
                "session.dynamic_block_base": "4",
                "session.set_denormal_as_zero": "1",
                "session.use_env_allocators": "1",
                "session.use_device_allocator_for_initializers": "1",
                "session.disable_prepacking": "1",
            },
        }
    },
    "every allowed provider option": {
        "onnxruntime": {
            "acknowledge": ["enable_cuda_graph", "use_tf32"],
            "providerOptions": {
                "CUDAExecutionProvider": {
                    "arena_extend_strategy": "kSameAsRequested",
                    "cudnn_conv_algo_search": "HEURISTIC",
                    "cudnn_conv_use_max_workspace": "0",
                    "cudnn_conv1d_pad_to_nc1d": "1",
                    "do_copy_in_default_stream": "1",
                    "enable_cuda_graph": "1",
                    "use_tf32": "0",
                    "fuse_conv_bias": "1",
                    "gpu_mem_limit": "2147483648",
                    "prefer_nhwc": "1",
                    "sdpa_kernel": "0",
                    "use_ep_level_unified_stream": "1",
                },
                "OpenVINOExecutionProvider": {"num_of_threads": "4", "num_streams": "1"},
                "XnnpackExecutionProvider": {"intra_op_num_threads": "2"},
            },
        }
    },
    "64 containers with the longest names": {"containers": [f"{number:02}" + "c" * 61 for number in range(64)]},
    "the shortest and rarest load": {"load": {"runTime": "1us", "requestsPerSecond": 0.0001}},
    "the longest and most frequent load": {"load": {"runTime": "1h", "requestsPerSecond": 1000000}},
    "an observed load": {"load": {"source": "Observed"}, "observe": "Runs"},
    "a stated load": {"load": {"source": "Stated", "runTime": "33ms"}},
    "a duration of several parts": {"load": {"runTime": "1m30.5s"}},
    "memory switches": {"onnxruntime": {"cpuMemArena": False, "memPattern": True, "arenaShrinkage": True}},
    "an allocator": {"allocator": "Jemalloc"},
    "every runtime": {"runtimes": list(families.NAMES)},
}


@pytest.mark.parametrize("case", ACCEPTED)
def test_accepts(cluster, case):
    accepted = cluster.client.post(POLICIES + TRY, policy(ACCEPTED[case]))["spec"]
    for field, value in ACCEPTED[case].items():
        assert accepted[field] | value == accepted[field] if isinstance(value, dict) else accepted[field] == value


ENTRIES, OPTIONS, EXPRESSION = (
    "onnxruntime.configEntries",
    "onnxruntime.providerOptions",
    "podSelector.matchExpressions[0]",
)


def entry(key, value):
    return {"onnxruntime": {"configEntries": {key: value}}}


def option(provider, name, value):
    return {"onnxruntime": {"providerOptions": {f"{provider}ExecutionProvider": {name: value}}}}


def expression(key, operator, **values):
    return {"podSelector": {"matchExpressions": [{"key": key, "operator": operator, **values}]}}


# What the API server refuses: (spec, field below spec, advice).
REFUSED = {
    "a second pool without parallel execution": (
        {"threads": {"interOp": 2}},
        "threads.interOp",
        "set executionMode: Parallel",
    ),
    "bounds that cross": ({"threads": {"minIntraOp": 8, "maxIntraOp": 4}}, "threads.minIntraOp", "raise maxIntraOp"),
    "a least count above the default most": ({"threads": {"minIntraOp": 1025}}, "threads.minIntraOp", "1024"),
    "a count below its bounds": ({"threads": {"intraOp": 2, "minIntraOp": 4}}, "threads.intraOp", "between"),
    "a count above its bounds": ({"threads": {"intraOp": 8, "maxIntraOp": 4}}, "threads.intraOp", "between"),
    "no threads at all": ({"threads": {"intraOp": 0}}, "threads.intraOp", "1"),
    "threads as text": ({"threads": {"intraOp": "4"}}, "threads.intraOp", "integer"),
    "one NUMA node and the whole node": (
        {"placement": {"numa": "SingleNUMANode"}, "budget": {"source": "Node"}},
        "placement.numa",
        "set placement.numa to Auto or Any",
    ),
    "an objective that does not exist": ({"objective": "Speed"}, "objective", '"Latency", "Throughput"'),
    "a way to wait that does not exist": (
        {"threads": {"spinning": "Sometimes"}},
        "threads.spinning",
        '"Bounded", "Never"',
    ),
    "an operator without values": (expression("a", "In"), EXPRESSION + ".values", "add values, or use Exists"),
    "an operator with empty values": (
        expression("a", "NotIn", values=[]),
        EXPRESSION + ".values",
        "add values, or use Exists",
    ),
    "an operator with too many values": (
        expression("a", "Exists", values=["b"]),
        EXPRESSION + ".values",
        "remove values, or use In",
    ),
    "an operator that does not exist": (
        expression("a", "Gt", values=["1"]),
        EXPRESSION + ".operator",
        '"DoesNotExist"',
    ),
    "a label key that can't be": (
        {"podSelector": {"matchLabels": {"a b": "c"}}},
        "podSelector.matchLabels",
        "prefix/name",
    ),
    "a label name that is too long": (
        {"podSelector": {"matchLabels": {"a" * 64: "c"}}},
        "podSelector.matchLabels",
        "63 characters",
    ),
    "a label value that can't be": (
        {"podSelector": {"matchLabels": {"a": "-"}}},
        "podSelector.matchLabels.a",
        "should match",
    ),
    "a selector key that can't be": (expression("/x", "Exists"), EXPRESSION + ".key", "should match"),
    "a container twice": ({"containers": ["a", "a"]}, "containers[1]", "Duplicate"),
    "no container": ({"containers": []}, "containers", "at least 1"),
    "a container name that can't be": ({"containers": ["A_b"]}, "containers[0]", "should match"),
    "65 containers": ({"containers": [f"c{number}" for number in range(65)]}, "containers", "at most 64"),
    "a plugin library": (entry("session.custom_ops_library", "/tmp/x.so"), ENTRIES, "not on the list"),
    "a dump path": (entry("session.optimized_model_external_initializers_file_name", "x"), ENTRIES, "not on the list"),
    "an affinity string": (entry("session.intra_op_thread_affinities", "1;2"), ENTRIES, "not on the list"),
    "a switch that is no 0 or 1": (entry("session.disable_prepacking", "yes"), ENTRIES, 'must be "0" or "1"'),
    "a block base that crashes the session": (entry("session.dynamic_block_base", "x"), ENTRIES, "4 is usual"),
    "a spin time that is no number": (entry("session.intra_op.spin_duration_us", "1e3"), ENTRIES, "microseconds"),
    "a back-off out of range": (entry("session.inter_op.spin_backoff_max", "65"), ENTRIES, 'must be "1" to "64"'),
    "denormals without acknowledgement": (
        entry("session.set_denormal_as_zero", "1"),
        ENTRIES,
        "add it to onnxruntime.acknowledge",
    ),
    "a provider that is not on the list": (
        {"onnxruntime": {"providerOptions": {"TensorrtExecutionProvider": {}}}},
        OPTIONS,
        "use CUDAExecutionProvider",
    ),
    "a cache path": (option("OpenVINO", "cache_dir", "/tmp"), OPTIONS, "not on its provider's list"),
    "an option of another provider": (option("CUDA", "num_streams", "1"), OPTIONS, "not on its provider's list"),
    "CUDA graphs without acknowledgement": (
        option("CUDA", "enable_cuda_graph", "1"),
        OPTIONS,
        "to onnxruntime.acknowledge",
    ),
    "a memory limit with a unit": (option("CUDA", "gpu_mem_limit", "2Gi"), OPTIONS, "whole numbers"),
    "a search that does not exist": (option("CUDA", "cudnn_conv_algo_search", "FAST"), OPTIONS, "HEURISTIC"),
    "threads of a provider that no machine has": (option("Xnnpack", "intra_op_num_threads", "1025"), OPTIONS, '"1024"'),
    "a run time without a unit": ({"load": {"runTime": "33"}}, "load.runTime", "should match"),
    "no run time": ({"load": {"runTime": "0s"}}, "load.runTime", "runTime 0s is not from 1us to 1h"),
    "a run time above an hour": ({"load": {"runTime": "1h1us"}}, "load.runTime", "runTime 1h1us is not from 1us to 1h"),
    "no requests": ({"load": {"requestsPerSecond": 0}}, "load.requestsPerSecond", "greater than 0"),
    "a rate as text": ({"load": {"requestsPerSecond": "20"}}, "load.requestsPerSecond", "number"),
    "an observed load that nothing is counted for": (
        {"load": {"source": "Observed"}},
        "load.source",
        "requires observe: Runs",
    ),
    "an observed run time that is stated": (
        {"observe": "Runs", "load": {"source": "Observed", "runTime": "33ms"}},
        "load.runTime",
        "remove runTime",
    ),
    "an observed rate that is stated": (
        {"observe": "Runs", "load": {"source": "Observed", "requestsPerSecond": 20}},
        "load.requestsPerSecond",
        "remove requestsPerSecond",
    ),
    "a switch as text": ({"onnxruntime": {"arenaShrinkage": "yes"}}, "onnxruntime.arenaShrinkage", "boolean"),
    "a shim that does not exist": ({"shim": "ConfigMap"}, "shim", '"Auto", "None"'),
    "a runtime that does not exist": ({"runtimes": ["onnx"]}, "runtimes[0]", '"onnxruntime"'),
    "a runtime twice": ({"runtimes": ["go", "go"]}, "runtimes[1]", "Duplicate"),
    "a variable that is no count": ({"variables": {"LD_PRELOAD": "1"}}, "variables", "end like a count"),
    "a variable of rights": ({"variables": {"WORKER_ALLOW_ROOT": "1"}}, "variables", "no word of permissions"),
    "a variable of a family": ({"variables": {"NUMBA_NUM_THREADS": "1"}}, "variables", "add the family to runtimes"),
    "a variable's value that is no count": (
        {"variables": {"SERVER_THREADS": "auto"}},
        "variables.SERVER_THREADS",
        "should match",
    ),
    "processes without their number": (
        {"variables": {"WEB_CONCURRENCY": "{workers}"}},
        "variables",
        "needs budget.workersPerContainer",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refuses_and_says_what_to_do(cluster, case):
    spec, field, advice = REFUSED[case]
    message = refusal(cluster, policy(spec))
    assert f"spec.{field}" in message
    assert advice in message


BOUNDED = [("configEntries", key, key, entry.allowed) for key, entry in entries.CONFIG_ENTRIES.items()] + [
    (provider, f"{provider}.{option}", option, entry.allowed)
    for provider, (_, options) in entries.PROVIDERS.items()
    for option, entry in options.items()
]


@pytest.mark.parametrize(
    ("where", "key", "allowed"), [one[:1] + one[2:] for one in BOUNDED], ids=[one[1] for one in BOUNDED]
)
def test_the_api_server_and_the_shims_have_the_same_bounds(cluster, where, key, allowed):
    def spec(value):
        asked = {key: value}
        inner = {"configEntries": asked} if where == "configEntries" else {"providerOptions": {where: asked}}
        return policy({"onnxruntime": {"acknowledge": list(entries.ACKNOWLEDGED), **inner}})

    words = isinstance(allowed[0], str)
    for value in allowed:
        cluster.client.post(POLICIES + TRY, spec(str(value)))
    outside = ("", allowed[0].lower()) if words else (allowed[0] - 1, allowed[1] + 1, f"0{allowed[1]}", "1.5", "")
    for value in outside:
        assert f"spec.onnxruntime.{'configEntries' if where == 'configEntries' else 'providerOptions'}" in refusal(
            cluster, spec(str(value))
        )


def test_a_policy_without_a_selector_is_refused(cluster):
    manifest = policy({})
    manifest["spec"] = {}
    assert "spec.podSelector: Required value" in refusal(cluster, manifest)


def test_a_name_that_is_no_label_value_is_refused(cluster):
    assert "choose a shorter metadata.name" in refusal(cluster, policy({}, name="n" * 64))
    cluster.client.post(POLICIES + TRY, policy({}, name="n" * 63))


def test_a_misspelt_field_is_refused_by_strict_validation(cluster):
    with pytest.raises(ApiError) as refused:
        cluster.client.post(POLICIES + TRY, policy({"threads": {"intraop": 4}}))
    assert 'unknown field "spec.threads.intraop"' in str(refused.value)


def test_a_namespace_selector_is_checked_like_a_pod_selector(cluster):
    spec = {"namespaceSelector": {"matchExpressions": [{"key": "team", "operator": "In"}]}}
    message = refusal(cluster, policy(spec, kind="ClusterInferenceThreading"), CLUSTER_POLICIES)
    assert "spec.namespaceSelector.matchExpressions[0].values" in message


WORST = {
    "namespace": "shop",
    "pod": "a",
    "container": "serve",
    "node": "n",
    "cause": "CodeSetsIt",
    "detail": "16 threads",
}
IN_FORCE = {
    "status": "True",
    "reason": "InForce",
    "message": "All is well.",
    "lastTransitionTime": "2026-11-21T10:00:00Z",
}
STATUS = {
    "observedGeneration": 1,
    "matchedPods": 10,
    "injectedPods": 8,
    "safeValuePods": 1,
    "stalePods": 2,
    "threads": "1-4",
    "running": {"containers": 8, "drifted": 1, "worst": [WORST]},
    "skippedPods": [{"reason": "OptedOut", "count": 1}, {"reason": "NoCPUBound", "count": 1}],
    "conditions": [{"type": kind, **IN_FORCE} for kind in ("Accepted", "Ready")],
}


@pytest.mark.parametrize(
    ("kind", "collection", "short", "first"),
    [
        ("InferenceThreading", POLICIES, "ift", ["NAME"]),
        ("ClusterInferenceThreading", CLUSTER_POLICIES, "cift", ["NAME", "TIER"]),
    ],
)
def test_status_is_a_subresource_and_shows_in_a_table(cluster, kind, collection, short, first):
    cluster.client.post(collection, policy({}, name="shown", kind=kind) | {"status": {"matchedPods": 1}})
    assert "status" not in cluster.client.get(f"{collection}/shown")
    written = cluster.client.merge(
        f"{collection}/shown/status", {"status": STATUS, "spec": {"objective": "Throughput"}}
    )
    assert written["status"] == STATUS
    assert written["spec"]["objective"] == "Latency"
    header, row = (line.split() for line in cluster.kubectl("get", short, "shown").stdout.splitlines())
    assert header == [*first, "OBJECTIVE", "MODE", "MATCHED", "INJECTED", "STALE", "THREADS", "READY", "AGE"]
    assert row[-8:-1] == ["Latency", "Initial", "10", "8", "2", "1-4", "True"]
    wide, row = cluster.kubectl("get", short, "shown", "-o", "wide").stdout.splitlines()
    assert row[wide.index("DRIFTED") :].split()[0] == "1"
    assert "All is well." in row


def test_one_category_lists_all_kinds(cluster):
    cluster.client.apply(policy({}, name="listed"))
    cluster.client.apply(policy({}, name="listed", kind="ClusterInferenceThreading"))
    cluster.client.apply(topology("listed", cpus=2))
    listed = cluster.kubectl("get", "raddle", "-o", "name").stdout
    for name in ("inferencethreading", "clusterinferencethreading", "nodecputopology"):
        assert f"\n{name}.raddle.dev/listed\n" in f"\n{listed}"


@pytest.fixture(scope="module")
def discovered(cluster):
    """The cluster once kubectl knows our kinds: it keeps what it was told first, and a new CRD takes a moment."""
    told = lambda: cluster.kubectl("api-resources", "--api-group", "raddle.dev").stdout  # noqa: E731
    wait(lambda: "ift" in told(), "the API server tells of our kinds", 60)
    return cluster


@pytest.mark.parametrize(
    "field",
    [
        "ift",
        "ift.spec.threads.intraOp",
        "cift.spec.tier",
        "ift.spec.onnxruntime.configEntries",
        "ift.spec.onnxruntime.cpuMemArena",
        "ift.spec.runtimes",
        "cift.spec.shim",
        "nct.spec.kubelet",
        "nct.spec.cores",
        "itu.spec.server.request",
        "itu.status.classes.gain",
    ],
)
def test_kubectl_explains(discovered, field):
    explained = discovered.kubectl("explain", field).stdout
    assert "DESCRIPTION:\n    <empty>" not in explained
    assert len(explained) > 150


def topology(name, *, cpus):
    """A machine with `cpus` CPUs in pairs that are half of all apart, on 2 sockets."""
    half = cpus // 2
    halves = [{"cpus": f"{number * half}-{(number + 1) * half - 1}"} for number in (0, 1)]
    spec = {
        "bootID": "0d7c9c0e-6d2b-4a3e-9a55-8a4f0f5a2f11",
        "architecture": "x86_64",
        "model": "AMD EPYC 9754 128-Core Processor",
        "counts": {"cpus": cpus, "cores": half, "sockets": 2, "numaNodes": 2},
        "cpus": {"online": f"0-{cpus - 1}", "offline": "", "isolated": ""},
        "threadsPerCore": 2,
        "smtEnabled": True,
        "sockets": [{"socketID": number, **one} for number, one in enumerate(halves)],
        "dies": [{"socketID": number, "dieID": 0, **one} for number, one in enumerate(halves)],
        "numaNodes": [
            {"numaNodeID": number, **one, "memoryMiB": 65536, "distances": [10, 21] if number == 0 else [21, 10]}
            for number, one in enumerate(halves)
        ],
        "l3Domains": [{"cacheL3ID": core // 8, "cpus": f"{core}-{core + 7}"} for core in range(0, cpus, 8)],
        "cores": [f"{core},{core + half}" for core in range(half)],
        "coreTypes": [{"coreType": "standard", "cpus": f"0-{cpus - 1}", "maxFrequencyMHz": 3100}],
        "kubelet": {
            "cpuManagerPolicy": "static",
            "cpuManagerPolicyOptions": {"full-pcpus-only": "true"},
            "reservedCPUs": "0-1",
        },
    }
    return {**objects.topology(name), "spec": spec}


def test_a_topology_shows_in_a_table(cluster):
    cluster.client.apply(topology("worker-0", cpus=32))
    header, row = (line.split() for line in cluster.kubectl("get", "nct", "worker-0").stdout.splitlines())
    assert header[:6] == ["NAME", "CPUS", "CORES", "SOCKETS", "NUMA", "POLICY"]
    assert row[:6] == ["worker-0", "32", "16", "2", "2", "static"]


def test_the_kubelets_policies_are_unknown_unless_said(cluster):
    manifest = topology("worker-1", cpus=4)
    del manifest["spec"]["kubelet"]
    kubelet = cluster.client.post(TOPOLOGIES + TRY, manifest)["spec"]["kubelet"]
    assert kubelet == {"cpuManagerPolicy": "unknown", "topologyManagerPolicy": "unknown"}


def test_a_topology_of_256_cpus_is_at_most_8_kb_with_all_that_the_server_adds(cluster):
    stored = cluster.client.apply(topology("large", cpus=256))
    assert len(json.dumps(stored, separators=(",", ":"))) <= 8 * 1024


def test_a_topology_of_8192_cpus_is_accepted(cluster):
    assert cluster.client.post(TOPOLOGIES + TRY, topology("largest", cpus=8192))["spec"]["counts"]["cpus"] == 8192


def test_a_machine_of_1024_cpus_and_17_gpus_fits_well_and_the_schema_knows_every_field(cluster, tmp_path):
    files = machines.synthesize(sockets=4, numa_nodes=16, l3_domains=64, cores=512, threads=2)
    gpus = tuple(GPU(f"0000:{number:02x}:00.0", number if number < 16 else None) for number in range(1, 18))
    machine = read_machine(machines.write(files, tmp_path))._replace(gpus=gpus)
    body = to_object(machine, "huge", "00000000-0000-4000-8000-000000000000")
    stored = cluster.client.apply(body)
    assert stored["spec"] == body["spec"]
    assert stored["spec"]["counts"]["cpus"] == 1024
    assert len(json.dumps(stored)) < 64 * 1024


# The change of a machine of 32 CPUs, and what the API server says of it.
REFUSED_TOPOLOGIES = {
    "no CPU at all": ({"cpus": {"online": ""}}, "spec.cpus.online"),
    "half a range": ({"cpus": {"online": "0-"}}, "spec.cpus.online"),
    "a list without commas": ({"cpus": {"online": "0-3 5"}}, "spec.cpus.online"),
    "a CPU that no Linux has": ({"cpus": {"online": "0-100000"}}, "spec.cpus.online"),
    "a count of cores that are not listed": ({"counts": {"cores": 7}}, "counts.cores must be the number of entries"),
    "a count of sockets that are not listed": ({"counts": {"sockets": 9}}, "counts.sockets must be the number"),
    "more NUMA nodes than are listed": ({"counts": {"numaNodes": 3}}, "counts.numaNodes must be at most"),
    "SMT without threads": ({"smtEnabled": False}, "smtEnabled must be true where threadsPerCore is above 1"),
    "threads without cores": ({"cores": None, "counts": {"cores": 0}}, "threadsPerCore needs cores"),
    "a core twice": ({"cores": ["0,16", "0,16"]}, "spec.cores[1]"),
    "a type of cores that there is not": ({"coreTypes": [{"coreType": "fast", "cpus": "0"}]}, "coreTypes[0].coreType"),
    "a socket twice": ({"sockets": [{"socketID": 0, "cpus": "0"}, {"socketID": 0, "cpus": "1"}]}, "spec.sockets[1]"),
    "a NUMA node twice": ({"numaNodes": [{"numaNodeID": 0, "cpus": cpu} for cpu in "01"]}, "Duplicate value"),
    "a negative id": ({"sockets": [{"socketID": -1, "cpus": "0"}]}, "spec.sockets[0].socketID"),
    "a policy that there is not": ({"kubelet": {"cpuManagerPolicy": "quantum"}}, "spec.kubelet.cpuManagerPolicy"),
    "an address that is none": ({"gpus": [{"address": "first"}]}, "spec.gpus[0].address"),
}


@pytest.mark.parametrize("case", REFUSED_TOPOLOGIES)
def test_a_topology_that_makes_no_sense_is_refused(cluster, case):
    change, words = REFUSED_TOPOLOGIES[case]
    cluster.client.apply(topology("odd", cpus=32))
    with pytest.raises(ApiError) as refused:
        cluster.client.merge(f"{TOPOLOGIES}/odd", {"spec": change})
    assert refused.value.status == 422
    assert words in str(refused.value)


def test_plain_yaml_words_reach_the_schema_as_text(cluster):
    """Unquoted enum words of the examples and of kubectl users: none is a boolean or null to kubectl's YAML reader."""
    words = {
        "mode": "Observe", "objective": "Throughput", "allocator": "Mimalloc", "existingValues": "Override",
        "observe": "None", "shim": "None",
        "onnxruntime": {"graphOptimizationLevel": "Disable"},
        "threads": {"spinning": "Never"},
    }  # fmt: skip
    text = yaml.safe_dump(policy(words))
    assert "'" not in text
    cluster.kubectl("create", "--dry-run=server", "-f", "-", input=text)


def test_a_tuning_that_says_no_more_than_it_must_is_filled_in(cluster):
    assert cluster.client.post(TUNINGS + TRY, tunings.tuning())["spec"] == {
        "workload": tunings.WORKLOAD,
        "server": tunings.SERVER,
        "objective": tunings.LATENCY,
        "nodeClasses": {"selector": {}, "nodesPerClass": 2},
        "budget": {"minutes": 30},
        "parallelism": 1,
    }


@pytest.mark.parametrize("case", tunings.ACCEPTED)
def test_accepts_a_tuning_of(cluster, case):
    cluster.client.post(TUNINGS + TRY, tunings.tuning(**tunings.ACCEPTED[case]))


@pytest.mark.parametrize("case", tunings.REFUSED)
def test_refuses_a_tuning_of_what_the_operators_reader_refuses(cluster, case):
    """Of a field in the wrong place the API server names the parent."""
    field, spec = tunings.REFUSED[case]
    said = refusal(cluster, tunings.tuning(**spec), TUNINGS)
    assert field in said
    assert "\n" not in said


def test_a_tuning_shows_its_gain_in_a_table(cluster):
    cluster.client.apply(tunings.tuning(namespace="default"))
    status = {"verdict": "Better", "gain": "p99 -18 % [-23, -12]", "nodeClass": "AMD EPYC 9754, 32 cores", "trials": 31}
    cluster.client.merge(TUNINGS + "/ranker/status", {"status": status})
    header, row = cluster.kubectl("get", "itu", "ranker").stdout.splitlines()
    assert header.split() == ["NAME", "VERDICT", "GAIN", "NODE", "CLASS", "STATE", "AGE"]
    assert "Better    p99 -18 % [-23, -12]   AMD EPYC 9754, 32 cores" in row

"""A policy's spec becomes one value, or an error that names the field, what was there and what is allowed."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raddle.planning import families
from raddle.planning.policy import Policy, PolicyError, from_settings, overlaid, parse, to_settings


def test_an_empty_spec_leaves_everything_to_raddle():
    assert parse({}) == Policy()
    assert parse({"podSelector": {}, "mode": "Observe", "threads": None}) == Policy()


def test_every_field_is_read():
    spec = {
        "objective": "Throughput",
        "budget": {"source": "Request", "workersPerContainer": 2, "sessionsPerWorker": 3, "concurrentRuns": 4},
        "load": {"runTime": "33ms", "requestsPerSecond": 20},
        "threads": {"intraOp": 5, "minIntraOp": 2, "maxIntraOp": 9, "executionMode": "Parallel", "interOp": 2},
        "placement": {"numa": "Any", "smt": "AllThreads", "coreType": "Efficient", "affinity": "PerCore"},
        "runtimes": ["blas", "onnxruntime"],
        "onnxruntime": {
            "graphOptimizationLevel": "Basic",
            "globalThreadPool": True,
            "sharedAllocator": True,
            "cpuMemArena": False,
            "memPattern": True,
            "arenaShrinkage": True,
            "configEntries": {"session.set_denormal_as_zero": "1", "session.intra_op.spin_duration_us": "-1"},
            "providerOptions": {"CUDAExecutionProvider": {"use_tf32": "0", "gpu_mem_limit": "1073741824"}},
            "acknowledge": ["use_tf32", "session.set_denormal_as_zero"],
        },
        "allocator": "Jemalloc",
        "existingValues": "Override",
        "tuning": "ranker",
        "observe": "Runs",
        "shim": "None",
    }
    policy = parse(spec)
    assert policy == Policy(
        objective="Throughput",
        budget_source="Request",
        workers=2,
        sessions=3,
        concurrent_runs=4,
        run_time_us=33000,
        request_rate=20.0,
        intra_op=5,
        min_intra_op=2,
        max_intra_op=9,
        inter_op=2,
        execution_mode="Parallel",
        numa="Any",
        smt="AllThreads",
        core_type="Efficient",
        affinity="PerCore",
        runtimes=("onnxruntime", "blas"),
        graph_optimization_level="Basic",
        global_thread_pool=True,
        shared_allocator=True,
        cpu_mem_arena=False,
        mem_pattern=True,
        arena_shrinkage=True,
        config_entries=(("session.intra_op.spin_duration_us", "-1"), ("session.set_denormal_as_zero", "1")),
        provider_options=(("CUDAExecutionProvider", (("gpu_mem_limit", "1073741824"), ("use_tf32", "0"))),),
        acknowledge=("use_tf32", "session.set_denormal_as_zero"),
        allocator="Jemalloc",
        existing_values="Override",
        tuning="ranker",
        observe="Runs",
        shim="None",
    )
    assert from_settings(to_settings(policy)) == policy


def test_a_plan_annotation_may_have_an_observed_load_that_a_spec_may_not_state():
    policy = Policy(load_source="Observed", run_time_us=33_000, request_rate=20.0, observe="Runs")
    assert from_settings(to_settings(policy)) == policy


@pytest.mark.parametrize(
    ("spec", "wrong", "allowed"),
    [
        ({"threads": {"intraOp": 0}}, "threads.intraOp: 0", "an integer from 1 to 1024"),
        ({"threads": {"intraOp": "4"}}, "threads.intraOp: '4'", "an integer from 1 to 1024"),
        ({"threads": {"intraOp": True}}, "threads.intraOp: True", "an integer from 1 to 1024"),
        ({"load": {"runTime": "33"}}, "load.runTime: '33'", "a duration from 1us to 1h, such as 33ms"),
        ({"load": {"requestsPerSecond": "20"}}, "load.requestsPerSecond: '20'", "a number above 0, at most 1000000"),
        (
            {"observe": "Runs", "load": {"source": "Observed", "runTime": "33ms"}},
            "load.runTime: '33ms'",
            "absent when load.source is Observed",
        ),
        (
            {"observe": "Runs", "load": {"source": "Observed", "requestsPerSecond": 20}},
            "load.requestsPerSecond: 20",
            "absent when load.source is Observed",
        ),
        ({"load": {"source": "Observed"}}, "load.source: 'Observed'", "Stated, or set observe: Runs"),
        ({"threads": 4}, "threads: 4", "a mapping"),
        ({"objective": "latency"}, "objective: 'latency'", "one of Latency, Throughput"),
        ({"runtimes": []}, "runtimes: []", "a list of " + ", ".join(families.NAMES)),
        ({"runtimes": ["tf"]}, "runtimes: 'tf'", "one of " + ", ".join(families.NAMES)),
        ({"threads": {"minIntraOp": 5, "maxIntraOp": 2}}, "threads.minIntraOp: 5", "at most threads.maxIntraOp (2)"),
        ({"threads": {"interOp": 2}}, "threads.interOp: 2", "1, or set threads.executionMode: Parallel"),
        ({"onnxruntime": {"globalThreadPool": "yes"}}, "onnxruntime.globalThreadPool: 'yes'", "true or false"),
        (
            {"onnxruntime": {"configEntries": {"session.intra_op.spin_backoff_max": "65"}}},
            "onnxruntime.configEntries.session.intra_op.spin_backoff_max: '65'",
            'a whole number from "1" to "64"',
        ),
        (
            {"onnxruntime": {"configEntries": {"session.force_spinning_stop": 1}}},
            "onnxruntime.configEntries.session.force_spinning_stop: 1",
            "text: put it in quotes",
        ),
        (
            {"onnxruntime": {"providerOptions": {"CUDAExecutionProvider": {"arena_extend_strategy": "big"}}}},
            "onnxruntime.providerOptions.CUDAExecutionProvider.arena_extend_strategy: 'big'",
            "one of kNextPowerOfTwo, kSameAsRequested",
        ),
        (
            {"onnxruntime": {"providerOptions": {"TensorrtExecutionProvider": {}}}},
            "onnxruntime.providerOptions: 'TensorrtExecutionProvider'",
            "one of CUDAExecutionProvider, OpenVINOExecutionProvider, XnnpackExecutionProvider",
        ),
        (
            {"onnxruntime": {"providerOptions": {"CUDAExecutionProvider": {"use_tf32": "0"}}}},
            "onnxruntime.providerOptions.CUDAExecutionProvider: 'use_tf32'",
            "listed in onnxruntime.acknowledge: it changes results or needs the application's help",
        ),
        ({"tuning": "auto/2"}, "tuning: 'auto/2'", "Auto or the name of an object"),
        ({"tuning": "x" * 64}, f"tuning: '{'x' * 64}'", "Auto or the name of an object"),
        (
            {"placement": {"numa": "SingleNUMANode"}, "budget": {"source": "Node"}},
            "placement.numa: 'SingleNUMANode'",
            "Auto or Any when budget.source is Node",
        ),
    ],
)
def test_a_bad_field_is_named_with_its_value_and_what_is_allowed(spec, wrong, allowed):
    with pytest.raises(PolicyError) as caught:
        parse(spec)
    assert str(caught.value) == f"{wrong} is not allowed; it must be {allowed}"


@pytest.mark.parametrize(
    ("text", "run_time_us"),
    [("1us", 1), ("33ms", 33_000), ("1.5s", 1_500_000), ("1h", 3_600_000_000), ("1m30s", 90_000_000), ("0.5ms", 500)],
)
def test_a_run_time_is_a_duration(text, run_time_us):
    policy = parse({"load": {"runTime": text}})
    assert policy.run_time_us == run_time_us
    assert from_settings(to_settings(policy)) == policy


@pytest.mark.parametrize(
    "text",
    ["", "0s", "0.999us", "3601s", "1h1us", "33", "-1ms", "1 ms", "1ms\n", "1.ms", "1d", "1e3ms", "9" * 40 + "s", 33],
)
def test_what_is_no_run_time_is_refused(text):
    with pytest.raises(PolicyError, match=r"load\.runTime"):
        parse({"load": {"runTime": text}})


@pytest.mark.parametrize("rate", [0, 0.0, -1, 1_000_001, float("nan"), float("inf"), True, "20"])
def test_what_is_no_request_rate_is_refused(rate):
    with pytest.raises(PolicyError, match=r"load\.requestsPerSecond"):
        parse({"load": {"requestsPerSecond": rate}})


def test_what_is_laid_over_a_policy_replaces_only_what_it_says():
    policy = parse({"objective": "Throughput", "threads": {"intraOp": 4, "spinning": "Never"}})
    assert overlaid(policy, {"threads": {"intraOp": 3}}) == policy._replace(intra_op=3)
    assert overlaid(policy, {}) == policy


def test_entries_and_options_are_laid_over_a_policy_key_by_key():
    backoff, spin_us, cuda = "session.intra_op.spin_backoff_max", "session.intra_op.spin_duration_us", "gpu_mem_limit"
    policy = parse(
        {
            "onnxruntime": {
                "configEntries": {backoff: "2", spin_us: "50"},
                "providerOptions": {"CUDAExecutionProvider": {cuda: "1024"}},
            }
        }
    )
    over = {
        "onnxruntime": {
            "configEntries": {spin_us: "200"},
            "providerOptions": {
                "CUDAExecutionProvider": {"cudnn_conv_use_max_workspace": "0"},
                "XnnpackExecutionProvider": {"intra_op_num_threads": "2"},
            },
        }
    }
    made = overlaid(policy, over)
    assert dict(made.config_entries) == {backoff: "2", spin_us: "200"}
    assert dict(made.provider_options) == {
        "CUDAExecutionProvider": (("cudnn_conv_use_max_workspace", "0"), (cuda, "1024")),
        "XnnpackExecutionProvider": (("intra_op_num_threads", "2"),),
    }


@pytest.mark.parametrize(
    "over", [{"threads": {"intraOp": 3}}, {"threads": {"interOp": 2}}, {"threads": {"intraOp": 0}}]
)
def test_what_can_not_be_laid_over_a_policy_is_refused(over):
    with pytest.raises(PolicyError):
        overlaid(parse({"threads": {"maxIntraOp": 2}}), over)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
)
known = st.sampled_from(["objective", "budget", "load", "threads", "placement", "runtimes", "onnxruntime", "shim"])


@given(st.dictionaries(known, json_values))
def test_any_json_is_a_policy_or_a_policy_error(spec):
    with contextlib.suppress(PolicyError):
        assert from_settings(to_settings(parse(spec))) == parse(spec)

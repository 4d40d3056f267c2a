"""What crosses in annotations: it reads back as it was written, fits its reservation, and never trusts what it reads."""

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

import machines
from raddle import env
from raddle.cpus.topology import Kubelet
from raddle.machine.sysfs import read_machine
from raddle.planning import entries, families, wire
from raddle.planning.planner import Budget, plan
from raddle.planning.policy import Policy

# Every field with its longest value.
FULLEST = Policy(
    objective="Throughput",
    budget_source="Request",
    workers=1024,
    sessions=1024,
    concurrent_runs=1024,
    run_time_us=3_599_999_999,
    request_rate=999999.123456789,
    intra_op=1024,
    min_intra_op=1000,
    max_intra_op=1024,
    inter_op=1024,
    execution_mode="Parallel",
    spinning="Bounded",
    numa="SingleNUMANode",
    smt="OneThreadPerCore",
    core_type="Performance",
    affinity="PerCore",
    runtimes=families.NAMES,
    graph_optimization_level="Extended",
    global_thread_pool=True,
    shared_allocator=True,
    cpu_mem_arena=False,
    mem_pattern=False,
    arena_shrinkage=True,
    config_entries=tuple((key, str(entry.allowed[1])) for key, entry in sorted(entries.CONFIG_ENTRIES.items())),
    provider_options=tuple(
        (name, tuple((option, max(map(str, one.allowed), key=len)) for option, one in sorted(options.items())))
        for name, (_, options) in sorted(entries.PROVIDERS.items())
    ),
    acknowledge=entries.ACKNOWLEDGED,
    allocator="Mimalloc",
    existing_values="Override",
    tuning="x" * 63,
    observe="Runs",
    shim="None",
)
budgets = st.builds(
    Budget,
    quota_cpus=st.one_of(st.none(), st.floats(0.001, 1000), st.floats(1000, 1e6)),
    request_cpus=st.one_of(st.none(), st.floats(0.001, 1000)),
    # Up to what a forged annotation may say.
    whole_cpus=st.one_of(st.integers(0, 1024), st.integers(0, 1_000_000)),
    cpus=st.none(),
    workers=st.one_of(st.integers(1, 64), st.integers(1, 1_000_000)),
    gpu=st.booleans(),
    shim=st.booleans(),
    smallest_cores=st.one_of(st.none(), st.integers(1, 512)),
    reclaimed=st.booleans(),
    # Of claims as much as is quoted.
    dedicated=st.text("abcxyz019- ,", max_size=40),
    claims=st.booleans(),
    because=st.text(max_size=300),
)
policies = st.sampled_from(
    [
        Policy(),
        Policy(objective="Throughput", workers=4),
        Policy(runtimes=("blas",)),
        Policy(intra_op=1024),
        # What the schema allows at most.
        Policy(sessions=1024, concurrent_runs=1024),
        Policy(objective="Throughput", concurrent_runs=1024),
        Policy(execution_mode="Parallel", inter_op=env.MAX_THREADS),
        FULLEST,
    ]
)


names = st.text("abcxyz019-./:@", max_size=256)
tuning = st.none() | st.builds(
    wire.TuningTarget,
    image=names,
    workload=names,
    by=st.text("abcxyz019-", max_size=63),
    first=st.booleans(),
    door=st.booleans(),
)
STATIC = read_machine(str(machines.path("2s16c32t")))._replace(kubelet=Kubelet(cpu_manager_policy="static"))


# A node's name is a DNS subdomain.
@given(st.sampled_from([None, STATIC]), budgets, policies, st.text("abcxyz019-.", max_size=253), tuning)
def test_a_plan_annotation_fits_its_reservation_and_reads_back(machine, budget, policy, node, tuning):
    governed_by = "ClusterInferenceThreading/" + "x" * 63
    text = wire.plan_text(plan(machine, budget, policy), budget, policy, governed_by, node, tuning)
    assert len(text.encode()) <= env.RESERVED_PLAN
    recorded = wire.read_plan_text(text)
    assert recorded.policy == policy
    assert recorded.budget._replace(because="") == budget._replace(because="")


@given(budgets, tuning)
def test_what_a_tuning_is_looked_up_by_reads_back(budget, tuning):
    text = wire.plan_text(plan(STATIC, budget, Policy()), budget, Policy(), "InferenceThreading/p", "n1", tuning)
    assert wire.read_plan_text(text).tuning == tuning


def test_what_came_of_a_tuning_is_the_last_reason_that_is_left_out():
    made = plan(STATIC, Budget(), Policy())
    reasons = {str(number): "x" * 160 for number in range(20)}
    made = made._replace(because={wire.TUNED: "y" * 400, **reasons})
    text = wire.plan_text(
        made, Budget(), Policy(), "InferenceThreading/p", "n1", wire.TuningTarget("image", "Deployment/d")
    )
    because = wire.read_plan_text(text).because
    assert because[wire.TUNED] == "y" * 400
    assert 0 < len(because) < len(reasons)


@pytest.mark.parametrize("because", ["x" * 300, "é" * 300])
def test_the_longest_plan_annotation_fits_and_says_that_reasons_are_missing(because):
    budget = Budget(64.123456, 63.123456789, 32, None, 65536, gpu=True, shim=False, smallest_cores=512, because=because)
    governed_by = "ClusterInferenceThreading/" + "x" * 63
    tuning = wire.TuningTarget("i" * 300, "Deployment/" + "d" * 253, "t" * 63)
    made, longest = plan(STATIC, budget, FULLEST), budget._replace(dedicated="d" * 40, claims=True)
    text = wire.plan_text(made, longest, FULLEST, governed_by, "n" * 253, tuning)
    assert len(text.encode()) <= env.RESERVED_PLAN
    assert json.loads(text)["truncated"] is True
    assert wire.read_plan_text(text).values["layout"] == {"workers": 4, "threads": 4}


@given(st.sampled_from([None, STATIC]), budgets, policies)
def test_the_shims_plan_fits_its_reservation_and_reads_back(machine, budget, policy):
    made = plan(machine, budget, policy)
    text = wire.shim_text(made, policy)
    assert len(text.encode()) <= env.RESERVED_SHIM
    fields = env.decode(text)
    of_ort = "onnxruntime" in policy.runtimes
    assert fields.get("intra_op") == (made.intra_op if of_ort else None)
    assert fields.get("intra_op_without_shim", fields.get("intra_op")) == (
        made.intra_op_without_shim if of_ort else None
    )
    assert fields["streams"] == made.streams


def test_the_shims_plan_says_what_the_policy_asks_for_beyond_counts():
    policy = FULLEST._replace(intra_op=None, min_intra_op=1, sessions=2, workers=None, budget_source="Auto")
    fields = env.decode(wire.shim_text(plan(None, Budget(quota_cpus=8.0, gpu=True), policy), policy))
    expected = {
        "global_thread_pool": 1,
        "shared_allocator": 1,
        "cpu_mem_arena": 0,
        "mem_pattern": 0,
        "arena_shrinkage": 1,
        "min_inter_op": 1024,
        "torch_inter_op": 1024,
        "gpu": 1,
        "observe": "runs",
        "allocator": "mimalloc",
        "session.intra_op.spin_backoff_max": 64,
        "cuda.gpu_mem_limit": 10**19 - 1,
        "cuda.cudnn_conv_algo_search": "EXHAUSTIVE",
    }
    assert {key: fields[key] for key in expected} == expected


@pytest.mark.parametrize(("quota_cpus", "count"), [(4.0, 3), (1.0, None)])
def test_the_plans_say_what_the_variable_holds_where_that_is_another_count(quota_cpus, count):
    budget = Budget(quota_cpus=quota_cpus)
    made = plan(None, budget, Policy())
    assert env.decode(wire.shim_text(made, Policy())).get("intra_op_without_shim") == count
    recorded = wire.read_plan_text(wire.plan_text(made, budget, Policy(), "InferenceThreading/p"))
    assert recorded.values.get("intraOpWithoutShim") == count


@pytest.mark.parametrize(("entry_us", "shown_us"), [(1000, 1000), (0, 0), (-1, None)])
def test_the_plan_shows_for_how_long_threads_spin_by_the_policys_own_entry(entry_us, shown_us):
    entry = "session.intra_op.spin_duration_us"
    policy = Policy(spinning="Bounded", config_entries=((entry, str(entry_us)),))
    made = plan(STATIC, Budget(quota_cpus=2.0), policy)
    recorded = wire.read_plan_text(wire.plan_text(made, Budget(quota_cpus=2.0), policy, "InferenceThreading/p"))
    assert recorded.values.get("spinDurationUs") == shown_us
    assert env.decode(wire.shim_text(made, policy))[entry] == entry_us


def test_what_a_policy_leaves_to_the_application_is_absent_from_the_shims_plan():
    fields = env.decode(wire.shim_text(plan(None, Budget(quota_cpus=2.0), Policy()), Policy()))
    assert (
        not {
            "global_thread_pool",
            "shared_allocator",
            "cpu_mem_arena",
            "mem_pattern",
            "arena_shrinkage",
            "graph_optimization_level",
            "allocator",
        }
        & fields.keys()
    )
    assert not any("." in key for key in fields)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is not JSON"),
        ("[]", "is not a JSON object of version 1"),
        ('{"v":2}', "is not a JSON object of version 1"),
        ('{"v":1,"budget":[]}', "budget must be an object"),
        ('{"v":1,"node":7}', "node and by must be text"),
        ('{"v":1,"policy":{"intra_op":-1}}', "threads.intraOp: -1 is not allowed"),
        ('{"v":1,"budget":{"quota_cpus":"4"}}', "budget.quota_cpus must be of type float"),
        ('{"v":1,"budget":{"workers":true}}', "budget.workers must be of type int"),
        ('{"v":1,"budget":{"quota_cpus":1e300}}', "budget.quota_cpus must be from 0 to 1000000"),
        ("[" * 2000, "is not JSON"),
        ("x" * 5000, "is 5000 bytes long"),
    ],
)
def test_a_forged_annotation_is_refused_with_the_part_named(text, message):
    with pytest.raises(wire.WireError, match="plan annotation") as caught:
        wire.read_plan_text(text)
    assert message in str(caught.value)


@given(st.text() | st.recursive(st.integers() | st.text(), lambda x: st.dictionaries(st.text(), x)).map(json.dumps))
def test_reading_any_text_ends_in_a_value_or_a_wire_error(text):
    with contextlib.suppress(wire.WireError):
        wire.read_plan_text(text)


def test_the_settings_hash_follows_what_decides_and_nothing_else():
    assert wire.settings_hash(Policy()) == wire.settings_hash(Policy(objective="Latency"))
    assert wire.settings_hash(Policy()) != wire.settings_hash(Policy(run_time_us=1000))
    assert wire.settings_hash(Policy()) != wire.settings_hash(Policy(objective="Throughput"))

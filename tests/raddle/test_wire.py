"""What crosses in annotations: it reads back as it was written, fits its reservation, and never trusts what it reads."""

from __future__ import annotations

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

import machines
from raddle import env, wire
from raddle.planner import Budget, plan
from raddle.policy import Policy
from raddle.sysfs import read_machine
from raddle.topology import Kubelet

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
        Policy(execution_mode="Parallel", inter_op_percent=100),
    ]
)


STATIC = read_machine(str(machines.path("2s16c32t")))._replace(kubelet=Kubelet(cpu_manager_policy="static"))


@given(budgets, policies, st.text(max_size=253))
def test_a_plan_annotation_fits_its_reservation_and_reads_back(budget, policy, node):
    text = wire.plan_text(plan(None, budget, policy), budget, policy, "InferenceThreading/x", node)
    assert len(text.encode()) <= env.RESERVED_PLAN
    recorded = wire.read_plan_text(text)
    assert recorded.policy == policy
    assert recorded.budget._replace(because="") == budget._replace(because="")


@given(st.sampled_from([None, STATIC]), budgets, policies)
def test_the_shims_plan_fits_its_reservation_and_reads_back(machine, budget, policy):
    made = plan(machine, budget, policy)
    text = wire.shim_text(made, policy)
    assert len(text.encode()) <= env.RESERVED_SHIM
    fields = env.decode(text)
    assert fields.get("intra") == (made.intra_op if "onnxruntime" in policy.runtimes else None)
    assert fields["streams"] == made.streams


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
    assert wire.settings_hash(Policy()) != wire.settings_hash(Policy(objective="Throughput"))

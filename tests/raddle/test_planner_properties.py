"""What holds for every plan, on machines of 1 to 1024 CPUs however they are built, and that faults would be noticed.

`make fuzz` tries the same invariants a million times (tests/fuzz/test_fuzz_placement.py).
"""

from random import Random

import pytest
from hypothesis import given
from support.examples import examples
from support.machines import absurd_budgets, containers, machines, policies, wider_containers
from support.placement.invariants import faults, in_the_container, violations, wider
from support.placement.named import MACHINES
from support.placement.random_machines import machine

from raddle.cpus import cpuset
from raddle.planning.layout import Layout
from raddle.planning.planner import Budget, plan
from raddle.planning.policy import Policy

# Machines are costly to draw: fewer examples than usual, and no deadline for the largest.
EXAMPLES = examples(0.6)


@EXAMPLES
@given(containers())
def test_a_plan_keeps_every_invariant(container):
    assert list(violations(*container)) == []


@EXAMPLES
@given(containers())
def test_a_plan_for_an_unknown_node_keeps_every_invariant(container):
    _, budget, policy = container
    assert list(violations(None, budget._replace(cpus=None), policy)) == []


@EXAMPLES
@given(wider_containers())
def test_a_wider_budget_never_gives_fewer_threads(container):
    assert list(wider(*container)) == []


@EXAMPLES
@given(machines(64), absurd_budgets(), policies())
def test_absurd_numbers_never_raise_and_never_give_less_than_a_thread(the_machine, budget, policy):
    for known in (the_machine, None):
        made = plan(known, budget, policy)
        assert made.intra_op is None or made.intra_op >= 1


@EXAMPLES
@given(containers())
def test_in_the_container_a_plan_is_only_ever_cut_to_what_would_be_planned_there(container):
    assert list(in_the_container(*container)) == []


@EXAMPLES
@given(machines())
def test_a_random_machine_is_one_that_a_kernel_could_show(the_machine):
    assert the_machine.online
    assert not the_machine.online & the_machine.offline
    groups = [
        the_machine.cores,
        [group.cpus for group in the_machine.sockets],
        [group.cpus for group in the_machine.dies],
        [node.cpus for node in the_machine.numa_nodes],
        [group.cpus for group in the_machine.l3_domains],
        [kind.cpus for kind in the_machine.core_types],
    ]
    for masks in groups:
        seen = 0
        for mask in masks:
            assert not mask & (seen | ~the_machine.online)
            seen |= mask
    assert cpuset.count(the_machine.online | the_machine.offline) <= 1024


def test_random_machines_have_all_the_oddities_that_real_ones_have():
    drawn = [machine(Random(seed)) for seed in range(400)]
    oddities = {
        "a single CPU": lambda m: cpuset.count(m.online) == 1,
        "more than 512 CPUs": lambda m: cpuset.count(m.online) > 512,
        "SMT of eight": lambda m: any(cpuset.count(core) == 8 for core in m.cores),
        "cores of several widths": lambda m: len({cpuset.count(core) for core in m.cores}) > 1,
        "holes in the numbering": lambda m: m.online & (m.online + 1),
        "offline CPUs": lambda m: m.offline,
        "isolated CPUs": lambda m: m.isolated,
        "P- and E-cores": lambda m: {kind.name for kind in m.core_types} >= {"p-core", "e-core"},
        "capacities": lambda m: len({kind.capacity for kind in m.core_types}) > 1,
        "nodes without CPUs": lambda m: any(not node.cpus for node in m.numa_nodes),
        "CPUs without a node": lambda m: m.numa_nodes and m.online & ~sum(node.cpus for node in m.numa_nodes),
        "no NUMA nodes": lambda m: not m.numa_nodes,
        "no L3 domains": lambda m: not m.l3_domains,
        "no cores": lambda m: not m.cores,
        "a cache wider than a NUMA node": lambda m: any(
            node.cpus and node.cpus != l3.cpus and not node.cpus & ~l3.cpus
            for node in m.numa_nodes
            for l3 in m.l3_domains
        ),
        "GPUs": lambda m: any(gpu.numa_node is not None for gpu in m.gpus),
        "reserved CPUs": lambda m: m.kubelet.reserved_cpus,
    }
    assert [name for name, has in oddities.items() if not any(has(one) for one in drawn)] == []


# --- a fault is noticed ---------------------------------------------------------------------------------------------

ICE_LAKE = MACHINES["Intel Ice Lake, 2 sockets, 64 cores with 2 threads"]
SNC = MACHINES["Intel Sapphire Rapids, 2 sockets, 112 cores with 2 threads, SNC4"]
HYBRID = MACHINES["Intel hybrid, 6 P-cores with 2 threads and 8 E-cores"]
FOUR_CORES = cpuset.parse_list("0-3,64-67")
ON_FOUR_CORES = Budget(whole_cpus=8, cpus=FOUR_CORES)
MIXED = Budget(whole_cpus=8, cpus=cpuset.parse_list("8-15"))
PER_CORE = Policy(affinity="PerCore")
THROUGHPUT = Policy(objective="Throughput")
LIMIT = Budget(quota_cpus=2, because="limits.cpu 2")


@pytest.mark.parametrize(
    ("the_machine", "budget", "policy", "fault", "sentence"),
    [
        (ICE_LAKE, LIMIT, Policy(), {"intra_op": 0}, "intraOp 0"),
        (ICE_LAKE, LIMIT, Policy(), {"intra_op": 3}, "1 streams of 3 threads, a cap of 2"),
        (ICE_LAKE, LIMIT, Policy(), {"cap": 3}, "a cap of 3 under a limit of 2 CPUs"),
        (ICE_LAKE, Budget(), Policy(), {"cap": 65}, "a cap of 65 where 64 threads have a core each"),
        (ICE_LAKE, LIMIT, Policy(), {"budget_cpus": 129.0}, "129.0 CPUs counted where 128 may be used"),
        (ICE_LAKE, LIMIT, Policy(), {"omp": 3}, "omp 3 beside intraOp 2"),
        (ICE_LAKE, LIMIT, Policy(), {"because": {}}, "no reason for intraOp"),
        (ICE_LAKE, LIMIT, Policy(), {"exclusive_cpus": 2}, "2 exclusive CPUs"),
        (ICE_LAKE, LIMIT, Policy(), {"affinity": "numa"}, "affinity numa with 1 streams of 2 threads"),
        (
            ICE_LAKE,
            LIMIT._replace(gpu=True),
            Policy(),
            {"spinning": "bounded", "spin_duration_us": 9},
            "spinning with 1 streams",
        ),
        (ICE_LAKE, LIMIT, Policy(spinning="Never"), {"spinning": "bounded"}, "another spinning than the policy's"),
        (ICE_LAKE, ON_FOUR_CORES, Policy(), {"cpus": 1 << 20}, "CPUs 20 outside 0-3,64-67"),
        (ICE_LAKE, ON_FOUR_CORES, Policy(), {"affinity_groups": (FOUR_CORES,) * 4}, "4 groups for 4 threads"),
        (ICE_LAKE, ON_FOUR_CORES, Policy(), {"affinity_groups": (1 << 9,) * 3}, "a group outside the pool's CPUs"),
        (ICE_LAKE, ON_FOUR_CORES, Policy(), {"memory_numa_node": 1}, "memory node 1, all CPUs are on 0"),
        (ICE_LAKE, ON_FOUR_CORES, PER_CORE, {"affinity_groups": (1, 1, 2)}, "two workers on one CPU"),
        (ICE_LAKE, ON_FOUR_CORES, PER_CORE, {"affinity_groups": (1, 1 << 64, 2)}, "siblings used while a whole core"),
        (ICE_LAKE, ON_FOUR_CORES, Policy(), {"cap": 3}, "a cap of 3, the rules say 4"),
        (HYBRID, MIXED, Policy(), {"cpus": MIXED.cpus}, "one pool across p-core, e-core"),
        (ICE_LAKE, Budget(), THROUGHPUT, {"layout": Layout(17, 4, "")}, "a layout of 17 x 4 on 64 cores"),
        (SNC, Budget(), THROUGHPUT, {"layout": Layout(28, 4, "")}, "a layout of 28 x 4 on 112 cores"),
        (None, LIMIT, Policy(), {"cpus": 1}, "CPUs of an unknown machine"),
    ],
)
def test_a_fault_is_noticed(the_machine, budget, policy, fault, sentence):
    made = plan(the_machine, budget, policy)
    assert list(faults(made, the_machine, budget, policy)) == []
    found = list(faults(made._replace(**fault), the_machine, budget, policy))
    assert any(sentence in one for one in found), found

"""The rules of docs/explanation/how-a-number-is-decided.md, as tables over named machines and as properties."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assembling import regular
from raddle.cpus import cpuset
from raddle.cpus.placement import affinity_groups
from raddle.cpus.topology import CoreType, Kubelet, Machine, NUMANode, cores_within
from raddle.planning.planner import Budget, plan
from raddle.planning.policy import Policy

UNKNOWN = Kubelet()
STATIC = Kubelet(cpu_manager_policy="static", reserved_cpus=0)


def machine(numa_nodes=1, cores_per_node=4, threads=1, kubelet=UNKNOWN, l3_per_node=1, **more):
    """A regular machine, numbered as Linux does on x86: all first threads, then all second threads."""
    total, nodes = numa_nodes * cores_per_node, {"sockets": numa_nodes, "numa_nodes": numa_nodes}
    return regular(total, threads, **nodes, l3_domains=numa_nodes * l3_per_node, kubelet=kubelet, **more)


LAPTOP = machine()
SMALL = machine(cores_per_node=2)
DUAL = machine(numa_nodes=2, cores_per_node=16, threads=2)
DUAL_STATIC = machine(numa_nodes=2, cores_per_node=16, threads=2, kubelet=STATIC)
CHIPLETS = machine(numa_nodes=2, cores_per_node=16, l3_per_node=4, kubelet=STATIC)
HYBRID = Machine(
    online=(1 << 20) - 1,
    cores=(*(0b11 << (2 * n) for n in range(6)), *(1 << n for n in range(12, 20))),
    numa_nodes=(NUMANode(0, (1 << 20) - 1),),
    core_types=(CoreType("p-core", (1 << 12) - 1, 5200), CoreType("e-core", ((1 << 8) - 1) << 12, 3900)),
)
MACHINES = {"laptop": LAPTOP, "dual": DUAL, "dual static": DUAL_STATIC, "chiplets": CHIPLETS, "hybrid": HYBRID}


@pytest.mark.parametrize(
    ("quota_cpus", "latency", "throughput", "spinning"),
    [
        (0.1, 1, 1, "never"),
        (0.5, 1, 1, "never"),
        (0.999, 1, 1, "never"),
        (1, 1, 1, "bounded"),
        (1.5, 2, 1, "bounded"),
        (2, 2, 2, "bounded"),
        (2.1, 3, 2, "bounded"),
        (4, 4, 4, "bounded"),
    ],
)
def test_a_limit_alone_decides_threads_and_spinning(quota_cpus, latency, throughput, spinning):
    budget = Budget(quota_cpus=quota_cpus, because="limits.cpu")
    assert plan(None, budget, Policy()).intra_op == latency
    assert plan(None, budget, Policy(objective="Throughput")).intra_op == throughput
    assert plan(None, budget, Policy()).spinning == spinning


@pytest.mark.parametrize(
    ("name", "budget", "policy", "threads", "because"),
    [
        ("laptop", Budget(quota_cpus=8, because="limits.cpu 8"), Policy(), 4, "4 physical cores on the node"),
        # Nothing is tied on shared CPUs, so a NUMA node is no bound there.
        ("dual", Budget(quota_cpus=20, because="limits.cpu 20"), Policy(), 20, "limits.cpu 20"),
        ("dual", Budget(quota_cpus=48, because="limits.cpu 48"), Policy(), 32, "32 physical cores on the node"),
        ("dual", Budget(quota_cpus=20), Policy(numa="SingleNUMANode"), 16, "16 physical cores on one NUMA node"),
        ("dual", Budget(quota_cpus=20, because="limits.cpu 20"), Policy(objective="Throughput"), 20, "limits.cpu 20"),
        ("dual", Budget(), Policy(), 16, "no CPU limit; 16 physical cores on one NUMA node"),
        ("dual", Budget(), Policy(objective="Throughput"), 32, "no CPU limit; 32 physical cores on the node"),
        ("dual", Budget(), Policy(smt="AllThreads"), 32, "no CPU limit; 32 CPUs on one NUMA node"),
        ("dual", Budget(), Policy(budget_source="Node"), 32, "budget.source Node; 32 physical cores on the node"),
        # There is a limit, and it is not what decided.
        ("dual", Budget(4), Policy(budget_source="Node"), 32, "budget.source Node; 32 physical cores on the node"),
        ("dual", Budget(request_cpus=3), Policy(budget_source="Request"), 3, "requests.cpu 3 (budget.source Request)"),
        ("hybrid", Budget(), Policy(), 6, "no CPU limit; 6 physical cores of one type on the node"),
        (
            "hybrid",
            Budget(),
            Policy(core_type="Efficient"),
            8,
            "no CPU limit; 8 physical cores of one type on the node",
        ),
        ("hybrid", Budget(), Policy(core_type="Any"), 14, "no CPU limit; 14 physical cores on the node"),
        ("hybrid", Budget(quota_cpus=12, because="limits.cpu 12"), Policy(), 6, "6 physical cores of one type"),
        (
            "dual static",
            Budget(quota_cpus=8, whole_cpus=8, because="limits.cpu 8"),
            Policy(),
            4,
            "8 exclusive CPUs (Guaranteed, static CPU manager) on 4 physical cores",
        ),
        ("dual static", Budget(quota_cpus=8, whole_cpus=8), Policy(smt="AllThreads"), 8, "8 exclusive CPUs"),
        ("dual static", Budget(quota_cpus=3, whole_cpus=3), Policy(), 2, "3 exclusive CPUs"),
        ("chiplets", Budget(quota_cpus=20, whole_cpus=20), Policy(), 16, "cut to the 16 on one NUMA node"),
        ("chiplets", Budget(quota_cpus=24, whole_cpus=24), Policy(), 24, "24 exclusive CPUs"),
        ("chiplets", Budget(quota_cpus=24, whole_cpus=24), Policy(numa="SingleNUMANode"), 16, "cut to the 16"),
        # Unknown CPU manager policy is never taken for static.
        ("dual", Budget(quota_cpus=8, whole_cpus=8, because="limits.cpu 8"), Policy(), 8, "limits.cpu 8"),
    ],
)
def test_the_node_bounds_what_the_limit_allows(name, budget, policy, threads, because):
    made = plan(MACHINES[name], budget, policy)
    assert made.intra_op == threads
    assert because in made.because["intraOp"]


def test_a_container_without_a_limit_gets_the_smallest_known_node_until_its_node_is_known():
    assert plan(None, Budget(smallest_cores=6), Policy()).intra_op == 6


def test_a_container_without_any_bound_gets_no_counts():
    made = plan(None, Budget(), Policy())
    assert (made.intra_op, made.omp, made.blas) == (None, None, None)
    assert made.because["intraOp"] == "no CPU limit, and no node is known"


def test_source_limit_never_falls_back_to_the_node():
    assert plan(DUAL, Budget(), Policy(budget_source="Limit")).intra_op is None


@pytest.mark.parametrize(
    ("budget", "policy", "threads"),
    [
        (Budget(quota_cpus=8, workers=2), Policy(), 4),
        (Budget(quota_cpus=8, workers=3), Policy(), 2),
        (Budget(quota_cpus=8, workers=16), Policy(), 1),
        (Budget(quota_cpus=8, workers=2), Policy(sessions=2), 2),
        (Budget(quota_cpus=8), Policy(objective="Throughput", concurrent_runs=4), 2),
        (Budget(quota_cpus=8, workers=4), Policy(min_intra_op=3), 3),
        (Budget(quota_cpus=8), Policy(max_intra_op=2), 2),
        (Budget(quota_cpus=2), Policy(intra_op=7), 7),
    ],
)
def test_workers_sessions_and_the_policy_shape_the_count(budget, policy, threads):
    assert plan(None, budget, policy).intra_op == threads


@pytest.mark.parametrize(
    ("budget", "policy", "spinning", "because"),
    [
        (Budget(quota_cpus=4, workers=2), Policy(), "never", "2 streams share the CPUs"),
        (Budget(quota_cpus=4, gpu=True), Policy(), "never", "GPU session"),
        (Budget(quota_cpus=4), Policy(concurrent_runs=3), "never", "6 runnable threads on 4 CPUs"),
        (Budget(quota_cpus=0.5), Policy(spinning="Always"), "always", "policy threads.spinning"),
        (Budget(quota_cpus=4), Policy(spinning="Never"), "never", "policy threads.spinning"),
        (Budget(), Policy(), "never", "CPUs unknown"),
    ],
)
def test_spinning_stops_where_it_would_burn_the_quota(budget, policy, spinning, because):
    made = plan(None, budget, policy)
    assert (made.spinning, made.because["spinning"]) == (spinning, because)


@pytest.mark.parametrize(
    ("machine_name", "budget", "threads"),
    [
        (None, Budget(quota_cpus=4, shim=False), 3),
        (None, Budget(quota_cpus=1.5, shim=False), 1),
        (None, Budget(quota_cpus=0.5, shim=False), 1),
        ("dual", Budget(shim=False), 4),
        ("dual", Budget(shim=False, request_cpus=9), 9),
        ("dual", Budget(shim=False, request_cpus=90), 16),
        ("dual static", Budget(quota_cpus=8, whole_cpus=8, shim=False), 4),
    ],
)
def test_fewer_threads_where_no_shim_can_stop_them_spinning(machine_name, budget, threads):
    made = plan(MACHINES.get(machine_name), budget, Policy())
    assert (made.intra_op, made.intra_op_without_shim) == (threads, threads)
    # A shim that is planned with may still be missing in a process: a virtual environment, C#, Go.
    assert plan(MACHINES.get(machine_name), budget._replace(shim=True), Policy()).intra_op_without_shim == threads


@pytest.mark.parametrize(
    ("budget", "policy", "counts"),
    [
        (Budget(quota_cpus=4), Policy(), (4, 3)),
        (Budget(quota_cpus=4), Policy(objective="Throughput"), (4, 3)),
        # Spinning threads of all streams together.
        (Budget(quota_cpus=8, workers=2), Policy(), (4, 3)),
        (Budget(smallest_cores=16), Policy(), (16, 4)),
        (Budget(smallest_cores=16, request_cpus=6), Policy(), (16, 6)),
        (Budget(quota_cpus=8), Policy(max_intra_op=2), (2, 2)),
        # What the policy names holds whether or not there is a shim.
        (Budget(quota_cpus=4), Policy(intra_op=4), (4, 4)),
        (Budget(quota_cpus=4), Policy(min_intra_op=4), (4, 4)),
        (Budget(quota_cpus=4), Policy(spinning="Always"), (4, 4)),
        (Budget(quota_cpus=4), Policy(run_time_us=1_000, request_rate=100.0), (1, 1)),
    ],
)
def test_the_count_without_a_shim_is_the_lesser_one_unless_the_policy_names_it(budget, policy, counts):
    made = plan(None, budget, policy)
    assert (made.intra_op, made.intra_op_without_shim) == counts
    assert made.because.get("intraOpWithoutShim", "").endswith("spinning not controlled") == (counts[0] != counts[1])


@pytest.mark.parametrize(
    ("budget", "policy", "counts"),
    [
        # Nothing bounds how long they spin at a barrier: on shared CPUs there are as many as can't use the limit up.
        (Budget(quota_cpus=0.5), Policy(), (1, 1)),
        (Budget(quota_cpus=2), Policy(), (1, 1)),
        (Budget(quota_cpus=4), Policy(), (3, 1)),
        (Budget(quota_cpus=8, workers=2), Policy(), (3, 1)),
        (Budget(quota_cpus=8), Policy(max_intra_op=2), (2, 1)),
        (Budget(quota_cpus=4), Policy(runtimes=("blas",)), (None, 3)),
        (Budget(smallest_cores=16), Policy(), (4, 4)),
        (Budget(smallest_cores=16, request_cpus=6), Policy(), (6, 6)),
        (Budget(quota_cpus=4), Policy(spinning="Always"), (4, 1)),
        (Budget(quota_cpus=4), Policy(spinning="Never"), (3, 1)),
        (Budget(quota_cpus=4), Policy(intra_op=4), (4, 1)),
        (Budget(quota_cpus=4), Policy(min_intra_op=4), (4, 1)),
        (Budget(quota_cpus=4), Policy(objective="Throughput"), (3, 1)),
        (Budget(quota_cpus=4), Policy(runtimes=("openmp", "joblib")), (1, None)),
    ],
)
def test_without_a_shim_openmp_and_blas_have_no_more_threads_than_may_spin_on_shared_cpus(budget, policy, counts):
    made = plan(None, budget._replace(shim=False), policy)
    assert (made.omp, made.blas) == counts


@pytest.mark.parametrize(
    ("budget", "policy", "count"),
    [
        (Budget(quota_cpus=0.5), Policy(), 1),
        (Budget(quota_cpus=1.5), Policy(), 2),
        (Budget(quota_cpus=4), Policy(), 4),
        (Budget(quota_cpus=4), Policy(spinning="Never"), 4),
        (Budget(quota_cpus=4), Policy(runtimes=("openmp", "blas", "joblib")), 4),
        (Budget(quota_cpus=8, workers=2), Policy(), 4),
        (Budget(quota_cpus=8), Policy(max_intra_op=2), 2),
        # Libraries that read the limit round it up, whatever the objective.
        (Budget(quota_cpus=1.5), Policy(objective="Throughput"), 2),
        (Budget(quota_cpus=0.5), Policy(objective="Throughput"), 1),
        # What a known load asks for above the limit is ONNX Runtime's.
        (Budget(quota_cpus=1, smallest_cores=16), Policy(run_time_us=33_000), 1),
    ],
)
def test_with_a_shim_openmp_and_blas_have_as_many_threads_as_the_limit_has_cpus(budget, policy, count):
    made = plan(None, budget, policy)
    assert (made.omp, made.blas) == (count, count)


@pytest.mark.parametrize("family", ["mkl", "blis"])
@pytest.mark.parametrize(
    ("policy", "count"),
    [(Policy(), 3), (Policy(spinning="Always"), 4), (Policy(runtimes=("onnxruntime",)), 1)],
)
def test_mkl_and_blis_have_the_count_that_openblas_has_also_where_it_is_not_chosen(family, policy, count):
    alone = () if policy.runtimes == Policy().runtimes else policy.runtimes
    budget = Budget(quota_cpus=4, shim=False)
    made = plan(None, budget, policy._replace(runtimes=(*alone, family)))
    assert (made.blas, made.other_blas) == (None, count)
    openblas = plan(None, budget, policy._replace(runtimes=(*alone, "blas")))
    assert (openblas.blas, openblas.other_blas) == (count, None)


def test_openmp_and_blas_fill_cpus_of_their_own():
    budget = Budget(quota_cpus=4, whole_cpus=4)
    made = plan(DUAL_STATIC, budget, Policy())
    assert (made.omp, made.blas) == (made.intra_op, made.intra_op)
    assert made.omp > 1


@pytest.mark.parametrize(
    ("limit_cpus", "load", "expected"),
    [
        (1, {}, (1, "bounded", False)),
        # A long run at half load uses CPUs that its limit pays for as well as one thread would.
        (1, {"run_time_us": 33_000, "request_rate": 15.0}, (4, "bounded", True)),
        (0.5, {"run_time_us": 33_000, "request_rate": 12.9}, (1, "never", False)),
        (1.5, {"run_time_us": 1_000, "request_rate": 100.0}, (1, "bounded", False)),
        # Without a rate it is half of what one thread can serve.
        (1, {"run_time_us": 33_000}, (4, "bounded", True)),
        # A rate alone says nothing.
        (1, {"request_rate": 15.0}, (1, "bounded", False)),
        # The model knows one request at a time, and one pool.
        (1, {"run_time_us": 33_000, "concurrent_runs": 2}, (1, "never", False)),
        (4, {"run_time_us": 33_000, "workers": 2}, (2, "never", False)),
        (1, {"run_time_us": 33_000, "objective": "Throughput"}, (1, "bounded", False)),
        # The policy's own words hold.
        (1, {"run_time_us": 33_000, "intra_op": 2}, (2, "never", False)),
        (1, {"run_time_us": 33_000, "max_intra_op": 2}, (2, "bounded", True)),
        (1, {"run_time_us": 33_000, "spinning": "Never"}, (3, "never", True)),
    ],
)
def test_a_known_load_decides_threads_and_spinning_for_latency(limit_cpus, load, expected):
    policy = Policy(**load)
    made = plan(None, Budget(quota_cpus=limit_cpus, workers=policy.workers or 1, smallest_cores=16), policy)
    assert (made.intra_op, made.spinning, made.over_quota) == expected


def test_a_known_load_whose_requests_come_faster_than_spinning_lasts_lets_workers_sleep():
    made = plan(None, Budget(quota_cpus=2), Policy(run_time_us=1300, request_rate=770.0))
    assert (made.intra_op, made.spinning, made.spin_duration_us) == (2, "never", 0)


@pytest.mark.parametrize(
    ("budget", "policy", "counts"),
    [
        # The load's one thread is right in every process; its threads above the limit only where a shim bounds them.
        (Budget(quota_cpus=4, smallest_cores=16), {"run_time_us": 1_000}, (1, 1, 1)),
        (Budget(quota_cpus=1, smallest_cores=16), {"run_time_us": 33_000}, (4, 1, 1)),
        (Budget(quota_cpus=1, smallest_cores=16), {"run_time_us": 33_000, "spinning": "Never"}, (3, 1, 1)),
        # The policy's least count leaves no choice.
        (Budget(quota_cpus=1, smallest_cores=16), {"run_time_us": 33_000, "min_intra_op": 8}, (8, 8, 8)),
    ],
)
def test_processes_that_spin_unbounded_have_no_more_threads_than_the_limit_or_the_load(budget, policy, counts):
    made = plan(None, budget, Policy(**policy))
    assert (made.intra_op, made.intra_op_without_shim, made.omp) == counts
    assert made.spinning == ("never" if "min_intra_op" in policy or "spinning" in policy else "bounded")


def test_threads_above_the_limit_keep_to_the_numa_node_that_the_policy_asks_for():
    budget = Budget(quota_cpus=1)
    dual_core_nodes = regular(4, numa_nodes=2)
    counts = [
        plan(dual_core_nodes, budget, Policy(run_time_us=33_000, numa=numa)).intra_op
        for numa in ("Auto", "SingleNUMANode")
    ]
    assert counts == [4, 2]


@pytest.mark.parametrize("rate", [5e-324, 1e-300, 1e-15, 1e6])
@pytest.mark.parametrize("limit_cpus", [1e-300, 0.001, 1])
def test_no_rate_and_no_limit_keeps_the_model_from_its_answer(rate, limit_cpus):
    made = plan(None, Budget(quota_cpus=limit_cpus, smallest_cores=16), Policy(run_time_us=1, request_rate=rate))
    assert 0 < made.expected.p50_s <= made.expected.p99_s


def test_what_is_expected_of_a_plan_is_said_where_the_load_is_known():
    made = plan(None, Budget(quota_cpus=1, smallest_cores=16), Policy(run_time_us=33_000, request_rate=15.0))
    assert made.expected.p50_s < 0.033
    assert "load: runs of 33 ms at 15/s" in made.because["intraOp"]
    assert "not measured" in made.because["expected"]
    assert plan(None, Budget(quota_cpus=1), Policy()).expected is None


def test_the_reason_says_whether_a_load_was_observed():
    policy, budget = Policy(load_source="Observed"), Budget(quota_cpus=1, smallest_cores=16)
    waiting = plan(None, budget, policy)
    assert waiting.because["intraOp"].endswith("; no load observed yet")
    assert waiting.intra_op == plan(None, budget, Policy()).intra_op
    found = plan(None, budget, policy._replace(run_time_us=33_000, request_rate=20.0))
    assert "observed load: runs of 33 ms at 20/s" in found.because["intraOp"]
    assert found.intra_op == plan(None, budget, Policy(run_time_us=33_000, request_rate=20.0)).intra_op
    # Where no load counts none is waited for.
    assert "load" not in plan(None, budget, policy._replace(objective="Throughput")).because["intraOp"]


def test_the_reason_says_what_would_change_the_default():
    assert plan(None, Budget(quota_cpus=1), Policy()).because["intraOp"].endswith("gains from load.runTime")
    assert "load.runTime" not in plan(None, Budget(quota_cpus=2), Policy()).because["intraOp"]


@pytest.mark.parametrize(
    ("budget", "policy"),
    [
        (Budget(quota_cpus=1), Policy(max_intra_op=1)),
        (Budget(quota_cpus=1), Policy(execution_mode="Parallel", inter_op=2)),
        (Budget(quota_cpus=1, gpu=True), Policy()),
    ],
)
def test_the_reason_names_no_load_where_one_would_change_nothing(budget, policy):
    known = plan(None, budget._replace(smallest_cores=16), policy._replace(run_time_us=33_000))
    assert known.intra_op == 1
    for made in (known, plan(None, budget, policy)):
        assert "load.runTime" not in made.because["intraOp"]


@pytest.mark.parametrize(
    ("budget", "policy", "omp", "because"),
    [
        (Budget(quota_cpus=2), Policy(min_intra_op=3, spinning="Always"), 3, "same as intraOp"),
        (Budget(quota_cpus=1, smallest_cores=16), Policy(min_intra_op=3, run_time_us=33_000), 3, "minIntraOp"),
        (Budget(quota_cpus=8), Policy(min_intra_op=8), 8, "same as intraOp"),
        (Budget(quota_cpus=4, shim=False), Policy(runtimes=("openmp", "joblib")), 1, "joblib's processes"),
    ],
)
def test_the_reason_of_openmps_count_is_what_decided_it(budget, policy, omp, because):
    made = plan(None, budget, policy)
    assert made.omp == omp
    assert because in made.because["omp"]


def test_threads_on_cpus_of_their_own_spin_without_end_for_latency():
    budget = Budget(quota_cpus=4, whole_cpus=4)
    made = plan(DUAL_STATIC, budget, Policy())
    assert (made.spinning, made.exclusive_spinning) == ("bounded", "always")
    for policy in (Policy(objective="Throughput"), Policy(spinning="Bounded"), Policy(sessions=2)):
        assert plan(DUAL_STATIC, budget, policy).exclusive_spinning is None
    assert plan(None, budget, Policy()).exclusive_spinning is None


@pytest.mark.parametrize("rate", [1.0, 10.0, 100.0])
def test_a_known_load_takes_no_threads_from_cpus_of_their_own_for_the_sake_of_others(rate):
    """Nobody shares a CPU with what spins there, so four threads of a run of 5 ms have nobody to wait for."""
    budget = Budget(quota_cpus=4, whole_cpus=4)
    made = plan(DUAL_STATIC, budget, Policy(run_time_us=5_000, request_rate=rate))
    assert made.intra_op == plan(DUAL_STATIC, budget, Policy()).intra_op > 1
    assert made.expected.p99_s < 0.005


@pytest.mark.parametrize(
    ("policy", "intra_op", "global_intra_op"),
    [
        (Policy(), 8, None),
        (Policy(sessions=2), 4, None),
        (Policy(global_thread_pool=True), 8, 8),
        # Sessions share the pool, so it is as large as theirs together.
        (Policy(global_thread_pool=True, sessions=2), 4, 8),
        (Policy(global_thread_pool=True, sessions=3), 2, 6),
        (Policy(global_thread_pool=True, sessions=100), 1, 8),
        (Policy(global_thread_pool=True, sessions=4, workers=2), 1, 4),
        (Policy(global_thread_pool=True, sessions=2, intra_op=3), 3, 3),
        (Policy(global_thread_pool=True, sessions=4, max_intra_op=6), 2, 6),
    ],
)
def test_one_pool_for_all_sessions_is_as_large_as_theirs_together(policy, intra_op, global_intra_op):
    made = plan(None, Budget(quota_cpus=8.0, workers=policy.workers or 1), policy)
    assert (made.intra_op, made.global_intra_op) == (intra_op, global_intra_op)


@pytest.mark.parametrize(
    ("policy", "torch_inter_op"),
    [(Policy(), 1), (Policy(execution_mode="Parallel", inter_op=3), 3), (Policy(runtimes=("onnxruntime",)), None)],
)
def test_torch_gets_one_inter_op_thread_unless_parallel_execution_is_asked_for(policy, torch_inter_op):
    assert plan(None, Budget(quota_cpus=8.0), policy).torch_inter_op == torch_inter_op


def test_parallel_execution_is_only_used_when_asked_for():
    assert plan(None, Budget(quota_cpus=8), Policy()).execution_mode == "sequential"
    made = plan(None, Budget(quota_cpus=8), Policy(execution_mode="Parallel", inter_op=2))
    assert (made.execution_mode, made.inter_op, made.peak_runnable["onnxruntime"]) == ("parallel", 2, 9)
    # A script's caller works on beside the two threads that run what it forked: three teams of OMP_NUM_THREADS.
    assert (made.omp, made.peak_runnable["torch"], made.peak_runnable["openmp"]) == (8, 24, 8)


def test_a_narrow_cpuset_binds_instead_of_a_wide_quota():
    made = plan(LAPTOP, Budget(quota_cpus=4, cpus=0b11, because="cpu.max 4"), Policy())
    assert (made.intra_op, made.budget_cpus) == (2, 2.0)
    assert made.because["intraOp"] == "cpuset of 2 CPUs, narrower than cpu.max 4"


def test_a_cpuset_of_another_size_is_not_taken_for_exclusive():
    shared = plan(DUAL_STATIC, Budget(quota_cpus=4, whole_cpus=4, cpus=0xFFFE, because="limits.cpu 4"), Policy())
    assert (shared.exclusive_cpus, shared.affinity) == (0, "none")


# --- which CPUs -----------------------------------------------------------------------------------------------------


def exclusive(the_machine, cpus, **policy):
    count = cpuset.count(cpus)
    return plan(the_machine, Budget(quota_cpus=count, whole_cpus=count, cpus=cpus), Policy(**policy))


def test_exclusive_cpus_are_cut_to_the_numa_node_that_holds_most_of_them():
    # 14 CPUs on node 0 and 2 on node 1: 14 of 16 are worth more than all of them across the link.
    made = exclusive(CHIPLETS, cpuset.parse_list("2-15,16-17"))
    assert (made.intra_op, cpuset.format_list(made.cpus)) == (14, "2-15")
    even = exclusive(CHIPLETS, cpuset.parse_list("8-15,16-23"))
    assert even.intra_op == 16


def test_workers_get_the_containers_share_of_a_numa_node():
    cpus = cpuset.parse_list("8-15,16-23")
    groups = affinity_groups(CHIPLETS, cpus, 16, "numa")
    assert [cpuset.format_list(group) for group in groups] == ["8-15"] * 7 + ["16-23"] * 8


def test_per_core_affinity_takes_whole_l3_domains_first_and_leaves_the_first_core_to_the_caller():
    # L3 domains of four CPUs: 0-3, 4-7, 8-11; the set holds one of the first, all of the second, two of the third.
    groups = affinity_groups(CHIPLETS, cpuset.parse_list("3-7,8-9"), 7, "core")
    assert [cpuset.format_list(group) for group in groups] == ["5", "6", "7", "8", "9", "3"]


def test_per_core_affinity_gives_both_siblings_unless_all_threads_are_wanted():
    cpus = cpuset.parse_list("0-1,32-33")
    assert [cpuset.format_list(g) for g in affinity_groups(DUAL, cpus, 2, "core")] == ["1,33"]
    assert [cpuset.format_list(g) for g in affinity_groups(DUAL, cpus, 4, "core")] == ["1", "32", "33"]


@pytest.mark.parametrize(("threads", "affinity"), [(1, "core"), (4, "none"), (5, "core")])
def test_no_affinity_is_guessed(threads, affinity):
    assert affinity_groups(DUAL, cpuset.parse_list("0-1,32-33"), threads, affinity) == ()


# --- properties -----------------------------------------------------------------------------------------------------


def some(kind, **fields):
    """Values of `kind` that vary in these fields and keep the defaults of all others (st.builds would vary them all)."""
    return st.fixed_dictionaries(fields).map(lambda chosen: kind(**chosen))


@st.composite
def machines(draw):
    numa_nodes = draw(st.integers(1, 4))
    made = machine(
        numa_nodes=numa_nodes,
        cores_per_node=draw(st.integers(1, 16)),
        threads=draw(st.sampled_from([1, 2, 4, 8])),
        kubelet=Kubelet(cpu_manager_policy=draw(st.sampled_from(["unknown", "none", "static"]))),
    )
    gone = draw(st.integers(0, made.online >> 1))
    online = made.online & ~gone
    return made._replace(
        online=online,
        offline=made.online & gone,
        cores=tuple(core & online for core in made.cores if core & online),
        numa_nodes=tuple(node._replace(cpus=node.cpus & online) for node in made.numa_nodes),
        isolated=draw(st.integers(0, made.online)) & online if draw(st.booleans()) else 0,
    )


policies = some(
    Policy,
    objective=st.sampled_from(["Latency", "Throughput"]),
    budget_source=st.sampled_from(["Auto", "Limit", "Request", "Node"]),
    sessions=st.integers(1, 4),
    concurrent_runs=st.integers(1, 4),
    execution_mode=st.sampled_from(["Auto", "Parallel"]),
    numa=st.sampled_from(["Auto", "SingleNUMANode", "Any"]),
    smt=st.sampled_from(["Auto", "OneThreadPerCore", "AllThreads"]),
    core_type=st.sampled_from(["Auto", "Performance", "Efficient", "Any"]),
    affinity=st.sampled_from(["Auto", "PerCore", "Never"]),
)
cpus_wanted = st.one_of(st.none(), st.floats(0.01, 300), st.integers(1, 300).map(float))
budgets = some(
    Budget,
    quota_cpus=cpus_wanted,
    request_cpus=cpus_wanted,
    whole_cpus=st.just(0),
    workers=st.integers(1, 8),
    gpu=st.booleans(),
    shim=st.booleans(),
    smallest_cores=st.one_of(st.none(), st.integers(1, 64)),
)


@given(st.one_of(st.none(), machines()), budgets, policies)
def test_streams_together_never_exceed_what_fits(the_machine, budget, policy):
    made = plan(the_machine, budget, policy)
    if made.intra_op is not None:
        assert made.intra_op >= 1
        assert made.intra_op * made.streams <= max(made.streams, made.cap)
    assert made == plan(the_machine, budget, policy)
    counts = {"intraOp", "intraOpWithoutShim", "interOp", "omp", "blas"}
    assert set(made.because) <= counts | {"spinning", "affinity", "streams", "layout"}


@given(machines(), budgets, policies)
def test_threads_never_exceed_the_nodes_cpus(the_machine, budget, policy):
    made = plan(the_machine, budget, policy)
    if made.intra_op is not None:
        room = cpuset.count(the_machine.online)
        if policy.smt != "AllThreads":
            room = cores_within(the_machine, the_machine.online)
        assert made.intra_op <= max(1, room) or made.because["intraOp"].startswith("requests.cpu")


@given(st.one_of(st.none(), machines()), st.floats(0.01, 300), st.floats(0.01, 300), policies)
def test_a_wider_limit_never_gives_fewer_threads(the_machine, one, other, policy):
    low, high = sorted((one, other))
    threads = [plan(the_machine, Budget(quota_cpus=quota), policy).intra_op for quota in (low, high)]
    if None not in threads:
        assert threads[0] <= threads[1]


@given(machines(), st.data(), st.sampled_from(["Auto", "OneThreadPerCore"]), st.sampled_from(["Auto", "PerCore"]))
def test_the_plans_cpus_lie_within_the_exclusive_set(the_machine, data, smt, affinity):
    the_machine = the_machine._replace(kubelet=STATIC)
    cpus = cpuset.of(data.draw(st.sets(st.sampled_from(cpuset.ids(the_machine.online)), min_size=1)))
    made = exclusive(the_machine, cpus, smt=smt, affinity=affinity)
    assert made.exclusive_cpus == cpuset.count(cpus)
    assert made.cpus & ~cpus == 0
    assert made.intra_op <= cores_within(the_machine, cpus)
    groups = affinity_groups(the_machine, made.cpus, made.intra_op, made.affinity)
    assert len(groups) in {0, made.intra_op - 1}
    assert all(group and group & ~cpus == 0 for group in groups)
    if affinity == "PerCore" and groups:
        # No sibling is used twice while a whole core is free: each worker has a core of its own.
        used = [next(core for core in the_machine.cores if core & group) for group in groups]
        assert len(set(used)) == len(used)


@given(
    some(
        Budget,
        quota_cpus=st.one_of(st.none(), st.floats(allow_nan=True, allow_infinity=True)),
        request_cpus=st.one_of(st.none(), st.floats(allow_nan=True, allow_infinity=True)),
        workers=st.integers(-5, 10**9),
        cpus=st.one_of(st.none(), st.integers(0, 2**70)),
        whole_cpus=st.integers(-1, 10**6),
    ),
    st.one_of(st.none(), machines()),
    policies,
)
def test_absurd_numbers_are_bounded_never_raised(budget, the_machine, policy):
    made = plan(the_machine, budget, policy)
    assert made.intra_op is None or made.intra_op >= 1

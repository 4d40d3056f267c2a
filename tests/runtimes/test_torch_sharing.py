"""Real PyTorch with several callers, and beside ONNX Runtime: what is runnable at once stays within the plan."""

import pytest
from support.runtimes import shim_lab, torch_lab

pytestmark = pytest.mark.runtime

CPUS = shim_lab.two_cpus()

CALLERS = (1, 4, 8)
ROUNDS = 20


@pytest.mark.parametrize(
    ("kind", "limit_cpus", "threads"),
    [
        ("eager", 2.0, {}),
        ("eager", 1.0, {}),
        # Scripts that fork get the inter-op pool that they are written for.
        ("script", 2.0, {"executionMode": "Parallel", "interOp": 2}),
    ],
)
def test_callers_at_once_run_on_no_more_threads_than_the_plan_reckons_with(
    mounted, models, forked, kind, limit_cpus, threads
):
    plans = [torch_lab.planned(limit_cpus, threads=threads, budget={"concurrentRuns": callers}) for callers in CALLERS]
    # The counts don't change with the callers of one process; only what they come to does.
    counts = {(plan.omp, plan.torch_inter_op) for plan, _ in plans}
    assert len(counts) == 1
    variables = {**shim_lab.python_path(mounted), **plans[0][1]}
    steps = [["callers", callers, kind, ROUNDS] for callers in CALLERS]
    (_, *worked), _ = forked(torch_lab.installed(), ["imported"], *steps, env=variables, cpus=CPUS)
    for (plan, _), callers, count in zip(plans, CALLERS, worked, strict=True):
        assert callers <= count <= plan.peak_runnable["torch"], (callers, count)


def test_torch_beside_onnxruntime_costs_what_both_cost_alone_and_is_not_throttled(mounted, models):
    python = torch_lab.with_onnxruntime()
    shim_lab.write_model(models / "chain.onnx")
    requests = [["requests", 200, kinds, 0.001] for kinds in (["onnxruntime"], ["torch"], ["onnxruntime", "torch"])]

    def one_cpu(env, *steps):
        with shim_lab.cgroup("cpu", cfs_period_us="100000", cfs_quota_us="100000") as join:
            return torch_lab.probe(models, *steps, env=env, python=python, before=join, cpus=CPUS)[0]

    _, variables = torch_lab.planned(1.0)
    ort, torch, both = one_cpu({**shim_lab.python_path(mounted), **variables}, *requests)
    # Without a plan each library counts the machine's CPUs (Debian's torch misreads some, so it is told).
    (unplanned,) = one_cpu({"OMP_NUM_THREADS": str(len(CPUS))}, requests[-1])
    assert both["pools"] == 0
    assert both["throttled"] <= 1
    assert both["cpu_s"] < 1.6 * (ort["cpu_s"] + torch["cpu_s"])
    assert unplanned["pools"] >= 2
    assert unplanned["cpu_s"] > 1.3 * both["cpu_s"]

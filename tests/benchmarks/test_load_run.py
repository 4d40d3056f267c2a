"""One real run of the real server: that it serves, that its environment is exact, that a neighbour is there."""

import os
import re
import subprocess
import sys
from dataclasses import replace

import pytest

from load import chart, compare, measure, models, neighbour, serving, variants
from load.measure import Cell, Variant
from raddle import env
from raddle.planning.policy import Policy
from raddle_operator.local import quota

pytestmark = pytest.mark.runtime
UNAVAILABLE = quota.available()
SHORT = Cell(model=models.SMALL.name, limit_cpus=None, requests_per_s=50.0, duration_s=0.2)


def test_a_run_without_a_quota_has_latencies_and_no_periods():
    seen = measure.run(SHORT, Variant(name="one", env={env.ORT_INTRA: "1"}))
    assert len(seen.latencies_ms) == 10
    assert 0 < seen.p50_ms <= seen.p99_ms
    assert seen.cpu_s >= 0
    assert (seen.pool_threads, seen.raddle, seen.neighbour_cpu_s) == (1, False, 0.0)
    assert seen.throttled_percent is None


def test_containers_are_asked_at_the_same_time_each_by_its_callers():
    cell = replace(SHORT, callers=3, containers=2, arrivals=measure.BURSTS)
    seen = measure.run(cell, Variant(name="one", threads=1))
    assert len(seen.latencies_ms) == 2 * 10
    assert seen.cpu_s > 0


@pytest.mark.skipif(UNAVAILABLE is not None, reason=str(UNAVAILABLE))
def test_exclusive_cpus_are_all_that_a_server_sees():
    cell = replace(SHORT, runtime="openmp", limit_cpus=1.0)
    everywhere, alone = (
        measure.run(replace(cell, exclusive=exclusive), Variant(name="stock")).pool_threads
        for exclusive in (False, True)
    )
    assert (everywhere, alone) == (len(os.sched_getaffinity(0)), 1)


def test_raddle_knows_that_cpus_are_exclusive(tmp_path):
    shared = Cell(model=models.SMALL.name, limit_cpus=1.0, requests_per_s=20.0, duration_s=0.2)
    plans = [
        variants.raddle_env(cell, tmp_path, Policy())[env.PLAN] for cell in (shared, replace(shared, exclusive=True))
    ]
    assert [re.search(r"exclusive_cpus=(\d+)", plan)[1] for plan in plans] == ["0", "1"]


def test_raddles_environment_loads_the_shim_and_stocks_does_not(tmp_path):
    cell = Cell(model=models.SMALL.name, runtime="blas", limit_cpus=None, requests_per_s=20.0, duration_s=0.2)
    limited = Cell(model=models.SMALL.name, limit_cpus=0.5, requests_per_s=None)
    ours = Variant(name="Raddle", env=variants.raddle_env(limited, variants.deliver(tmp_path), Policy()))
    with_raddle, stock = measure.run(cell, ours), measure.run(cell, Variant(name="stock"))
    assert (with_raddle.raddle, with_raddle.pool_threads) == (True, 1)
    assert not stock.raddle


@pytest.mark.skipif(UNAVAILABLE is not None, reason=str(UNAVAILABLE))
def test_a_comparison_under_a_quota_counts_periods_and_draws_a_chart(tmp_path):
    rows = compare.compare(
        {"stock": {}, "one thread": {env.ORT_INTRA: "1"}}, limit=1.0, rate=50, duration_s=0.3, repetitions=1
    )
    assert [row.variant for row in rows] == ["stock", "one thread"]
    assert all((row.runs[0].periods or 0) > 0 for row in rows)
    compare.print_table(rows)
    assert chart.draw(rows, tmp_path / "load.svg").read_text().count("stock") == 1
    assert chart.draw(rows, tmp_path / "load.png").read_bytes().startswith(b"\x89PNG")


def test_a_server_that_cannot_start_says_why():
    with pytest.raises(measure.ServerError, match="ORT_INTRA_OP_NUM_THREADS"):
        measure.run(SHORT, Variant(name="bad", env={env.ORT_INTRA: "-1"}))


def test_the_server_runs_outside_a_virtual_environment():
    prefixes = "import sys; print(sys.prefix == sys.base_prefix)"
    assert subprocess.check_output([serving.interpreter(), "-c", prefixes], text=True).strip() == "True"
    assert serving.interpreter() != sys.executable or sys.prefix == sys.base_prefix


@pytest.mark.parametrize("runtime", ["onnxruntime", "onnxruntime-c", "onnxruntime-node", "openmp"])
def test_a_fixed_count_is_the_pools_in_every_runtime(runtime):
    cell = Cell(model=models.SMALL.name, runtime=runtime, limit_cpus=None, requests_per_s=20.0, duration_s=0.1)
    one, three = (measure.run(cell, variants.fixed(runtime, count)) for count in ("1", "3"))
    assert three.pool_threads - one.pool_threads == 2


@pytest.mark.skipif(UNAVAILABLE is not None, reason=str(UNAVAILABLE))
def test_a_run_beside_a_neighbour_knows_what_the_neighbour_took():
    seen = measure.run(replace(SHORT, neighbour=True), Variant(name="s"))
    assert len(seen.latencies_ms) == 10
    assert seen.neighbour_cpu_s > 0


@pytest.mark.skipif(UNAVAILABLE is not None, reason=str(UNAVAILABLE))
def test_the_neighbour_weighs_as_a_pod_that_requests_one_cpu_and_a_group_as_what_it_requests():
    with neighbour.busy() as beside, quota.limited(0.5, requested_cpus=0.5) as group, quota.limited(0.5) as most:
        weight, half, heaviest = (
            int((one.paths[0] / ("cpu.weight" if one.version == 2 else "cpu.shares")).read_text())
            for one in (beside, group, most)
        )
    assert weight == 2 * half == (100 if beside.version == 2 else 1024)
    assert heaviest > 10 * weight

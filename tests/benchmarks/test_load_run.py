"""One real run of the real server: that it serves, that its environment is exact, that faked hosts are believed."""

import subprocess
import sys

import pytest

from load import cgroup, chart, compare, host, measure, models, serving, variants
from load.measure import Cell, Variant
from raddle import env

pytestmark = pytest.mark.runtime
UNAVAILABLE = cgroup.available()
SHORT = Cell(model=models.SMALL.name, limit_cpus=None, rate=50.0, duration_s=0.2)


def test_a_run_without_a_quota_has_latencies_and_no_periods():
    seen = measure.run(SHORT, Variant(name="one", env={env.ORT_INTRA: "1"}))
    assert seen.due == 10
    assert 0 < seen.p50_ms <= seen.p99_ms
    assert seen.cpu_s >= 0
    assert (seen.pool_threads, seen.raddle) == (1, False)
    assert seen.throttled_percent is None


def test_raddles_environment_loads_the_shim_and_stocks_does_not(tmp_path):
    cell = Cell(model=models.MIX.name, limit_cpus=None, rate=20.0, callers=2, duration_s=0.2)
    limited = Cell(model=models.MIX.name, limit_cpus=0.5, rate=None)
    ours = Variant(name="Raddle", env=variants.raddle_env(limited, variants.deliver(tmp_path)))
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


def test_a_faked_host_gets_the_pool_of_its_cores(tmp_path):
    if reason := host.available(tmp_path):
        pytest.skip(reason)
    seen = measure.run(
        Cell(model=SHORT.model, limit_cpus=None, rate=50.0, duration_s=0.2, host_cores=16), Variant(name="s")
    )
    assert seen.pool_threads == 16


def test_a_faked_cpuinfo_tells_its_cores_apart():
    block = "processor\t: 0\nmodel name\t: X\nphysical id\t: 0\nsiblings\t: 2\ncore id\t\t: 0\ncpu cores\t: 2\napicid\t\t: 0\ninitial apicid\t: 0\n"
    blocks = host.cpuinfo(block, 16).strip().split("\n\n")
    assert len(blocks) == 16
    assert "core id\t\t: 15\n" in blocks[15]
    assert all("cpu cores\t: 16" in text and "model name\t: X" in text for text in blocks)


def test_a_cpuinfo_of_another_architecture_is_refused_by_name():
    with pytest.raises(host.NotFakedError, match="apicid"):
        host.cpuinfo("processor\t: 0\nBogoMIPS\t: 50\n", 16)


def test_the_server_runs_outside_a_virtual_environment():
    prefixes = "import sys; print(sys.prefix == sys.base_prefix)"
    assert subprocess.check_output([serving.interpreter(), "-c", prefixes], text=True).strip() == "True"
    assert serving.interpreter() != sys.executable or sys.prefix == sys.base_prefix

"""Comparing variants: order, series, what chance does, what counts as worse. Runs are made up, not measured."""

import json
import re
from dataclasses import replace

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from load import compare, models, serving, table, variants, verdict
from load.__main__ import main as load_main
from load.measure import BURSTS, Cell, Run, Variant, percentile
from load.store import Store
from raddle import env
from raddle.machine import sysfs
from raddle_tuner.search.space import thread_counts

CELL = Cell(model="cnn-1ms", limit_cpus=0.5, requests_per_s=100.0, share_percent=50)
CALM = Run(
    latencies_ms=(1.4,) * 98 + (2.0,) * 2,
    missed=0,
    cpu_s=0.12,
    cpu_percent=24.0,
    periods=30,
    throttled_periods=0,
    throttled_s=0.0,
    steal_percent=0.0,
    others_percent=1.0,
    neighbour_cpu_s=0.0,
    pool_threads=1,
    affinity_errors=0,
    raddle=True,
    version="1.31.1",
)
REPETITIONS = 8


def seen(p50_ms=1.4, p99_ms=2.0, cpu_s=0.12):
    return replace(CALM, latencies_ms=(p50_ms,) * 98 + (p99_ms,) * 2, cpu_s=cpu_s)


def row(variant, *runs):
    """One run in all repetitions, or those given in turn."""
    return compare.Row(cell=CELL, variant=variant, runs=tuple(runs[i % len(runs)] for i in range(REPETITIONS)))


def cell_rows(*fixed, stock=CALM, raddle=CALM, with_load=CALM):
    return [
        row(variants.STOCK, stock),
        row(variants.RADDLE, raddle),
        row(variants.WITH_LOAD, with_load),
        *(fixed or (row("1 thread", CALM),)),
    ]


def test_every_variant_runs_once_per_repetition_and_the_order_is_drawn_for_each():
    order = [[] for _ in range(12)]

    def measured(_cell, variant, repetition):
        order[repetition].append(variant.name)
        return CALM

    compared = [Variant(name=name, env={"X": name}) for name in "abc"]
    rows = compare.rows(CELL, compared, repetitions=12, measured=measured)
    assert all(sorted(names) == ["a", "b", "c"] for names in order)
    assert len({tuple(names) for names in order}) > 1
    assert [row.variant for row in rows] == ["a", "b", "c"]
    again = list(map(list, order))
    order[:] = [[] for _ in range(12)]
    compare.rows(CELL, compared, repetitions=12, measured=measured)
    assert order == again


def test_two_names_for_the_same_are_measured_once():
    measured = []

    def measure(_cell, variant, _repetition):
        measured.append(variant.name)
        return CALM

    same = [Variant(name="a", env={"X": "1"}), Variant(name="b", env={"X": "1"}), Variant(name="c", threads=1)]
    rows = compare.rows(CELL, same, repetitions=1, measured=measure)
    assert sorted(measured) == ["a", "c"]
    assert [row.variant for row in rows] == ["a", "b", "c"]
    assert rows[0].runs == rows[1].runs


@pytest.mark.parametrize(
    ("values", "percent", "expected"),
    [([5.0], 50, 5.0), ([5.0], 99, 5.0), ([1.0, 2.0], 50, 1.0), (list(map(float, range(1, 101))), 99, 99.0)],
)
def test_a_percentile_is_a_value_that_was_seen(values, percent, expected):
    assert percentile(values, percent) == expected


def test_a_figure_of_a_series_is_the_median_of_its_runs_which_one_held_up_run_does_not_change():
    runs = [seen(p99_ms=2.0), seen(p99_ms=206.0), seen(p99_ms=2.4)]
    assert verdict.typical(runs, "p99_ms") == 2.4
    assert verdict.typical([replace(CALM, missed=50)], "cpu_ms_per_request") == pytest.approx(2.4)


@given(st.lists(st.floats(0.1, 1e4), min_size=2, max_size=12))
def test_nobody_is_worse_than_itself(values):
    one = compare.Row(cell=CELL, variant="a", runs=tuple(seen(p50_ms=value, p99_ms=value) for value in values))
    compared = verdict.compared(one, (one, one), "p50_ms")
    assert compared.ratio == pytest.approx(1)
    assert not compared.worse


def test_each_of_a_pair_brings_its_own_chance_and_no_other_variant_does():
    # Stock's series lie far apart, and hide nothing.
    chaos = row(variants.STOCK, seen(p99_ms=20), seen(p99_ms=200))
    quiet = row("1 thread", seen(p99_ms=2.0), seen(p99_ms=2.1))
    ours = row(variants.RADDLE, seen(p99_ms=3.0), seen(p99_ms=3.1))
    rows = [chaos, ours, replace(ours, variant=variants.WITH_LOAD), quiet]
    lost = verdict.losses(rows)
    # `load` changes nothing here.
    assert [(one.row.variant, one.figure, one.other) for one in lost] == [(variants.RADDLE, "p99_ms", "1 thread")]
    assert lost[0].ratio == pytest.approx((3.0 * 3.1 / (2.0 * 2.1)) ** 0.5)


def test_a_difference_that_the_two_series_of_either_explain_is_none():
    noisy = row(variants.RADDLE, seen(p99_ms=2.0), seen(p99_ms=3.2))
    assert not verdict.compared(noisy, (row("a", CALM),) * 2, "p99_ms").worse
    assert verdict.compared(row("b", seen(p99_ms=2.53)), (row("a", CALM),) * 2, "p99_ms").worse


def test_best_is_the_lowest_p99_and_the_lowest_p50_among_equals():
    slow, tied, fast = (
        row("slow", seen(p50_ms=1.0, p99_ms=9.0)),
        row("tied", seen(p50_ms=3.0, p99_ms=2.0)),
        row("fast", seen(p50_ms=1.5, p99_ms=2.05)),
    )
    assert [one.variant for one in verdict.best(cell_rows(slow, tied, fast))] == ["fast", "fast"]


def test_the_best_setting_is_chosen_in_the_other_series():
    # By luck each is lowest in one series; neither may be compared there.
    even, odd = row("even", seen(p99_ms=1.5), CALM), row("odd", CALM, seen(p99_ms=1.5))
    rows = cell_rows(even, odd)
    assert [one.variant for one in verdict.best(rows)] == ["odd", "even"]
    p99 = next(one for one in verdict.against_best(rows, variants.RADDLE) if one.figure == "p99_ms")
    assert p99.theirs == pytest.approx(2.0)
    assert p99.other == "odd / even"


def test_stock_and_raddle_are_no_fixed_settings():
    rows = cell_rows(row("1 thread", seen(p99_ms=9.0)))
    assert verdict.best(rows)[0].variant == "1 thread"


def test_the_rule_s_false_alarms_are_counted_on_the_best_setting_itself():
    drifting = row("1 thread", seen(p99_ms=2.0), seen(p99_ms=4.0))
    assert verdict.false_alarms(cell_rows(drifting)) == 1
    assert verdict.false_alarms(cell_rows(row("1 thread", CALM))) == 0
    few = [replace(one, runs=one.runs[:2]) for one in cell_rows()]
    assert verdict.false_alarms(few) is None


def goal(part):
    return next(one for one in verdict.GOALS if part in one.words)


def test_never_worse_than_stock_is_missed_beyond_chance_only():
    never = goal("by default never")
    assert never.missed(cell_rows(raddle=replace(CALM, cpu_s=0.13)))
    noisy = cell_rows()
    noisy[0] = row(variants.STOCK, CALM, replace(CALM, cpu_s=0.11))
    assert never.missed(noisy) == []


def test_a_goal_that_noise_alone_keeps_is_said_to_be_untold():
    never = goal("by default never")
    noisy = cell_rows(raddle=replace(CALM, cpu_s=0.13))
    noisy[0] = row(variants.STOCK, CALM, replace(CALM, cpu_s=0.17))
    noisy[1] = row(variants.RADDLE, replace(CALM, cpu_s=0.13), replace(CALM, cpu_s=0.19))
    assert never.missed(noisy) == []
    assert [one.figure for one in never.untold(noisy)] == ["cpu_ms_per_request"]
    assert never.untold(cell_rows()) == []
    text = page_of(measured(noisy))
    assert "| 100 % | 0 | 0 | 1 | chance forbids to say |" in text


def test_runs_that_stayed_disturbed_are_counted():
    loud = replace(CALM, others_percent=50.0)
    text = page_of(measured(cell_rows(raddle=loud)))
    assert re.search(r"that count [1-9][0-9]* were disturbed all the same", text)


def test_a_ratio_above_what_a_goal_allows_is_missed_and_one_that_chance_explains_is_not_told():
    within = goal("within 10 %")
    near = cell_rows(with_load=seen(p99_ms=2.18, p50_ms=1.6))
    assert (within.missed(near), within.untold(near)) == ([], [])
    missed = within.missed(cell_rows(with_load=seen(p99_ms=2.3, p50_ms=1.7)))
    assert [one.figure for one in missed] == ["p50_ms", "p99_ms"]
    noisy = cell_rows()
    noisy[2] = row(variants.WITH_LOAD, seen(p99_ms=2.0), seen(p99_ms=2.8))
    assert within.missed(noisy) == []
    assert [one.figure for one in within.untold(noisy)] == ["p99_ms"]
    assert goal("25 %").missed(cell_rows(raddle=seen(p99_ms=2.6)))


def page_of(found):
    return table.markdown(found, table.QUICK, command="", results="")


def measured(*cells):
    return table.Measured(cells=list(cells), service_s={("onnxruntime", "cnn-1ms"): 0.001}, missing={}, of=20)


def test_the_text_begins_with_the_goals_and_has_a_line_a_cell():
    text = page_of(measured(cell_rows(with_load=seen(p50_ms=3.0, p99_ms=3.0))))
    parts = ("| goal |", "missed in onnxruntime", "Worse than chance: 1 of 1", "Each cell")
    assert sorted(parts, key=text.index) == list(parts)
    assert "| 95 % | 0 | 1 | 0 | missed |" in text
    (line,) = (line for line in text.splitlines() if line.startswith("| onnxruntime cnn-1ms, limit 0.5, 50 %; 1 ms |"))
    assert "| 100 | 1 thread: 1.4 / 2 / 1.2 |" in line
    assert "**2.14** / **1.50** / 1.00" in line
    assert "1 of 20 cells" in text


def test_the_text_says_what_is_in_our_favour():
    text = page_of(measured(cell_rows()))
    assert "kept, too, by a ratio above 1 that chance explains, unless chance explains more than 1.25" in text
    assert "constants of its model were fitted to cells of this table" in text


def test_a_p99_of_few_requests_is_called_the_highest_of_them():
    few = replace(CALM, latencies_ms=CALM.latencies_ms[-5:])
    text = page_of(measured([replace(one, runs=(few,) * 4) for one in cell_rows()]))
    assert "| 5, p99 is the highest |" in text


def test_the_document_has_both_series_of_every_competitor():
    (found,) = json.loads(json.dumps(table.document(measured(cell_rows(row("1 thread", CALM, seen(p50_ms=1.5)))))))
    assert found["competitors"]["1 thread"]["p50_ms"] == [1.4, 1.5]
    assert set(found["competitors"]) == {variants.STOCK, variants.RADDLE, variants.WITH_LOAD, "1 thread"}


def test_without_a_quota_there_are_no_periods_to_show():
    bare = replace(CALM, periods=None, throttled_periods=None, throttled_s=None)
    assert row("a", bare).text("throttled_percent") == "–"


def test_a_stored_run_is_not_measured_again_and_a_torn_line_is(tmp_path):
    path = tmp_path / "results.jsonl"
    store = Store(path)
    assert store.service_time_s("m", "torch", lambda: 0.5) == 0.5
    assert Store(path).service_time_s("m", "torch", lambda: 9.9) == 0.5
    path.write_text(path.read_text()[:-10] + "\n")
    assert Store(path).service_time_s("m", "torch", lambda: 0.7) == 0.7
    assert json.loads(path.read_text().splitlines()[-1])["value"] == {"seconds": 0.7}


@pytest.mark.parametrize(("whole", "cells"), [(table.FULL, 432), (table.QUICK, 20)])
def test_a_table_has_cells_of_all_runtimes_limits_and_utilisations(whole, cells):
    shapes = table.shapes(whole)
    assert len(set(shapes)) == len(shapes) == cells
    assert {cell.runtime for cell in shapes} == set(serving.RUNTIMES)
    assert {cell.limit_cpus for cell in shapes} == {0.5, 1.0, 1.5, 2.0}
    assert {cell.share_percent for cell in shapes} == {10, 50, 85}
    assert {cell.model for cell in shapes} >= {model.name for model in (models.SMALL, models.MEDIUM, models.LARGE)}


def test_a_run_is_as_long_as_its_requests_need_within_bounds():
    assert table.QUICK.duration_s(1000.0) == 1.0
    assert table.QUICK.duration_s(1.5) == 3.5
    assert table.QUICK.duration_s(33.0) == 2.0
    assert table.rate_of(50, 0.5, 0.002) == 125.0


@pytest.mark.parametrize(
    ("runtime", "settings"),
    [
        ("onnxruntime", ["1", "2:never", "2:50", "2:200", "2:always"]),
        ("torch", ["1", "2", "2:PASSIVE"]),
        ("blas", [f"{one}+{blas}" for one in ("1", "2:never", "2:50", "2:200", "2:always") for blas in (1, 2)]),
    ],
)
def test_the_fixed_settings_are_all_that_a_user_could_write(runtime, settings):
    assert variants.all_settings(runtime, (1, 2)) == settings
    names = [variants.fixed(runtime, setting).name for setting in variants.all_settings(runtime, (1, 2, 4, 8))]
    assert len(set(names)) == len(names)
    assert all(variants.fixed(runtime, setting) for setting in variants.all_settings(runtime, (1,)))


@pytest.mark.parametrize(
    ("runtime", "setting", "wanted"),
    [
        ("onnxruntime", "2:200", Variant(name="2 threads, 200 us", threads=2, spin="200")),
        ("onnxruntime-c", "1", Variant(name="1 thread", threads=1)),
        ("openmp", "2:PASSIVE", Variant(name="2 threads, PASSIVE", env={env.OMP: "2", "OMP_WAIT_POLICY": "PASSIVE"})),
        ("torch", "2", Variant(name="2 threads", env={env.OMP: "2"})),
        (
            "blas",
            "2:never+1",
            Variant(name="2 threads, never, BLAS 1", env={env.OPENBLAS: "1"}, threads=2, spin="never"),
        ),
    ],
)
def test_a_setting_is_what_it_says(runtime, setting, wanted):
    assert variants.fixed(runtime, setting) == wanted


@pytest.mark.parametrize(
    ("runtime", "setting"),
    [("onnxruntime", "two"), ("onnxruntime", "2:PASSIVE"), ("torch", "2:never"), ("torch", "2+1"), ("blas", "2+x")],
)
def test_a_setting_that_a_runtime_has_not_is_refused_with_those_that_it_has(runtime, setting):
    with pytest.raises(ValueError, match=r"such are 1"):
        variants.fixed(runtime, setting)


def test_the_settings_that_are_compared_go_beyond_the_limit_and_the_cores():
    """On 16 cores twice the limit was best in four cells of seven, and a table that ended at four could not show it."""
    cores = len(sysfs.read_machine().cores)
    counts = {int(setting.partition(":")[0]) for setting in variants.settings_here(CELL)}
    assert counts == set(thread_counts(1, cores))
    assert max(counts) > cores


def test_raddle_with_load_knows_callers_too():
    _, known = variants.policies(replace(CELL, callers=4), 0.0014)
    assert (known.run_time_us, known.request_rate, known.concurrent_runs) == (1400, 100.0, 4)


def test_a_title_names_what_is_unusual():
    assert CELL.title == "cnn-1ms, limit 0.5, 100/s (50 %), 1 caller"
    unusual = replace(CELL, callers=4, arrivals=BURSTS, containers=2, neighbour=True, limit_cpus=None, runtime="torch")
    assert unusual.title == "2 × torch, cnn-1ms, no limit, 100/s (50 %), 4 callers, bursts, a busy neighbour"


def test_raddle_with_load_knows_run_time_and_rate(tmp_path):
    found = {variant.name: variant for variant in variants.competitors(CELL, 0.0014, tmp_path, ["1"])}
    assert list(found) == [variants.STOCK, variants.RADDLE, variants.WITH_LOAD, "1 thread"]
    assert found[variants.STOCK] == Variant(name=variants.STOCK)
    assert found[variants.RADDLE].env["LD_PRELOAD"] == f"{tmp_path}/libraddle.so"
    assert env.PLAN in found[variants.RADDLE].env
    assert env.PLAN in found[variants.WITH_LOAD].env


@pytest.mark.parametrize(
    "option", ["--utilisation=0", "--repetitions=0", "--duration=0", "--rate=-1", "--limit=-1", "--callers=0"]
)
def test_conditions_that_no_run_can_have_are_refused_before_anything_is_measured(option):
    result = CliRunner().invoke(load_main, ["cell", option])
    assert result.exit_code == 2
    assert option.partition("=")[0] in result.output

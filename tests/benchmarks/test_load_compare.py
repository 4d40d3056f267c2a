"""Comparing variants: order, medians, what chance does, and what counts as a loss. Runs are made up, not measured."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from load import compare, table, variants, verdict
from load.measure import Cell, Run, Variant, percentile
from load.store import Store

CELL = Cell(model="cnn-1ms", limit_cpus=0.5, rate=100.0)
CALM = Run(
    p50_ms=1.4,
    p99_ms=2.0,
    mean_ms=1.5,
    due=300,
    missed=0,
    served_per_s=100.0,
    cpu_s=0.36,
    cpu_percent=24.0,
    cpu_ms_per_request=1.2,
    periods=30,
    throttled_periods=0,
    throttled_s=0.0,
    steal_percent=0.0,
    others_percent=1.0,
    pool_threads=1,
    affinity_errors=0,
    raddle=True,
    version="1.31.1",
)
SICK = replace(CALM, p50_ms=15.6, p99_ms=54.8, cpu_percent=100.0, throttled_periods=30, pool_threads=2, raddle=False)


def cell_rows(cell=CELL, **runs):
    """Rows of one cell: stock twice, both fixes and Raddle; those not named are like stock, SICK."""
    names = {
        "stock": variants.STOCK,
        "count": variants.COUNT,
        "no_spin": variants.NO_SPIN,
        "raddle": variants.RADDLE,
        "twin": variants.STOCK + compare.TWIN,
    }
    return [compare.Row(cell=cell, variant=name, runs=tuple(runs.get(key, [SICK] * 3))) for key, name in names.items()]


def test_every_variant_runs_once_per_repetition_and_the_order_turns():
    order = []

    def measured(_cell, variant, repetition):
        order.append((repetition, variant.name))
        return CALM

    compared = [Variant(name="a"), Variant(name="b")]
    rows = compare.rows(CELL, compared, repetitions=3, twice=["a"], measured=measured)
    twin = "a" + compare.TWIN
    assert order == [
        *((0, name) for name in ("a", "b", twin)),
        *((1, name) for name in ("b", twin, "a")),
        *((2, name) for name in (twin, "a", "b")),
    ]
    assert [row.variant for row in rows] == ["a", "b", twin]
    assert {len(row.runs) for row in rows} == {3}


def test_the_twin_differs_from_the_first_variant_in_name_only():
    seen = {}

    def measured(_cell, variant, _repetition):
        seen[variant.name] = variant
        return CALM

    variant = Variant(name="a", env={"X": "1"}, spinning_off=True)
    compare.rows(CELL, [variant], repetitions=1, twice=["a"], measured=measured)
    assert replace(seen["a" + compare.TWIN], name="a") == seen["a"]


@pytest.mark.parametrize(
    ("values", "percent", "expected"),
    [([5.0], 50, 5.0), ([5.0], 99, 5.0), ([1.0, 2.0], 50, 1.0), (list(map(float, range(1, 101))), 99, 99.0)],
)
def test_a_percentile_is_a_value_that_was_seen(values, percent, expected):
    assert percentile(values, percent) == expected


@given(st.lists(st.floats(0, 1e4), min_size=1, max_size=12))
def test_two_equal_series_differ_by_nothing_beyond_chance(values):
    assert compare.chance(values, values) == 0


@given(st.lists(st.tuples(st.floats(0, 1e4), st.floats(0, 1e4)), min_size=1, max_size=8))
def test_chance_is_the_same_whichever_series_comes_first(pairs):
    one, other = zip(*pairs, strict=True)
    assert compare.chance(one, other) == pytest.approx(compare.chance(other, one))


@given(st.lists(st.floats(0, 1e4), min_size=1, max_size=8), st.floats(1, 1e3))
def test_chance_never_exceeds_the_largest_difference_that_was_seen(values, shift):
    shifted = [value + shift for value in values]
    assert compare.chance(values, shifted) <= max(values) - min(values) + shift + 1e-6


def test_where_raddle_is_calm_and_all_else_is_throttled_it_loses_nothing_and_keeps_the_budget():
    rows = cell_rows(raddle=[CALM] * 3)
    assert verdict.losses(rows) == []
    cure = verdict.cure(rows)
    assert cure is not None
    assert cure.kept
    assert cure.p99 == pytest.approx(27.4)


def test_a_fix_that_beats_raddle_beyond_chance_is_a_loss_that_names_it():
    rows = cell_rows(raddle=[CALM] * 3, no_spin=[replace(CALM, p50_ms=0.95)] * 3)
    (loss,) = verdict.losses(rows)
    assert (loss.other.variant, loss.figure) == (variants.NO_SPIN, "p50_ms")


def test_a_difference_within_the_aa_spread_is_no_loss():
    noisy = [replace(SICK, p50_ms=value) for value in (10.0, 20.0, 30.0)]
    twin = [replace(SICK, p50_ms=value) for value in (18.0, 14.0, 24.0)]
    rows = cell_rows(stock=noisy, twin=twin, raddle=[replace(SICK, p50_ms=20.5)] * 3, count=noisy, no_spin=noisy)
    assert verdict.aa_spread(rows, "p50_ms") > 0.5
    assert [loss for loss in verdict.losses(rows) if loss.figure == "p50_ms"] == []


def test_raddles_own_spread_counts_where_stock_sits_still_at_its_limit():
    ours = [replace(CALM, cpu_percent=value) for value in (23.0, 24.0, 25.0)]
    again = [replace(CALM, cpu_percent=value) for value in (25.0, 26.0, 24.0)]
    fix = [replace(CALM, cpu_percent=23.9)] * 3
    rows = cell_rows(raddle=ours, count=fix, no_spin=fix)
    assert {loss.figure for loss in verdict.losses(rows)} == {"cpu_percent"}
    rows.append(compare.Row(cell=CELL, variant=variants.RADDLE + compare.TWIN, runs=tuple(again)))
    assert verdict.losses(rows) == []


def test_in_a_closed_loop_serving_fewer_requests_is_a_loss_and_using_the_quota_is_not():
    closed = replace(CELL, rate=None)
    slow = [replace(SICK, served_per_s=50.0)] * 3
    rows = cell_rows(cell=closed, raddle=slow)
    assert {loss.figure for loss in verdict.losses(rows)} == {"served_per_s"}
    assert verdict.cure(rows) is None


def test_stock_that_is_seldom_throttled_sets_no_budget():
    assert verdict.cure(cell_rows(stock=[CALM] * 3, twin=[CALM] * 3)) is None


def test_without_a_quota_there_are_no_periods_to_compare():
    bare = [replace(CALM, periods=None, throttled_periods=None, throttled_s=None)] * 3
    rows = cell_rows(**dict.fromkeys(("stock", "twin", "count", "no_spin", "raddle"), bare))
    assert verdict.losses(rows) == []
    assert rows[0].text("throttled_percent") == "–"


def test_losses_come_before_everything_else_in_the_text(tmp_path):
    store = Store(tmp_path / "results.jsonl")
    for model in ("cnn-1ms", "cnn-30ms", "blas+cnn"):
        store.service_time_s(model, lambda: 0.001)
    text = table.markdown([cell_rows(no_spin=[CALM] * 3)], of=5, command="python -m load table", store=store)
    places = [text.index(part) for part in ("loses: 1 of 1", "budget kept in 0 of 1", "All cells")]
    assert places == sorted(places)
    assert "1 of 5 cells" in text


def test_a_stored_run_is_not_measured_again_and_a_torn_line_is(tmp_path):
    path = tmp_path / "results.jsonl"
    store = Store(path)
    assert store.service_time_s("m", lambda: 0.5) == 0.5
    assert Store(path).service_time_s("m", lambda: 9.9) == 0.5
    path.write_text(path.read_text()[:-10] + "\n")
    assert Store(path).service_time_s("m", lambda: 0.7) == 0.7
    assert json.loads(path.read_text().splitlines()[-1])["value"] == {"seconds": 0.7}


def test_the_full_table_is_the_whole_protocol(tmp_path):
    store = Store(tmp_path / "results.jsonl")
    for model in ("cnn-1ms", "cnn-30ms", "blas+cnn"):
        store.service_time_s(model, lambda: 0.002)
    cells = table.full_cells(store)
    assert len(set(cells)) == len(cells)
    assert {cell.model for cell in cells} == {"cnn-1ms", "cnn-30ms", "blas+cnn"}
    assert {cell.callers for cell in cells} == {1, 4}
    assert {cell.share_percent for cell in cells} == {10, 25, 50, 70, None}
    assert {cell.host_cores for cell in cells} == {None, 16}
    assert {0.5, 1.0, 1.5} <= {cell.limit_cpus for cell in cells}
    half = next(c for c in cells if (c.model, c.limit_cpus, c.share_percent) == ("cnn-1ms", 0.5, 50))
    assert half.rate == pytest.approx(125.0)

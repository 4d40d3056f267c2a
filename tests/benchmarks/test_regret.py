"""Regret: what the planner chooses on recorded surfaces, against the best there; the committed figures may only fall."""

import json
import math
import re
from dataclasses import replace

import pytest
from click.testing import CliRunner

import report
from load import surface, variants
from load.measure import Cell, Run
from load.store import Store
from load.surface import Figures, Machine, Surface, SurfaceCell
from raddle.planning.planner import Budget, plan
from raddle.planning.policy import Policy
from regret import judging
from regret.__main__ import main

FIGURES = report.ROOT / "benchmarks" / "regret.json"
SURFACES = {path.stem: surface.read(path) for path in surface.committed()}
MACHINE = Machine(cpu_model="", cpus=16, cores=16, cgroup_version=2, onnxruntime="1.31.1")
LIMIT_4 = Cell(model="cnn-5ms", limit_cpus=4.0, requests_per_s=242.0)

RUN = Run(
    latencies_ms=(1.234, 2.0),
    missed=0,
    cpu_s=0.004,
    cpu_percent=1.0,
    periods=4,
    throttled_periods=1,
    throttled_s=0.1,
    steal_percent=0.0,
    others_percent=0.0,
    neighbour_cpu_s=0.0,
    pool_threads=1,
    affinity_errors=0,
    raddle=False,
    version="1.31.1",
)


def runs(*p99s_ms, p50_ms=1.0, cpu_ms=10.0):
    return tuple(Figures(p50_ms, p99_ms, cpu_ms, 0.0) for p99_ms in p99s_ms)


def cell(**settings):
    """Settings as t4_50 for 4:50."""
    named = {name.removeprefix("t").replace("_", ":"): value for name, value in settings.items()}
    return SurfaceCell(conditions=LIMIT_4, service_ms=8.3, settings=named)


def judgement(chosen, one):
    made = Surface(machine=MACHINE, date="", cells=(one,))
    (result,) = judging.all_judged({"made up": made}, {"rule": lambda _surface, _cell: chosen})
    return result


def risen(before, after, path=""):
    """The figures that are higher than before, by where they stand."""
    if isinstance(before, dict):
        both = before.keys() & after.keys() - {"cells"}
        return [line for name in sorted(both) for line in risen(before[name], after[name], f"{path} {name}")]
    return [f"{path.strip()}: {before} -> {after}"] if after > before else []


def test_regret_on_the_recorded_surfaces_falls_or_stays(request):
    """A figure that may rise, for another one's or new cells' sake, is removed from the file by hand before."""
    now = judging.summaries(judging.all_judged(SURFACES))
    kept = json.loads(FIGURES.read_text()) if FIGURES.exists() else {}
    assert risen(kept, now) == []
    if request.config.getoption("--update-golden"):
        FIGURES.write_text(report.folded_json(now) + "\n")
    assert json.loads(FIGURES.read_text()) == now, "regret fell: run pytest --update-golden, so that it stays there"


def test_a_figure_that_rises_is_named():
    before, after = ({"a": {"with load": {"p99": {"mean": mean, "worst": 0.5}}}} for mean in (0.1, 0.2))
    assert risen(before, after) == ["a with load p99 mean: 0.1 -> 0.2"]
    assert risen(after, before) == risen({}, after) == []


def test_every_surface_has_cells_with_stock_and_others():
    assert SURFACES
    for one in SURFACES.values():
        assert all(len(cell.settings) > 2 and variants.STOCK in cell.settings for cell in one.cells)
        titles = [cell.conditions.title for cell in one.cells]
        assert len(set(titles)) == len(titles)


def test_a_surface_is_read_as_it_was_written(tmp_path):
    conditions = replace(LIMIT_4, limit_cpus=None, callers=8, containers=4, arrivals="bursts")
    one = replace(cell(stock=runs(9.0), t4_50=runs(2.0, 2.5)), conditions=conditions)
    made = Surface(machine=MACHINE, date="2026-11-28", cells=(one,))
    (tmp_path / "one.json").write_text(surface.text(made))
    assert surface.read(tmp_path / "one.json") == made


@pytest.mark.parametrize(
    ("limit_cpus", "policy", "setting"),
    [
        (1.0, Policy(), "1"),
        (4.0, Policy(), "4:50"),
        (4.0, Policy(spinning="Never"), "4:never"),
        (4.0, Policy(spinning="Always"), "4:always"),
        (None, Policy(budget_source="Limit"), "stock"),
    ],
)
def test_a_plan_is_one_of_a_surfaces_settings(limit_cpus, policy, setting):
    assert judging.setting_of(plan(None, Budget(quota_cpus=limit_cpus), policy)) == setting


def test_the_planner_is_asked_for_the_cells_limit_and_load():
    one = replace(cell(), conditions=replace(LIMIT_4, limit_cpus=1.0, requests_per_s=10.0), service_ms=49.3)
    made = Surface(machine=MACHINE, date="", cells=(one,))
    assert judging.by_default(made, one) == "1"
    assert judging.with_load(made, one) != "1"


def test_the_planner_spins_always_where_the_cells_cpus_are_exclusive():
    one = replace(cell(), conditions=replace(LIMIT_4, exclusive=True))
    assert judging.by_default(Surface(machine=MACHINE, date="", cells=(one,)), one) == "4:always"


def test_regret_is_how_much_more_the_medians_are_than_those_of_the_best_by_p99():
    one = cell(
        stock=runs(90.0),
        t4_50=runs(3.0, 6.0, 4.0, p50_ms=2.0),
        t8_never=runs(2.0, p50_ms=1.6),
        t1=runs(9.0, p50_ms=1.0),
    )
    found = judgement("4:50", one)
    assert found.best == "8:never"
    assert found.regret == pytest.approx({"p50": 0.25, "p99": 1.0, "cpu": 0.0})
    assert set(judgement("8:never", one).regret.values()) == {0.0}


def test_of_settings_with_nearly_the_same_p99_the_lowest_p50_is_best():
    assert judgement("1", cell(t1=runs(2.0, p50_ms=1.5), t2_50=runs(2.05, p50_ms=1.0))).best == "2:50"


@pytest.mark.parametrize(
    ("chosen", "recorded"),
    [("8:50", "8:50"), ("7:50", "8:50"), ("6:50", "8:50"), ("5:50", None), ("8:never", None), ("stock", "stock")],
)
def test_what_was_not_recorded_is_taken_from_its_neighbour_or_not_at_all(chosen, recorded):
    one = cell(stock=runs(9.0), t8_50=runs(2.0), t1=runs(3.0))
    assert judgement(chosen, one).recorded == recorded
    assert (judgement(chosen, one).regret is None) == (recorded is None)


def test_regret_is_beyond_noise_where_no_run_is_as_good_as_one_of_the_best():
    one = cell(t4_50=runs(3.0, 6.0, p50_ms=2.0), t8_never=runs(2.0, 4.0, p50_ms=1.6))
    assert judgement("4:50", one).beyond_noise == ["p50"]
    assert judgement("8:never", one).beyond_noise == []


def test_a_setting_harms_where_each_of_its_runs_is_above_each_of_stocks():
    one = cell(stock=runs(2.0, 3.0, cpu_ms=11.0), t1=runs(3.5, 4.0), t2_50=runs(2.5, 9.0))
    assert judgement("1", one).harm == ["p99"]
    assert judgement("2:50", one).harm == []
    assert judgement("9:always", one).harm == []


def test_a_summary_counts_cells_and_what_was_not_recorded():
    one = cell(stock=runs(2.0), t1=runs(4.0), t2_50=runs(1.0))
    found = judging.summaries([judgement("1", one), judgement("2:50", one), judgement("9:always", one)])
    summary = found["made up"]["rule"]
    assert (summary["cells"], summary["not_recorded_cells"], summary["worse_than_stock_cells"]) == (3, 1, 1)
    assert summary["regret"]["p99"] == {"mean": 1.5, "p95": 3.0, "worst": 3.0}


def test_the_command_prints_a_line_a_cell_and_a_summary_a_rule():
    text = CliRunner().invoke(main, []).output
    for name, one in SURFACES.items():
        assert len(re.findall(rf"{name}; ", text)) == len(one.cells)
        assert [line for rule in judging.RULES for line in text.splitlines() if name in line and f" {rule} " in line]


def test_the_command_marks_what_noise_explains_and_what_is_worse_than_stock(tmp_path):
    conditions = replace(LIMIT_4, limit_cpus=1.0)
    one = replace(
        cell(stock=runs(2.0, 2.1, p50_ms=3.0), t1=runs(3.0, 3.1, p50_ms=2.0), t4_50=runs(1.0, p50_ms=2.0)),
        conditions=conditions,
    )
    made = Surface(machine=MACHINE, date="", cells=(one,))
    (tmp_path / "one.json").write_text(surface.text(made))
    text = CliRunner().invoke(main, [str(tmp_path / "one.json")]).output
    assert "+0 % / +205 %* / +0 %" in text
    noisy = replace(made, cells=(replace(one, settings=dict(one.settings) | {"1": runs(0.9, 3.1)}),))
    (tmp_path / "one.json").write_text(surface.text(noisy))
    assert re.search(r"-50 % / \+100 %~ / \+0 %", CliRunner().invoke(main, [str(tmp_path / "one.json")]).output)


def test_the_command_writes_json_of_the_same():
    document = json.loads(CliRunner().invoke(main, ["-o", "json"]).output)
    assert document["surfaces"] == json.loads(FIGURES.read_text())
    assert len(document["cells"]) == len(judging.RULES) * sum(len(one.cells) for one in SURFACES.values())
    assert all(one["regret"] or one["recorded_setting"] is None for one in document["cells"])


def test_surfaces_that_are_kept_elsewhere_can_be_judged(tmp_path):
    (path, *_) = surface.committed()
    (tmp_path / "held-out.json").write_text(path.read_text())
    document = json.loads(CliRunner().invoke(main, [str(tmp_path / "held-out.json"), "-o", "json"]).output)
    assert set(document["surfaces"]) == {"held-out"}


class Recorded(Store):
    """A store that has every run already, each alike, until it ends as by Ctrl-C."""

    def __init__(self, path, cells):
        super().__init__(path)
        self._begun, self._cells = set(), cells

    def run(self, cell, _variant, _repetition):
        self._begun.add(cell)
        if len(self._begun) > self._cells:
            raise KeyboardInterrupt
        return RUN

    def service_time_s(self, _model, _runtime, _measure):
        return 0.00825912


def test_a_measured_surface_has_every_setting_of_its_complete_cells_and_can_be_judged(tmp_path):
    made = surface.measured(
        Recorded(tmp_path / "runs.jsonl", cells=3), MACHINE, progress=lambda _: None, minutes=math.inf
    )
    assert len(made.cells) == 3
    for one in made.cells:
        assert list(one.settings) == ["stock", *variants.settings_here(one.conditions)]
        assert set(one.settings.values()) == {(Figures(1.234, 2.0, 2.0, 25.0),) * surface.SIZE.repetitions}
        assert one.service_ms == 8.259
        assert one.conditions.requests_per_s > 0
    (tmp_path / "one.json").write_text(surface.text(made))
    assert surface.read(tmp_path / "one.json") == made
    assert len(judging.all_judged({"one": made})) == 6


@pytest.mark.parametrize("cpus", [2, 16])
def test_cells_of_a_surface_have_all_callers_arrivals_and_a_full_node(cpus):
    shapes = surface.shapes(cpus)
    assert len(set(shapes)) == len(shapes)
    assert {cell.callers for cell in shapes if cell.limit_cpus == cpus} == {1, 2, cpus, 4 * cpus}
    assert [cell for cell in shapes if cell.exclusive]
    assert None in {cell.limit_cpus for cell in shapes}
    usual = shapes[: 3 * (1 + cpus.bit_length())]
    assert {(cell.callers, cell.arrivals, cell.containers, cell.share_percent) for cell in usual} == {
        (1, "regular", 1, 50)
    }
    assert {cell.arrivals for cell in shapes} == {"regular", "Poisson", "bursts"}
    assert {cell.containers * cell.limit_cpus for cell in shapes if cell.containers > 1} == {cpus}

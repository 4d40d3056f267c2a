"""What is measured on a machine: its surface, and the choices of peers beside each other."""

import json
import random
from dataclasses import replace

import pytest

from load.models import SMALL, Network
from raddle.planning.planner import Budget
from raddle_operator.results.candidate import Candidate
from raddle_operator.results.objective import Kind, Objective
from raddle_tuner.search.blocks import Block, Failure, MeasurementRequest
from raddle_tuner.search.space import Case, space
from raddle_tuner.trials.record import Record
from tuning import here, live, olive, recorded, surface

WHERE = recorded.Where(cores=4, threads_per_core=1, numa_nodes=1, l3_domains=1)
CASE = Case(
    machine=surface.machine_of(recorded.asdict(WHERE)),
    budget=Budget(quota_cpus=2.0),
    onnxruntime=(1, 29),
    can=("ioBinding",),
)
OBJECTIVE = Objective(kind=Kind.LATENCY, rate=50.0)
PLAN = Candidate()
ONE, TWO = (Candidate.of({"threads.intraOp": count}) for count in (1, 2))


def block(latency_ms, **facts):
    return Block(latencies_ms=(latency_ms,) * 100, missed=0, seconds=1.0, cpu_s=0.8, **facts)


def measured(ask):
    """Twice as fast on twice the threads, and with IO binding."""
    return block(8.0 / CASE.planned(ask.candidate)[1].intra_op * (0.5 if ask.candidate.get("program.ioBinding") else 1))


def record(folder, measure=measured):
    with Record.of(folder / "blocks", {"version": 1}) as kept:
        recording = recorded.Recording(kept, measure)
        recorded.record(folder / "here.json", "a test", WHERE, space(CASE), OBJECTIVE, recording)
    return folder / "here.json"


# --- recording ------------------------------------------------------------------------------------------------------


def test_a_machine_is_recorded_and_played(tmp_path):
    found = surface.read(record(tmp_path))
    assert found.times(Candidate.of({"threads.intraOp": 2, "program.ioBinding": True}))[0].open_ms[0] == 2.0
    assert found.factors["program.ioBinding"] == {True: (0.5, 1.0)}


def test_a_setting_that_is_not_told_apart_from_the_plan_is_no_factor(tmp_path):
    chance = random.Random(1)

    def measure(ask):
        return block(measured(ask).latencies_ms[0] * chance.uniform(0.98, 1.02))

    found = surface.read(record(tmp_path, measure)).factors
    assert found["onnxruntime.memPattern"] == {False: (1.0, 1.0)}
    assert found["program.ioBinding"][True][0] == pytest.approx(0.5, abs=0.02)


def test_a_recording_that_was_ended_goes_on_where_it_was(tmp_path):
    asked = []

    def ended_after(count):
        def measure(ask):
            if len(asked) == count:
                raise KeyboardInterrupt
            asked.append(ask)
            return measured(ask)

        return measure

    with pytest.raises(KeyboardInterrupt):
        record(tmp_path, ended_after(7))
    record(tmp_path, ended_after(None))
    assert len(asked) == len(set(asked)) > 7


def test_the_minutes_of_a_recording_are_those_of_its_shapes_also_where_it_was_ended(tmp_path):
    shape = MeasurementRequest(candidate=ONE, rate=None, seconds=1.0, seed=1, phase="shape")
    with Record.of(tmp_path / "blocks", {"version": 1}) as kept:
        first = recorded.Recording(kept, measured)
        first.measure(replace(shape, phase="closed"))
        assert first.shapes_s == 0
        first.measure(shape)
        assert first.shapes_s > 0
    with Record.of(tmp_path / "blocks", {"version": 1}) as kept:
        assert recorded.Recording(kept, measured).shapes_s == round(first.shapes_s, 3)


def test_spinning_of_one_thread_is_measured_once(tmp_path):
    shapes = json.loads(record(tmp_path).read_text())["shapes"]
    alone = [shape for shape in shapes if shape["threads"] == 1]
    assert {shape["spins"] for shape in alone} > {"never", "always"}
    assert len({json.dumps(shape["settings"]) for shape in alone}) == 1


def test_a_shape_that_fails_is_left_out(tmp_path):
    def measure(ask):
        return Failure("no") if ask.candidate.get("threads.intraOp") == 4 else measured(ask)

    assert 4 not in {shape["threads"] for shape in json.loads(record(tmp_path, measure).read_text())["shapes"]}


# --- on this machine ------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_site_is_measured_with_the_plan_and_without_raddle(tmp_path):
    tiny = replace(SMALL, network=Network(side=8, channels=4, layers=1))
    site = here.Site(model=tiny, limit="1")
    with here.at(site, tmp_path, repeats=0) as found:
        ask = MeasurementRequest(candidate=PLAN, rate=None, seconds=0.2, seed=1, phase="")
        for candidate in (PLAN, here.AGAIN, here.STOCK):
            assert isinstance(found.measure(replace(ask, candidate=candidate)), Block)
        threads = {one: found.measuring.program(one).said["threads"] for one in (PLAN, here.STOCK)}
    assert found.space.case.budget.quota_cpus == 1.0
    assert threads[PLAN] == 1


# --- side by side ---------------------------------------------------------------------------------------------------


def test_the_exhaustive_choice_is_the_fastest_shape_that_was_recorded(tmp_path):
    chosen = live.exhaustive(record(tmp_path))
    assert CASE.planned(chosen.candidate)[1].intra_op == 8
    assert chosen.trials > 4


def test_choices_that_come_to_the_same_are_measured_once_and_the_plans_as_its_second_process():
    also_two = Candidate.of({"threads.intraOp": 2, "threads.spinning": "Bounded"})
    planned = CASE.planned(PLAN)[1]
    assert (planned.intra_op, planned.spinning) == (2, "bounded")
    choices = [live.Choice(way="", candidate=one) for one in (PLAN, ONE, TWO, also_two, here.STOCK, None)]
    stands = live.stands_for(space(CASE), choices)
    assert stands == {PLAN: here.AGAIN, TWO: here.AGAIN, also_two: here.AGAIN, ONE: ONE, here.STOCK: here.STOCK}


def test_a_choice_differs_from_the_plan_of_the_same_rounds():
    rounds = [{PLAN: block(4.0 * slow), ONE: block(8.0 * slow)} for slow in (1, 3, 2)]
    found = live.against_plan(rounds, ONE)
    assert (found.percent, found.low, found.high) == pytest.approx((100, 100, 100))
    assert live.against_plan([*rounds[:1], {PLAN: block(4.0)}], ONE) is None


def test_the_table_has_a_line_for_each_way_whatever_became_of_it():
    choices = [
        live.Choice(way="one thread", candidate=ONE, trials=3, minutes=1.5, note="sure"),
        live.Choice(way="absent", candidate=None, note="no package here"),
        live.Choice(way="failed", candidate=TWO, trials=1, minutes=0.5),
    ]
    rounds = [{PLAN: block(4.0), ONE: block(8.0)}] * 2
    assert live.table(choices, {ONE: ONE, TWO: TWO}, rounds).splitlines()[2:] == [
        "| Raddle's plan |  |  | the plan | 4 |  | 4 | 8 |  |",
        "| one thread | 3 | 1.5 | intraOp 1 | 8 | +100.0 % [+100.0, +100.0] | 8 | 8 | sure |",
        "| absent |  |  | not measured |  |  |  |  | no package here |",
        "| failed | 1 | 0.5 | intraOp 2 | not measured |  |  |  |  |",
    ]


# --- Olive ----------------------------------------------------------------------------------------------------------


def test_what_olive_does_not_set_is_as_onnx_runtime_has_it():
    options = {"execution_mode": 0, "graph_optimization_level": 99, "intra_op_num_threads": 2}
    assert olive.candidate({"session_options": options, "io_bind": False}) == Candidate.of(
        {"threads.intraOp": 2, "threads.spinning": "Always", "onnxruntime.graphOptimizationLevel": "All"}
    )


def test_a_parallel_choice_of_olives_can_be_planned():
    options = {"execution_mode": 1, "graph_optimization_level": 1, "intra_op_num_threads": 2, "inter_op_num_threads": 2}
    chosen = olive.candidate({"session_options": options, "io_bind": True})
    assert dict(chosen.settings) == {
        "onnxruntime.graphOptimizationLevel": "Basic",
        "program.ioBinding": True,
        "threads.executionMode": "Parallel",
        "threads.interOp": 2,
        "threads.intraOp": 2,
        "threads.spinning": "Always",
    }
    assert CASE.planned(chosen)[1].inter_op == 2


def test_olive_is_pinned_by_hash():
    lines = [line for line in olive.PINS.read_text().splitlines() if not line.startswith("#")]
    assert all(" --hash=sha256:" in line for line in lines)
    assert any(line.startswith(f"olive-ai=={olive.VERSION} ") for line in lines)

"""The search over settings: what it asks, when it ends, and what it may say."""

import dataclasses
import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.examples import examples

from raddle.planning.planner import Budget
from raddle_operator.results.candidate import Candidate
from raddle_operator.results.objective import Kind, Objective
from raddle_operator.results.verdict import Verdict
from raddle_tuner.search import statistics
from raddle_tuner.search.blocks import Block, Failure, MeasurementRequest
from raddle_tuner.search.search import BaselineError, Limits, confirm, drive, estimate, replay, tune
from raddle_tuner.search.space import Case, space

CASE = Case(budget=Budget(quota_cpus=4.0), onnxruntime=(1, 29), can=("instances", "ioBinding"))
SPACE = space(CASE)
LATENCY = Objective(kind=Kind.LATENCY, rate=50.0)
THROUGHPUT = Objective(kind=Kind.THROUGHPUT)


class Machine:
    """Answers asks: a run takes `run_ms` of the candidate, with noise from a seed; what is asked is kept."""

    def __init__(self, run_ms=lambda candidate: 4.0, *, noise=0.02, spread=0.14, seed=0, fails=lambda candidate: False):
        self.run_ms, self.noise, self.spread, self.fails = run_ms, noise, spread, fails
        self.rng = np.random.default_rng(seed)
        self.asked = []

    def __call__(self, ask):
        self.asked.append(ask)
        if self.fails(ask.candidate):
            return Failure("it crashed")
        run_ms = self.run_ms(ask.candidate) * math.exp(self.rng.normal(0, self.noise))
        count = max(1, int((ask.rate or 1000 / run_ms) * ask.seconds))
        return Block(
            latencies_ms=tuple((run_ms * self.rng.gamma(self.spread**-2, self.spread**2, count)).tolist()),
            missed=0,
            seconds=ask.seconds,
            cpu_s=count * run_ms / 1000,
        )

    @property
    def seconds(self):
        return sum(ask.seconds for ask in self.asked)


def amdahl(candidate):
    threads = CASE.planned(candidate)[1].intra_op
    return 4.0 * (0.2 + 0.8 / threads) + 0.12 * threads


def io_binding(candidate, gain):
    return 4.0 * (1 - gain if candidate.get("program.ioBinding") else 1)


def test_it_finds_the_best_thread_count_and_says_by_how_much():
    result = drive(tune(LATENCY, SPACE), Machine(lambda candidate: 3 * amdahl(candidate)))
    assert CASE.planned(result.winner)[1].intra_op in (4, 5, 6)
    result = drive(tune(LATENCY, SPACE), Machine(lambda candidate: 4.0 + CASE.planned(candidate)[1].intra_op))
    assert CASE.planned(result.winner)[1].intra_op == 1
    assert result.verdict is Verdict.BETTER
    assert result.gain.low < 100 * (5 / 8 - 1) < result.gain.high
    assert ("threads.intraOp", result.gain) in result.contributions or result.contributions


def test_throughput_gains_are_above_zero():
    result = drive(tune(THROUGHPUT, SPACE), Machine(lambda candidate: io_binding(candidate, 0.2)))
    assert (result.verdict, result.figure) == (Verdict.BETTER, "throughput")
    assert 15 < result.gain.low <= result.gain.percent <= result.gain.high < 35
    assert result.winner.get("program.ioBinding") is True


def test_cost_compares_cpu_time_of_a_request():
    result = drive(tune(dataclasses.replace(LATENCY, kind=Kind.COST), SPACE), Machine(lambda one: io_binding(one, 0.2)))
    assert (result.verdict, result.figure) == (Verdict.BETTER, "cpu_ms_per_request")
    assert -26 < result.gain.percent < -14


def test_cost_without_a_cpu_time_says_so():
    machine = Machine()
    search = tune(dataclasses.replace(LATENCY, kind=Kind.COST), SPACE)
    with pytest.raises(BaselineError, match="no cpu_ms_per_request"):
        drive(search, lambda ask: dataclasses.replace(machine(ask), cpu_s=None))


def test_a_difference_of_3_percent_is_found_where_the_machine_is_quiet():
    found = [
        drive(tune(LATENCY, SPACE), Machine(lambda one: io_binding(one, 0.03), noise=0.005, spread=0.05, seed=seed))
        for seed in range(10)
    ]
    assert sum(result.winner.get("program.ioBinding") is True for result in found) >= 8


@pytest.mark.slow
def test_where_nothing_matters_the_plan_is_kept():
    # With this seed and bound: 40 searches at an error of 1 in 20 say "better" more often than 6 times in 1 of 100.
    verdicts = [drive(tune(LATENCY, SPACE), Machine(seed=seed)).verdict for seed in range(40)]
    assert verdicts.count(Verdict.BETTER) <= 6
    assert verdicts.count(Verdict.NO_DIFFERENCE) >= 30


def test_a_setting_with_which_nothing_starts_is_left_out_soon():
    def fails(candidate):
        return candidate.get("onnxruntime.cpuMemArena") is False

    machine = Machine(lambda one: io_binding(one, 0.2), fails=fails)
    result = drive(tune(LATENCY, SPACE), machine)
    assert sum(fails(ask.candidate) for ask in machine.asked) <= 10
    assert result.winner.get("program.ioBinding") is True


def test_the_baseline_that_fails_ends_it_with_the_reason():
    with pytest.raises(BaselineError, match="the plan can't be measured: it crashed"):
        drive(tune(LATENCY, SPACE), Machine(fails=lambda candidate: candidate == Candidate()))


@examples(0.15)
@given(
    seed=st.integers(0, 10_000),
    seconds=st.floats(1, 400),
    trials=st.integers(1, 80),
    broken=st.sets(st.integers(1, 16)),
    objective=st.sampled_from([LATENCY, THROUGHPUT, Objective(kind=Kind.COST, rate=30.0, p99_ms=6.0)]),
)
def test_it_ends_within_its_budget_and_never_asks_again_for_what_failed(seed, seconds, trials, broken, objective):
    def fails(candidate):
        return candidate != Candidate() and CASE.planned(candidate)[1].intra_op in broken

    machine = Machine(amdahl, seed=seed, fails=fails)
    result = drive(tune(objective, SPACE, Limits(seconds=seconds, trials=trials)), machine)
    measured = [ask for ask in machine.asked if not fails(ask.candidate)]
    assert sum(ask.seconds for ask in measured) <= seconds
    assert len({ask.candidate for ask in machine.asked}) <= trials
    failed = [ask.candidate for ask in machine.asked if fails(ask.candidate)]
    assert len(failed) == len(set(failed))
    assert all(trial.blocks or trial.skipped for trial in result.trials)
    assert (result.gain is None) == (result.winner == result.baseline) or result.verdict is Verdict.INCONCLUSIVE


@examples(0.05)
@given(seed=st.integers(0, 10_000), kept=st.integers(0, 200))
def test_recorded_answers_lead_a_new_search_to_the_same_place(seed, kept):
    machine = Machine(amdahl, seed=seed)
    recorded = []

    def measure(ask):
        recorded.append((ask, machine(ask)))
        return recorded[-1][1]

    result = drive(tune(LATENCY, SPACE), measure)
    found = replay(tune(LATENCY, SPACE), recorded[:kept])
    assert found == (recorded[kept][0] if kept < len(recorded) else result)


def test_answers_of_another_search_are_refused():
    other = MeasurementRequest(candidate=Candidate(), rate=1.0, seconds=1.0, seed=0, phase="A/A")
    with pytest.raises(ValueError, match="the record is of another search"):
        replay(tune(LATENCY, SPACE), [(other, Failure(""))])


@pytest.mark.parametrize("blocks", [0, 1, 20, 60])
def test_ended_early_it_tells_what_is_known(blocks):
    machine, number = Machine(amdahl), itertools.count()
    result = drive(tune(LATENCY, SPACE), lambda ask: machine(ask) if next(number) < blocks else None)
    assert len(machine.asked) == blocks
    assert result.verdict is Verdict.INCONCLUSIVE
    assert "ended before everything was measured" in result.remarks


def test_candidates_are_compared_under_the_same_arrivals_and_take_turns_to_go_first():
    machine = Machine(lambda one: io_binding(one, 0.2))
    result = drive(tune(LATENCY, SPACE), machine)
    proof = [ask for ask in machine.asked if ask.phase == "proof"]
    pairs = list(zip(proof[::2], proof[1::2], strict=True))
    assert all(one.seed == other.seed for one, other in pairs)
    assert len({one.seed for one, _ in pairs}) == len(pairs)
    assert not {one.seed for one, _ in pairs} & {ask.seed for ask in machine.asked if ask.phase != "proof"}
    assert [one.candidate for one, _ in pairs[:2]] == [Candidate(), result.winner]


def test_a_large_gain_leaves_budget_for_the_requests_that_make_the_bound_certain():
    slow = Objective(kind=Kind.LATENCY, rate=1.0, p99_ms=100.0)
    result = drive(tune(slow, SPACE, Limits(seconds=1500.0)), Machine(lambda one: io_binding(one, 0.4)))
    assert result.verdict is Verdict.BETTER
    assert result.bound.holds


def test_programs_that_are_compared_are_started_again_for_each_pair():
    machine = Machine(lambda one: io_binding(one, 0.03))
    drive(tune(LATENCY, SPACE), machine)
    noise, proof = ([ask.fresh for ask in machine.asked if ask.phase == phase] for phase in ("A/A", "proof"))
    assert noise == [False, True] * 4
    assert proof
    assert all(proof)
    assert not any(ask.fresh for ask in machine.asked if ask.phase == "search")


def test_no_candidate_is_measured_under_two_names():
    machine = Machine(amdahl)
    drive(tune(LATENCY, SPACE), machine)
    candidates = {ask.candidate for ask in machine.asked}
    assert len({CASE.key(candidate) for candidate in candidates}) == len(candidates)


def test_a_rate_above_the_capacity_is_said_with_the_capacity():
    result = drive(tune(Objective(kind=Kind.LATENCY, rate=500.0, p99_ms=20.0), SPACE), Machine(noise=0.0))
    assert result.verdict is Verdict.BOUND_NOT_MET
    assert result.capacity == pytest.approx(250, rel=0.05)
    assert "500 requests a second are above the capacity: 250 are served at most; tried: " in result.remarks[0]


def test_a_rate_that_instances_serve_is_searched():
    def serves(ask):
        served = 250 * (ask.candidate.get("program.instances") or 1)
        count = int((ask.rate or served) * ask.seconds)
        return Block(latencies_ms=(4.0,) * count, missed=0, seconds=ask.seconds, cpu_s=0.001 * count)

    result = drive(tune(Objective(kind=Kind.LATENCY, rate=500.0), SPACE), serves)
    assert result.verdict is not Verdict.BOUND_NOT_MET
    assert result.capacity > 500
    result = drive(tune(Objective(kind=Kind.LATENCY, rate=5000.0), SPACE), serves)
    assert result.verdict is Verdict.BOUND_NOT_MET
    tried = "1000 are served at most; tried: the plan; threads.intraOp 1, 2, 4, 8; program.instances 2 x 2, "
    assert tried in result.remarks[0]


@pytest.mark.parametrize("rate", [5.0, 10.0, 20.0])
def test_three_minutes_are_enough_to_search_at_low_rates(rate):
    aim = dataclasses.replace(LATENCY, rate=rate)
    # Of 180 s it is the load that fits beside starts and the like.
    machine = Machine(amdahl)
    result = drive(tune(aim, SPACE, Limits(seconds=130.0)), machine)
    assert sum(ask.seconds for ask in machine.asked if ask.phase == "A/A") <= 130 / 4.9
    assert min(ask.seconds * rate for ask in machine.asked if ask.rate) >= 5
    assert len(result.trials) > 7
    assert estimate(aim, SPACE, Limits(seconds=130.0))[0] > 7


def test_a_budget_that_the_noise_takes_names_one_that_would_do():
    aim = dataclasses.replace(LATENCY, rate=0.5)
    result = drive(tune(aim, SPACE, Limits(seconds=130.0)), Machine(amdahl))
    assert result.verdict is Verdict.INCONCLUSIVE
    assert "a search takes 40 of 10 s" in result.remarks[0]
    assert estimate(aim, SPACE, Limits(seconds=400.0))[0] > 4


def slow(run_s):
    """Answers that take so long; a closed block waits 2 s more for them, as the load does."""

    def measure(ask):
        if ask.rate is None and run_s > ask.seconds + 2:
            return Block(latencies_ms=(1000 * (ask.seconds + 2),), missed=1, seconds=ask.seconds + 2)
        count = max(1, round(ask.seconds / run_s))
        return Block(latencies_ms=(1000 * run_s,) * count, missed=0, seconds=max(count * run_s, ask.seconds))

    return measure


def test_blocks_of_a_slow_model_are_some_times_as_long_as_its_answer_takes():
    asked = []
    drive(tune(THROUGHPUT, SPACE, Limits(seconds=900.0)), lambda ask: asked.append(ask) or slow(3.0)(ask))
    assert {ask.seconds for ask in asked if ask.phase != "first"} == {15.0}
    asked.clear()
    drive(tune(THROUGHPUT, SPACE, Limits(seconds=900.0)), lambda ask: asked.append(ask) or slow(30.0)(ask))
    assert {ask.seconds for ask in asked if ask.phase != "first"} == {60.0}


@pytest.mark.parametrize("objective", [THROUGHPUT, dataclasses.replace(LATENCY, rate=1.0)])
def test_a_model_that_does_not_answer_in_time_is_said_to_take_longer(objective):
    with pytest.raises(BaselineError, match="a request takes longer than 20 s"):
        drive(tune(objective, SPACE, Limits(seconds=180.0)), slow(40.0))


def test_a_disturbed_block_is_measured_again_and_said():
    machine, number = Machine(), itertools.count()

    def measure(ask):
        block = machine(ask)
        return dataclasses.replace(block, disturbed=("steal 20 %",)) if next(number) % 7 == 3 else block

    result = drive(tune(LATENCY, SPACE), measure)
    assert any("disturbed blocks: steal 20 %" in remark for remark in result.remarks)
    assert all(not block.disturbed for trial in result.trials for block in trial.blocks)


def test_a_machine_that_is_always_disturbed_is_measured_nevertheless():
    machine = Machine()
    result = drive(tune(LATENCY, SPACE), lambda ask: dataclasses.replace(machine(ask), disturbed=("steal",)))
    kept = sum(len(trial.blocks) for trial in result.trials)
    # Repeated at first, while it may be a moment's.
    assert len(machine.asked) - 10 <= kept < len(machine.asked)


def test_a_budget_that_the_noise_takes_leaves_it_open_whether_something_is_better():
    result = drive(tune(LATENCY, SPACE, Limits(seconds=20.0)), Machine(amdahl))
    assert len(result.trials) == 1
    assert result.verdict is Verdict.INCONCLUSIVE


def test_a_candidate_that_failed_in_its_proof_is_not_what_is_named_when_the_budget_ends_there():
    machine = Machine(lambda one: io_binding(one, 0.03), noise=0.05)

    def measure(ask):
        late = ask.phase == "proof" and machine.seconds > 160
        return Failure("it crashed") if late and ask.candidate != Candidate() else machine(ask)

    result = drive(tune(LATENCY, SPACE), measure)
    assert any(trial.skipped == "it crashed" for trial in result.trials)
    assert result.verdict is Verdict.INCONCLUSIVE
    assert (result.winner, result.gain) == (Candidate(), None)


@pytest.mark.slow
@pytest.mark.parametrize(("p99_ms", "verdict"), [(100.0, Verdict.BETTER), (1.0, Verdict.BOUND_NOT_MET)])
def test_the_bound_is_judged_on_fresh_blocks(p99_ms, verdict):
    objective = dataclasses.replace(LATENCY, p99_ms=p99_ms)
    result = drive(tune(objective, SPACE), Machine(lambda one: io_binding(one, 0.2)))
    assert result.verdict is verdict
    assert result.bound.holds == (verdict is Verdict.BETTER)


COST_WITH_A_BOUND = Objective(kind=Kind.COST, rate=20.0, p99_ms=20.0)


def fast_but_dear(plan_ms, fast_ms):
    """IO binding takes 20 % more CPU time, and these latencies."""

    machine = Machine(lambda one: fast_ms if one.get("program.ioBinding") else plan_ms)

    def measure(ask):
        block = machine(ask)
        dear = 1.2 if ask.candidate.get("program.ioBinding") else 1.0
        cpu_s = dear * len(block.latencies_ms) * machine.rng.normal(0.01, 0.0002)
        return dataclasses.replace(block, cpu_s=cpu_s)

    return measure


def test_where_the_plan_breaks_the_bound_what_keeps_it_wins_though_it_costs_more():
    result = drive(tune(COST_WITH_A_BOUND, SPACE, Limits(seconds=300.0)), fast_but_dear(25.0, 8.0))
    assert (result.verdict, result.winner.get("program.ioBinding")) == (Verdict.BETTER, True)
    assert result.bound.holds
    assert result.gain.low < 20 < result.gain.high
    assert any("keeps p99 within 20 ms; " in remark and "with the plan" in remark for remark in result.remarks)
    again = drive(confirm(COST_WITH_A_BOUND, SPACE, WINNER, Limits(seconds=300.0)), fast_but_dear(25.0, 8.0))
    assert (again.verdict, again.winner) == (Verdict.BETTER, WINNER)


@pytest.mark.parametrize(
    ("plan_ms", "fast_ms", "verdict"), [(12.0, 8.0, Verdict.NO_DIFFERENCE), (28.0, 25.0, Verdict.BOUND_NOT_MET)]
)
def test_where_the_plan_keeps_the_bound_too_or_nothing_does_the_plan_is_named(plan_ms, fast_ms, verdict):
    result = drive(tune(COST_WITH_A_BOUND, SPACE, Limits(seconds=300.0)), fast_but_dear(plan_ms, fast_ms))
    assert (result.verdict, result.winner) == (verdict, Candidate())


def test_a_dry_run_tells_trials_and_seconds():
    trials, seconds = estimate(LATENCY, SPACE, Limits(seconds=300.0))
    assert 10 < trials < SPACE.size
    assert seconds == 300.0


@pytest.mark.parametrize(("late", "needed"), [(0, 459), (1, 662), (2, 838), (3, 1001)])
def test_the_queries_that_a_p99_takes_are_loadgens(late, needed):
    block = Block(latencies_ms=(1.0,) * (needed - late) + (9.0,) * late, missed=0, seconds=1.0)
    assert statistics.bound_test(5.0, [block]).needed == needed
    assert statistics.bound_test(5.0, [block]).holds
    assert not statistics.bound_test(5.0, [dataclasses.replace(block, latencies_ms=block.latencies_ms[1:])]).holds


def test_a_request_without_an_answer_is_late():
    block = Block(latencies_ms=(1.0,) * 500, missed=20, seconds=1.0)
    assert statistics.bound_test(5.0, [block]).over == 20
    assert statistics.surely_above(statistics.bound_test(5.0, [block]))


def test_the_slowest_tenth_is_a_mean():
    assert statistics.slowest_tenth_ms([*range(1, 19), 100, 200]) == 150
    assert statistics.slowest_tenth_ms([7.0]) == 7.0


@given(st.lists(st.floats(-0.5, 0.5), min_size=2, max_size=30))
def test_an_interval_has_its_difference_inside_and_a_throughput_the_other_sign(found):
    interval = statistics.interval(Kind.LATENCY, found)
    assert interval.low <= interval.percent + 1e-9
    assert interval.percent <= interval.high + 1e-9
    assert statistics.interval(Kind.THROUGHPUT, found).percent * interval.percent <= 0


def test_a_block_without_answers_has_no_figure():
    assert statistics.loss(Kind.LATENCY, Block(latencies_ms=(5.0,), missed=1, seconds=1.0)) is None
    assert statistics.loss(Kind.COST, Block(latencies_ms=(5.0,), missed=0, seconds=1.0)) is None


WINNER = Candidate.of({"program.ioBinding": True})


def confirmed(machine, candidate=WINNER, **limits):
    return drive(confirm(LATENCY, SPACE, candidate, Limits(**limits)), machine)


def test_a_winner_of_another_node_is_measured_against_the_plan_and_nothing_else():
    machine = Machine(lambda candidate: io_binding(candidate, 0.2))
    result = confirmed(machine)
    assert (result.verdict, result.winner) == (Verdict.BETTER, WINNER)
    assert -25 < result.gain.percent < -15
    assert {ask.candidate for ask in machine.asked} == {Candidate(), WINNER}
    assert list(dict.fromkeys(ask.phase for ask in machine.asked)) == ["A/A", "proof"]


@pytest.mark.parametrize(
    ("machine", "candidate", "why"),
    [
        ({}, WINNER, "no certain gain"),
        ({"fails": lambda candidate: candidate == WINNER}, WINNER, "ioBinding True: it crashed"),
        ({}, Candidate.of({"threads.intraOp": 0}), "intraOp 0: "),
    ],
    ids=["none here", "fails here", "can't be planned here"],
)
def test_a_winner_that_is_none_or_fails_here_is_not_confirmed_and_says_why(machine, candidate, why):
    result = confirmed(Machine(**machine), candidate)
    assert (result.verdict, result.winner) == (Verdict.NO_DIFFERENCE, Candidate())
    assert any(why in remark for remark in result.remarks)


def test_a_proof_that_runs_out_of_budget_is_inconclusive():
    result = confirmed(Machine(), seconds=20.0)
    assert (result.verdict, result.remarks) == (Verdict.INCONCLUSIVE, ("ended before everything was measured",))

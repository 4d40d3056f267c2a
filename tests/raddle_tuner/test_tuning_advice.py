"""What to do with a result: the sentence, the patch as a policy takes it, the code that really runs."""

from dataclasses import replace

import numpy as np
import onnxruntime
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from support import tiny_models

from generate.docs.tuningpictures import example, undecided
from raddle.planning import policy
from raddle_operator.results.candidate import Candidate
from raddle_operator.results.objective import Kind
from raddle_operator.results.verdict import Interval, Verdict
from raddle_tuner.search import advice

TUNING = example(Kind.LATENCY)
PATCH = {"spec": {"threads": {"intraOp": 3, "spinning": "Never"}}}


def with_result(**changes):
    return replace(TUNING, result=replace(TUNING.result, **changes))


def test_what_is_better_is_said_with_gain_interval_and_noise():
    changed = with_result(gain=Interval(percent=-18.0, low=-23.0, high=-12.0), noise_percent=1.5)
    assert advice.answer(changed.result) == (
        "Use ioBinding True, intraOp 3, spinning Never: the slowest tenth of the requests takes 18.0 % less time "
        "(95 % interval: 12.0 to 23.0 %) than with the plan. Two measurements of the same settings differ by up to "
        "1.5 % here."
    )


def test_more_of_a_figure_is_said_as_more():
    changed = with_result(figure="throughput", gain=Interval(percent=18.0, low=12.0, high=23.0))
    said = "18.0 % more requests are answered (95 % interval: 12.0 to 23.0 %) than"
    assert said in advice.answer(changed.result)


@pytest.mark.parametrize(
    ("verdict", "begins"),
    [
        (
            Verdict.NO_DIFFERENCE,
            "Keep the plan: no setting is significantly better. Two measurements of the same settings differ",
        ),
        (
            Verdict.INCONCLUSIVE,
            "Not decided: the budget ran out before it was certain whether ioBinding True, intraOp 3",
        ),
        (Verdict.BOUND_NOT_MET, "No setting that was measured keeps p99 within 40 ms: with the plan, "),
    ],
)
def test_the_other_verdicts_say_what_to_do(verdict, begins):
    assert advice.answer(undecided(verdict).result).startswith(begins)


def test_a_rate_above_the_capacity_is_said_with_both():
    changed = with_result(verdict=Verdict.BOUND_NOT_MET, bound=None, capacity=12.0)
    assert advice.answer(changed.result).startswith(
        "20 requests a second are above the capacity: at most 12 are served. Lower the rate, or give more CPUs."
    )


def test_where_nothing_else_was_measured_no_other_setting_is_said_to_break_the_bound():
    result = undecided(Verdict.BOUND_NOT_MET).result
    said = advice.answer(replace(result, trials=result.trials[:1]))
    assert said.startswith("p99 does not stay within 40 ms: with the plan, ")
    assert "No other setting was measured." in said


def test_a_winner_that_only_keeps_the_bound_is_not_said_to_gain():
    changed = with_result(figure="cpu_ms_per_request", gain=Interval(percent=20.0, low=18.0, high=22.0))
    assert advice.answer(changed.result).startswith(
        "Use ioBinding True, intraOp 3, spinning Never: it keeps p99 within 40 ms, which the plan did not; "
        "CPU a request +20.0 % [+18.0, +22.0] against the plan."
    )


def test_too_few_queries_are_not_called_a_bound_that_is_broken():
    bound = replace(TUNING.result.bound, queries=300, over=1, needed=662)
    changed = with_result(verdict=Verdict.BOUND_NOT_MET, bound=bound)
    assert "Not certain that p99 stays within 40 ms" in advice.answer(changed.result)
    assert "it takes 662 requests to be sure. Set a longer budget." in advice.answer(changed.result)


def test_noise_that_was_not_measured_is_not_said_to_be_none():
    changed = with_result(verdict=Verdict.INCONCLUSIVE, gain=None, noise_percent=0.0)
    assert "of the same settings" not in advice.answer(changed.result)


def test_the_patch_is_the_winners_part_of_a_policy_with_the_reasons():
    patch = advice.policy_patch(TUNING)
    assert yaml.safe_load(patch) == PATCH
    assert "# threads.spinning: -" in patch
    assert "program.ioBinding" not in patch
    policy.parse(yaml.safe_load(patch)["spec"])


def comments(patch):
    return " ".join(line.removeprefix("#").strip() for line in patch.splitlines() if line.startswith("#"))


def test_a_patch_that_counts_on_the_program_says_what_that_has_to_do():
    settings = {"program.instances": 2, "budget.workersPerContainer": 2, "threads.intraOp": 1}
    patch = advice.policy_patch(with_result(winner=Candidate.of(settings)))
    needed = "requires changes to the program: Run 2 processes, each with a session of its own;"
    assert yaml.safe_load(patch)["spec"]["budget"] == {"workersPerContainer": 2}
    assert needed in comments(patch)
    alone = advice.policy_patch(with_result(winner=Candidate.of({"threads.intraOp": 1})))
    assert "requires changes" not in comments(alone)


def test_the_patch_of_a_winner_that_only_keeps_the_bound_says_so():
    patch = advice.policy_patch(with_result(gain=Interval(percent=20.0, low=18.0, high=22.0)))
    assert "keeps p99 within 40 ms (the plan does not)" in comments(patch)
    assert "(the plan does not)" not in comments(advice.policy_patch(TUNING))


@given(st.text(max_size=200))
def test_no_name_gets_out_of_the_comments(name):
    patch = advice.policy_patch(replace(TUNING, name=name))
    assert yaml.safe_load(patch) == PATCH


@pytest.mark.parametrize("verdict", [Verdict.NO_DIFFERENCE, Verdict.INCONCLUSIVE, Verdict.BOUND_NOT_MET])
def test_there_is_no_patch_for_what_is_not_certain(verdict):
    assert advice.policy_patch(undecided(verdict)) == ""


def test_there_is_no_patch_where_no_policy_can_do_it():
    assert advice.policy_patch(with_result(winner=Candidate.of({"program.ioBinding": True}))) == ""


def code(candidate, where):
    [one] = advice.for_the_program(Candidate.of(candidate))
    return dict(one.code)[where]


def test_the_lines_that_bind_inputs_give_the_same_results(tmp_path):
    session = onnxruntime.InferenceSession(tiny_models.write(tmp_path), providers=["CPUExecutionProvider"])
    inputs = {"x": np.random.default_rng(0).random((2, 8, 8), dtype=np.float32)}
    names = {"session": session, "inputs": inputs}
    exec(code({"program.ioBinding": True}, "Python"), names)
    assert np.array_equal(names["results"][0], session.run(None, inputs)[0])


def test_instances_are_said_as_workers():
    assert code({"program.instances": 3}, "gunicorn") == "gunicorn --workers 3 app:app\n"


@pytest.mark.parametrize(
    "settings", [{}, {"threads.intraOp": 3}, {"program.ioBinding": False}, {"program.instances": 1}]
)
def test_nothing_is_advised_that_the_program_does_anyway(settings):
    assert advice.for_the_program(Candidate.of(settings)) == ()

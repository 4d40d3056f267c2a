"""A search driven: what is said once, what is recorded, when it ends. Blocks are given, not measured."""

import signal
from dataclasses import dataclass, field
from random import Random

import pytest

from raddle_operator.results.candidate import Candidate
from raddle_operator.results.objective import Kind, Objective
from raddle_operator.results.verdict import Verdict
from raddle_tuner.search import search
from raddle_tuner.search.blocks import Block, Failure
from raddle_tuner.search.space import Case, space
from raddle_tuner.trials import ending
from raddle_tuner.trials.driving import Driver, enough_s, load_s, sure_s
from raddle_tuner.trials.record import Record, RecordError

AIM = Objective(kind=Kind.LATENCY, rate=100.0)
SPACE = space(Case(), {"threads.intraOp": [1, 2]})


@dataclass
class Given:
    """Answers all asks alike, as `Measuring` does."""

    answer: Block | Failure
    asked: list = field(default_factory=list)
    said: list = field(default_factory=list)
    after: int = 0
    ended_by: signal.Signals | None = None

    def measure(self, ask):
        self.asked.append(ask)
        if self.ended_by is not None and len(self.asked) > self.after:
            signal.raise_signal(self.ended_by)
        with ending.awaited():
            return self.answer

    def say(self, note):
        self.said.append(note)


def block(**changes):
    return Block(latencies_ms=(4.0,) * 200, missed=0, seconds=1.0, cpu_s=0.1, **changes)


def asking(seconds=40.0):
    return search.tune(AIM, SPACE, search.Limits(seconds=seconds))


def driver(given, record=None):
    return Driver(measuring=given, budget_s=60.0, told=lambda ask, left_s: None, record=record)


def recorded(tmp_path):
    return Record.of(tmp_path / "record", {"version": 1})


def test_that_blocks_are_disturbed_is_said_once():
    given = Given(block(disturbed=("other processes took 40 % of the machine",)))
    driver(given).drive(asking())
    assert len(given.asked) > 2
    assert given.said == [
        "other processes took 40 % of the machine: disturbed blocks are less precise, so the search takes longer"
    ]


def test_a_signal_ends_the_search_with_what_is_known():
    given = Given(block(), after=3, ended_by=signal.SIGTERM)
    with ending.signals():
        result = driver(given).drive(asking())
        assert ending.status() == 143
    assert result.verdict is Verdict.INCONCLUSIVE
    assert len(given.asked) == 4


def test_what_was_recorded_is_not_measured_again(tmp_path):
    given = Given(block())
    with recorded(tmp_path) as record:
        complete = driver(given, record).drive(asking())
    again = Given(block())
    with recorded(tmp_path) as record:
        assert [ask for ask, _ in record.answers] == given.asked
        assert driver(again, record).drive(asking()) == complete
    assert again.asked == []


def test_a_record_of_another_search_is_refused(tmp_path):
    with recorded(tmp_path) as record:
        driver(Given(block()), record).drive(asking())
    other = search.tune(Objective(kind=Kind.LATENCY, rate=50.0), SPACE, search.Limits(seconds=40.0))
    with recorded(tmp_path) as record, pytest.raises(RecordError, match="another search"):
        driver(Given(block()), record).drive(other)


def test_a_baseline_that_fails_is_not_recorded_for_next_time(tmp_path):
    given = Given(Failure("no port"))
    with recorded(tmp_path) as record, pytest.raises(search.BaselineError, match="no port"):
        driver(given, record).drive(asking())
    with recorded(tmp_path) as record:
        assert record.answers == ()
    assert given.asked[0].candidate == Candidate()
    assert given.said == []


def test_a_search_goes_on_where_nothing_can_be_recorded_any_more(tmp_path):
    given = Given(block())
    with recorded(tmp_path) as record, open("/dev/full", "wb", buffering=0) as full:  # noqa: PTH123
        driver(given, Record(full, record.answers, 0.0)).drive(asking())
        assert len(given.asked) > 2
        assert given.said == ["/dev/full: No space left on device: blocks are no longer recorded"]


@pytest.mark.parametrize("rate", [0.1, 1.0, 5.0, 20.0, 50.0, 500.0])
@pytest.mark.parametrize("start_s", [0.3, 4.0, 20.0])
def test_more_than_the_plan_is_measured_in_the_budget_that_is_said_to_be_enough(rate, start_s):
    aim = Objective(kind=Kind.LATENCY, rate=rate)
    searched = space(Case(), {"threads.intraOp": [1, 2, 3, 4, 5]})
    budget_s = enough_s(aim, start_s)
    candidates, _ = search.estimate(aim, searched, search.Limits(seconds=load_s(aim, budget_s, start_s)))
    assert candidates > 2


@pytest.mark.parametrize("rate", [5.0, 20.0])
@pytest.mark.parametrize("start_s", [0.3, 20.0])
def test_it_is_certain_that_a_clear_winner_keeps_the_bound_in_the_budget_that_is_said_to_be_enough(rate, start_s):
    aim = Objective(kind=Kind.LATENCY, rate=rate, p99_ms=20.0)
    noise = Random(1)

    def measured(ask):
        latency_ms = (4.0 if ask.candidate.get("threads.intraOp") == 2 else 5.0) * noise.lognormvariate(0, 0.03)
        return Block(latencies_ms=(latency_ms,) * round((ask.rate or 100) * ask.seconds), missed=0, seconds=ask.seconds)

    limits = search.Limits(seconds=load_s(aim, sure_s(aim, start_s), start_s))
    result = search.drive(search.tune(aim, SPACE, limits), measured)
    assert result.verdict is Verdict.BETTER
    assert result.bound.holds


def test_no_budget_is_too_short_for_a_bound_that_there_is_not():
    assert sure_s(AIM, 20.0) == 0.0

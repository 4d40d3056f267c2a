"""What is recorded of sessions and of runs: as much as the plan asks for, and nothing that hinders the process."""

import pathlib
import threading

import pytest

from raddle import files
from raddle.process import current
from raddle.report import observe, record

FACTS = current.Facts(0b11, 1.5, 3)


def created(level=None):
    values = {"runtime": "toy", "version": "1.0", "plan": "v=1", "effective": {"intraOp": 2}, "because": {}}
    return observe.created({} if level is None else {"observe": level}, facts=FACTS, **values)


@pytest.fixture(autouse=True)
def clean():
    """The records are the process's: each test begins with none."""
    record.sessions.clear()
    yield
    record.sessions.clear()


@pytest.mark.parametrize("level", [None, "sessions"])
def test_a_session_is_recorded_unless_the_plan_says_otherwise(level):
    made = created(level)
    observe.initialized(made, ["CPU"])
    assert record.sessions == [made]
    assert made["providers"] == ["CPU"]
    assert (made["quotaCPUs"], made["workersSeen"]) == (1.5, 3)
    assert "runs" not in made
    assert record.UNFINISHED not in made


def test_nothing_is_recorded_where_the_plan_says_none():
    made = created("none")
    observe.initialized(made, ["CPU"])
    assert made == {}
    assert record.sessions == []


def test_a_record_is_completed_once():
    made = created()
    observe.initialized(made, ["CPU"])
    observe.initialized(made, ["other"])
    assert made["providers"] == ["CPU"]


# --- runs ---------------------------------------------------------------------------------------------------------


class Session:
    """Stands in for a runtime's session."""

    def __init__(self, made):
        self.raddle = made

    def _run(self, outputs, feed=None):
        """Runs."""
        if callable(feed):
            feed()
        return outputs

    run = observe.timed(_run)


def counted():
    return {"runs": observe.Runs()}


def test_each_run_is_counted_by_the_power_of_two_below_which_it_stayed():
    session = Session(counted())
    assert [session.run(index, feed=None) for index in range(5)] == [0, 1, 2, 3, 4]
    counts = session.raddle["runs"].counts
    assert sum(counts) == 5
    # A run takes more than a nanosecond.
    assert counts[0] == 0


def test_a_run_that_fails_is_counted_and_raises_what_it_raised():
    session = Session(counted())
    with pytest.raises(ZeroDivisionError):
        session.run(0, feed=lambda: 1 // 0)
    assert sum(session.raddle["runs"].counts) == 1
    assert session.raddle["runs"].active == []


def test_the_most_runs_at_the_same_time_are_noted():
    session = Session(counted())
    together = threading.Barrier(4)
    callers = [threading.Thread(target=session.run, args=(0, together.wait)) for _ in range(4)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert session.raddle["runs"].high_water == 4
    assert session.raddle["runs"].active == []


@pytest.mark.parametrize("made", [{}, {"runtime": "toy"}])
def test_a_session_without_a_record_runs_as_ever(made):
    assert Session(made).run(7) == 7
    bare = Session.__new__(Session)
    assert bare.run(8) == 8


def test_a_timed_method_keeps_its_name_and_words():
    assert (Session.run.__name__, Session.run.__doc__) == ("_run", "Runs.")


# --- threads --------------------------------------------------------------------------------------------------------


def test_tasks_are_the_threads_of_the_process():
    before = files.tasks()
    stop = threading.Event()
    workers = [threading.Thread(target=stop.wait) for _ in range(3)]
    for worker in workers:
        worker.start()
    during = files.tasks()
    listed = len(list(pathlib.Path("/proc/self/task").iterdir()))
    stop.set()
    for worker in workers:
        worker.join()
    assert during == listed
    assert during >= before

"""What is recorded of sessions and of runs: as much as the plan asks for, and nothing that hinders the process."""

import binascii
import os
import pathlib
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raddle import env, files
from raddle.process import current, totals
from raddle.report import observe, record

FACTS = current.Facts(0b11, 1.5, 3)


def created(level=None, **given):
    creation = observe.begin({} if level is None else {"observe": level})
    values = {"runtime": "toy", "version": "1.0", "plan": "v=1", "effective": {"intra": 2}, "because": {}}
    return creation.created(facts=FACTS, **{**values, **given})


@pytest.fixture(autouse=True)
def clean():
    """The records are the process's: each test begins with none."""
    record.sessions.clear()
    yield
    record.sessions.clear()


@pytest.mark.parametrize("level", [None, "sessions"])
def test_a_session_is_recorded_unless_the_plan_says_otherwise(level):
    made = created(level)
    observe.initialized(made, ["CPU"], [("x", "tensor(float)", (1, "N"))])
    assert record.sessions == [made]
    assert made["providers"] == ["CPU"]
    assert made["inputs"] == [["x", "tensor(float)", [1, "N"]]]
    assert made["createMs"] >= 0
    assert (made["quotaCPUs"], made["workersSeen"]) == (1.5, 3)
    assert made["totals"]["processCpuUs"] > 0
    assert "runs" not in made
    assert record.UNFINISHED not in made


def test_nothing_is_recorded_where_the_plan_says_none():
    made = created("none")
    observe.initialized(made, ["CPU"], [])
    assert made == {}
    assert record.sessions == []


def test_the_threads_that_came_with_a_session_are_named_where_a_report_is_asked_for(monkeypatch):
    monkeypatch.setenv(env.REPORT, "/nonexistent")
    creation = observe.begin({})
    stop = threading.Event()
    worker = threading.Thread(target=stop.wait)
    worker.start()
    made = creation.created(runtime="toy", version="1", plan="", effective={}, because={}, facts=FACTS)
    observe.initialized(made, [], [])
    stop.set()
    worker.join()
    assert worker.native_id in made["threads"]
    assert threading.main_thread().native_id not in made["threads"]


def test_without_a_report_threads_are_counted_only():
    made = created()
    observe.initialized(made, [], [])
    assert made["tasks"] >= 1
    assert "threads" not in made


def test_a_record_is_completed_once():
    made = created()
    observe.initialized(made, ["CPU"], [])
    observe.initialized(made, ["other"], [])
    assert made["providers"] == ["CPU"]


# --- the model ----------------------------------------------------------------------------------------------------


@given(st.integers(0, 3 * observe.MODEL_END_BYTES))
def test_a_model_is_told_by_its_size_and_both_ends(size):
    model = (b"0123456789abcdef" * (size // 16 + 1))[:size]
    found = observe.identity(model)
    ends = (model[: observe.MODEL_END_BYTES], model[max(0, size - observe.MODEL_END_BYTES) :])
    assert found == {
        "bytes": size,
        "head": f"{binascii.crc32(ends[0]):08x}",
        "tail": f"{binascii.crc32(ends[1]):08x}",
    }


@pytest.mark.parametrize("size", [0, 1, observe.MODEL_END_BYTES, 5 * observe.MODEL_END_BYTES + 3])
@pytest.mark.parametrize("kind", [str, pathlib.Path])
def test_a_model_s_file_is_told_as_its_bytes_are(tmp_path, size, kind):
    model = os.urandom(size)
    path = tmp_path / "model.onnx"
    path.write_bytes(model)
    assert observe.identity(kind(path)) == observe.identity(model)


@pytest.mark.parametrize("model", [None, "/nowhere/model.onnx", 7.5, "a\0b"])
def test_a_model_that_can_not_be_read_has_no_identity(model):
    assert observe.identity(model) is None


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
    document = session.raddle["runs"].document()
    assert sum(document["log2ns"].values()) == 5
    assert document["highWater"] == 1
    assert all(0 < int(exponent) < 64 for exponent in document["log2ns"])


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


# --- totals -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("texts", "found"),
    [
        (
            {
                "cpu.stat": "usage_usec 900\nuser_usec 5\nnr_periods 4\nnr_throttled 2\nthrottled_usec 77\n",
                "cpu.pressure": "some avg10=0.00 avg60=0.00 avg300=0.00 total=123\nfull avg10=0.00 total=9\n",
            },
            {"cpuUs": 900, "periods": 4, "throttledPeriods": 2, "throttledUs": 77, "pressureUs": 123},
        ),
        (
            {"cpu.stat": "nr_periods 4\nnr_throttled 2\nthrottled_time 77123\n", "cpuacct.usage": "900999\n"},
            {"cpuUs": 900, "periods": 4, "throttledPeriods": 2, "throttledUs": 77},
        ),
        ({"cpu.stat": "usage_usec many\nrubbish\n\n", "cpu.pressure": "total=\n"}, {}),
        ({}, {}),
    ],
)
def test_a_cgroup_s_totals_are_read_in_both_versions(tmp_path, texts, found):
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    said = dict(totals.read(str(tmp_path), recent=False))
    assert said.pop("processCpuUs") > 0
    assert said.pop("tasks") >= 1
    assert said == found


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

"""A record of a tuning: what was measured comes back as it was, and one of another question is refused."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import tunings

from raddle_operator.results.candidate import Candidate
from raddle_tuner.search.blocks import Block, Failure, MeasurementRequest
from raddle_tuner.search.space import Case, space
from raddle_tuner.trials.record import Record, RecordError, question

KEY = tunings.key()
SPACE = space(Case())
ASK = MeasurementRequest(candidate=Candidate.of({"threads.intraOp": 1}), rate=50.0, seconds=1.0, seed=1, phase="A/A")
BLOCK = Block(latencies_ms=(4.0, 5.5), missed=0, seconds=1.0)


def asked(key=KEY, budget_s=180.0):
    return question("model.onnx", "sha256:2", key, SPACE, budget_s=budget_s, trials=64)


ASKS = st.builds(
    MeasurementRequest,
    candidate=tunings.candidates,
    rate=tunings.maybe(tunings.positive),
    seconds=tunings.positive,
    seed=st.integers(0, 2**31),
    phase=tunings.texts,
)
ANSWERS = tunings.blocks(most=300) | st.builds(Failure, tunings.texts)


@given(st.lists(st.tuples(ASKS, ANSWERS), max_size=4))
def test_what_was_written_is_read_as_it_was(tmp_path_factory, answers):
    path = tmp_path_factory.mktemp("record") / "record"
    with Record.of(path, asked()) as record:
        for number, (ask, answer) in enumerate(answers):
            record.add(ask, answer, number)
    with Record.of(path, asked()) as record:
        assert record.answers == tuple(answers)
        assert record.spent_s == max(0, len(answers) - 1)


def test_a_line_that_was_cut_in_two_is_dropped_and_the_next_block_stands_in_its_place(tmp_path):
    path = tmp_path / "record"
    with Record.of(path, asked()) as record:
        record.add(ASK, BLOCK, 1.0)
    path.write_text(path.read_text() + '{"request": {"candi')
    with Record.of(path, asked()) as record:
        assert record.answers == ((ASK, BLOCK),)
        record.add(replace(ASK, seed=2), BLOCK, 2.0)
    with Record.of(path, asked()) as record:
        assert [ask.seed for ask, _ in record.answers] == [1, 2]


def test_a_question_that_was_cut_in_two_is_written_again(tmp_path):
    path = tmp_path / "record"
    Record.of(path, asked()).file.close()
    whole = path.read_bytes()
    path.write_bytes(whole[:100])
    Record.of(path, asked()).file.close()
    assert path.read_bytes() == whole


def test_a_record_of_another_question_is_refused_with_what_differs(tmp_path):
    path = tmp_path / "record"
    Record.of(path, asked()).file.close()
    with pytest.raises(RecordError) as error:
        Record.of(path, asked(replace(KEY, limit_cpus=None), budget_s=60.0))
    assert str(error.value) == (
        f"{path} is of a different tuning: key.limitCPUs is 2.0 there, null now; budgetS is 180.0 there, 60.0 now"
    )


def test_how_long_the_first_start_took_is_kept_since_the_search_was_planned_by_it(tmp_path):
    path = tmp_path / "record"
    Record.of(path, asked(), 2.5).file.close()
    with Record.of(path, asked(), 0.7) as record:
        assert record.start_s == 2.5


def test_two_do_not_write_one_record(tmp_path):
    path = tmp_path / "record"
    with Record.of(path, asked()), pytest.raises(RecordError, match="another raddle tune is writing it"):
        Record.of(path, asked())


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("nothing of it\n", ":1: is not a record of raddle tune"),
        ("without an end of line", ":1: is not a record of raddle tune"),
        ("a file of mine\nwith an end", ":1: is not a record of raddle tune"),
        ("[]\n", ":1: is not a record of raddle tune"),
        ('{"version": 0}\n', ":1: is not a record of raddle tune"),
        (json.dumps(asked()) + "\nask\n", ":2: Expecting value"),
        (json.dumps(asked()) + '\n{"request": 1}\n', ":2: request: 1 is not an object"),
        (json.dumps(asked()) + "\n3\n", ":2: line: 3 is not an object"),
    ],
)
def test_a_file_that_is_no_record_is_refused_with_the_line(tmp_path, text, said):
    path = tmp_path / "record"
    path.write_text(text)
    with pytest.raises(RecordError) as error:
        Record.of(path, asked())
    assert str(error.value).startswith(f"{path}{said}")
    assert path.read_text() == text


@pytest.mark.parametrize("path", ["/dev/full", "/", "/nowhere/record"])
def test_what_no_record_can_be_is_said(path, tmp_path):
    with pytest.raises(RecordError, match=f"^{path}: "):
        Record.of(tmp_path / path, asked())

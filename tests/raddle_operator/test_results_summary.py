"""What a tuning's pod leaves as its termination message: always short enough, and read back as it was meant."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import tunings
from support.examples import examples

from raddle_operator.results.candidate import Candidate
from raddle_operator.results.summary import MOST_BYTES, DocumentError, Failed, Summary, from_text, to_text
from raddle_operator.results.verdict import BoundTest, Interval, Verdict
from raddle_tuner.search.document import summary_of

KEY = tunings.key()


def example(remarks=(), winner=None):
    return Summary(
        verdict=Verdict.BETTER,
        figure="slowest_tenth_ms",
        baseline=Candidate(),
        winner=winner or Candidate.of({"threads.intraOp": 3}),
        planned=Candidate.of({"threads.intraOp": 2}),
        gain=Interval(percent=-18, low=-23, high=-12),
        noise_percent=1.5,
        trials=12,
        bound=BoundTest(bound_ms=20.0, queries=900, over=2, needed=662),
        capacity=None,
        key=KEY,
        finished="2026-11-23T10:00:00Z",
        remarks=tuple(remarks),
    )


@given(tunings.tunings)
@examples(0.4)
def test_any_tuning_has_a_summary_that_is_read_back(found):
    short = summary_of(found)
    assert from_text(to_text(short)) == short
    assert short.trials == sum(len(one.blocks) > 0 for one in found.result.trials), "what was skipped was not tried"


@given(st.lists(st.text(max_size=3000), max_size=6))
@examples(0.4)
def test_remarks_are_cut_until_it_fits(remarks):
    text = to_text(example(remarks))
    assert len(text.encode()) <= MOST_BYTES
    assert "\n" not in text
    read = from_text(text)
    assert isinstance(read, Summary)
    assert read.winner == example().winner
    for cut, whole in zip(read.remarks, remarks, strict=False):
        assert whole.startswith(cut.removesuffix("…"))


def test_no_more_is_cut_of_remarks_than_must_be():
    text = to_text(example(["short", "long " * 2000]))
    assert len(text.encode()) > 1000
    read = from_text(text)
    assert read.remarks[0] == "short"
    assert read.remarks[1].endswith("…")


def test_settings_that_are_too_long_are_an_error_that_says_so():
    text = to_text(example(winner=Candidate.of({"threads.affinity": "0,2," * 2000})))
    assert len(text.encode()) <= MOST_BYTES
    assert "the winner's settings are too long for 4096 bytes: affinity 0,2," in from_text(text).error


@given(st.text(max_size=6000))
@examples(0.4)
def test_an_error_is_read_back_as_much_of_it_as_fits(error):
    text = to_text(Failed(error))
    assert len(text.encode()) <= MOST_BYTES
    assert error.startswith(from_text(text).error.removesuffix("…"))


def test_an_error_is_alone():
    assert json.loads(to_text(Failed("the model does not load"))) == {"version": 1, "error": "the model does not load"}


def test_it_has_the_names_that_the_whole_document_has():
    assert set(json.loads(to_text(example()))) == {
        *("version", "verdict", "figure", "baseline", "winner", "planned", "gain", "noisePercent", "trials", "bound"),
        *("capacity", "key", "finished", "remarks"),
    }


BROKEN = {
    "nothing": ("", "summary: '' is not JSON"),
    "cut off": (to_text(example())[:100], "is not JSON"),
    "nested without end": ("[" * 4000, "is not JSON"),
    "a list": ("[]", "document: [] is not an object"),
    "another version": ('{"version": 2}', "version: 2 is not 1, the one that this Raddle reads"),
    "an error that is no text": ('{"version": 1, "error": 7}', "error: 7 is not a text"),
    "half": ('{"version": 1}', "verdict: None is not one of"),
    "a figure": (to_text(example()).replace("slowest_tenth_ms", "p50"), "figure: 'p50' is not one of"),
    "a gain that is none": (to_text(example()).replace("-18", "NaN"), "gain.percent: nan is not a number"),
}


@pytest.mark.parametrize(("text", "message"), BROKEN.values(), ids=BROKEN)
def test_what_is_no_summary_is_named_by_its_field(text, message):
    with pytest.raises(DocumentError) as raised:
        from_text(text)
    assert message in str(raised.value)

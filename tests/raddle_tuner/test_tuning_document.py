"""A tuning as JSON and back: nothing is lost but what is said, and an error names the field."""

import copy
import json
from math import ceil
from random import Random
from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import tunings
from support.examples import examples

from raddle_operator.results.candidate import Candidate
from raddle_operator.results.codec import DocumentError
from raddle_operator.results.key import NodeClass
from raddle_operator.results.objective import Kind, Objective
from raddle_operator.results.verdict import BoundTest, Interval, Verdict
from raddle_tuner.search.blocks import Block
from raddle_tuner.search.document import MOST_LATENCIES, TuningResult, from_document, to_document
from raddle_tuner.search.result import Result, Trial

OBJECTIVE = Objective(kind=Kind.LATENCY, rate=50.0, p99_ms=20.0)
WINNER = Candidate.of({"threads.intraOp": 3, "threads.spinning": "Never", "program.ioBinding": True})


def block(latencies_ms):
    return Block(latencies_ms=tuple(latencies_ms), missed=1, seconds=2.5, cpu_s=0.5, disturbed=("steal 3 %",))


def tuning(latencies_ms=(4.0, 5.5)):
    trials = (
        Trial(candidate=Candidate(), phases=("noise",), blocks=(block(latencies_ms),)),
        Trial(candidate=WINNER, phases=(), blocks=(), skipped="does not start"),
    )
    result = Result(
        objective=OBJECTIVE,
        verdict=Verdict.BETTER,
        figure="slowest_tenth_ms",
        baseline=Candidate(),
        winner=WINNER,
        gain=Interval(percent=-18, low=-23, high=-12),
        noise_percent=1.5,
        bound=BoundTest(bound_ms=20.0, queries=900, over=2, needed=662),
        contributions=(("threads.intraOp", Interval(percent=-10, low=-12, high=-8)),),
        front=(WINNER,),
        trials=trials,
        remarks=("3 of 40 blocks were disturbed",),
    )
    node = NodeClass(architecture="x86_64", model="EPYC", sockets=1, numa_nodes=1, l3_domains=2, cores=8, cpus=16)
    key = tunings.key(model="sha256:5e1f", image="", node_class=node)
    planned = Candidate.of({"threads.intraOp": 2})
    return TuningResult(name="resnet50.onnx", finished="2026-11-23T10:00:00Z", key=key, result=result, planned=planned)


def through_json(document):
    return json.loads(json.dumps(document, allow_nan=False))


@given(tunings.tunings)
@examples(0.4)
def test_any_tuning_is_the_same_after_its_document(found):
    assert from_document(through_json(to_document(found))) == found


@given(st.integers(MOST_LATENCIES + 1, 20 * MOST_LATENCIES), st.integers(0, 10**6))
@examples(0.25)
def test_of_many_latencies_means_are_kept_and_how_many_there_were(count, seed):
    random = Random(seed)
    latencies_ms = sorted(random.lognormvariate(2, 1) for _ in range(count))
    document = through_json(to_document(tuning(latencies_ms)))
    read = from_document(document)
    [came] = read.result.trials[0].blocks
    assert list(came.latencies_ms) == sorted(came.latencies_ms)
    assert len(came.latencies_ms) == count
    assert came.throughput == tuning(latencies_ms).result.trials[0].blocks[0].throughput
    assert fmean(came.latencies_ms) == pytest.approx(fmean(latencies_ms))
    tenth = round(count / 10)
    assert fmean(came.latencies_ms[-tenth:]) == pytest.approx(fmean(latencies_ms[-tenth:]))
    # Each lies among those that are a thousandth of all beside it.
    around = max(1, count // 1000 + 1)
    at = ceil(count * 0.99) - 1
    assert latencies_ms[at - around] <= came.latencies_ms[at] <= latencies_ms[min(at + around, count - 1)]
    assert to_document(read) == document


def test_a_long_tuning_fits_into_a_config_map():
    many = tuning([1234.567] * 5000)
    document = to_document(many)
    one = document["result"]["trials"][0]["blocks"][0]
    assert 300 * len(json.dumps(one)) < 1 << 20


BROKEN = {
    "version": (["version"], 2, "version: 2 is not 1, the one that this Raddle reads"),
    "no name": (["name"], None, "name: None is not a text"),
    "key": (["key"], [], "key: [] is not an object"),
    "a count": (["key", "nodeClass", "cores"], 1.5, "key.nodeClass.cores: 1.5 is not an integer"),
    "a yes for a count": (["key", "nodeClass", "cores"], True, "key.nodeClass.cores: True is not an integer"),
    "a limit": (["key", "limitCPUs"], "2", "key.limitCPUs: '2' is not a number"),
    "not finite": (["result", "noisePercent"], float("nan"), "result.noisePercent: nan is not a number"),
    "too large": (["result", "noisePercent"], 10**400, "is not a number"),
    "a verdict": (["result", "verdict"], "Best",
     "result.verdict: 'Best' is not one of Better, NoDifference, Inconclusive, BoundNotMet"),
    "a figure": (["result", "figure"], "p50",
     "result.figure: 'p50' is not one of slowest_tenth_ms, throughput, cpu_ms_per_request"),
    "a setting": (["result", "winner", "threads.intraOp"], [3],
     "result.winner.threads.intraOp: [3] is not a text, a number, true or false"),
    "a setting below another's value": (["result", "winner"], {"threads": 2, "threads.intraOp": 3},
     "result.winner.threads.intraOp: 3 is not absent where threads is 2"),
    "trials": (["result", "trials"], {}, "result.trials: {} is not a list"),
    "a latency": (["result", "trials", 0, "blocks", 0, "latenciesMs", 1], "5",
     "result.trials[0].blocks[0].latenciesMs[1]: '5' is not a number"),
    "a gain": (["result", "gain", "low"], None, "result.gain.low: None is not a number"),
}  # fmt: skip


@pytest.mark.parametrize(("path", "value", "message"), BROKEN.values(), ids=BROKEN)
def test_what_is_no_tuning_is_named_by_its_field(path, value, message):
    document = to_document(tuning())
    at = document
    for step in path[:-1]:
        at = at[step]
    at[path[-1]] = value
    with pytest.raises(DocumentError) as raised:
        from_document(document)
    assert message in str(raised.value)


@pytest.mark.parametrize("document", [None, [], "text", {}, {"version": 1}])
def test_what_is_no_document_at_all_is_refused(document):
    with pytest.raises(DocumentError):
        from_document(document)


def large(**changes):
    document = to_document(tuning([float(n) for n in range(1000)]))
    block = document["result"]["trials"][0]["blocks"][0]
    block.update(changes)
    return document


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"requests": 10**12}, "requests"),
        ({"requests": 3}, "requests"),
        ({"requests": None}, "requests"),
        ({"latencyMeansMs": [1.0]}, "latencyMeansMs"),
        ({"latencyMeansMs": [float(n) for n in range(MOST_LATENCIES, 0, -1)]}, "latencyMeansMs"),
    ],
)
def test_means_that_can_be_none_are_refused(changes, field):
    with pytest.raises(DocumentError, match=rf"^result\.trials\[0\]\.blocks\[0\]\.{field}: "):
        from_document(large(**changes))


def test_no_document_takes_more_memory_than_a_long_tuning():
    document = large(requests=6_000_000)
    trial = document["result"]["trials"][0]
    trial["blocks"] = [copy.deepcopy(trial["blocks"][0]) for _ in range(2)]
    with pytest.raises(DocumentError, match="in all blocks together"):
        from_document(document)


def test_fields_of_a_later_raddle_are_ignored_and_those_with_a_default_may_be_absent():
    document = to_document(tuning())
    document["later"] = document["result"]["later"] = {"x": 1}
    del document["result"]["trials"][0]["skipped"]
    assert from_document(document) == tuning()


def test_a_document_is_not_changed_by_reading_it():
    document = to_document(tuning([float(n) for n in range(1000)]))
    before = copy.deepcopy(document)
    from_document(document)
    assert document == before

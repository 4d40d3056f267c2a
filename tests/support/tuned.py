"""Any tuning, for hypothesis, and an example of one: a small simulated search with the words of `tuning` only."""

from hypothesis import strategies as st

from raddle_operator.tuning.candidate import Candidate
from raddle_operator.tuning.document import Tuning
from raddle_operator.tuning.figure import FIGURES
from raddle_operator.tuning.key import Key, NodeClass
from raddle_operator.tuning.measured import Block
from raddle_operator.tuning.objective import Kind, Objective
from raddle_operator.tuning.result import BoundTest, Interval, Result, Trial, Verdict

# --- any --------------------------------------------------------------------------------------------------------------

texts = st.text(max_size=20)
counts = st.integers(0, 10**6)
figures = st.floats(allow_nan=False, allow_infinity=False)
positive = st.floats(1e-6, 1e9)


def maybe(values):
    return st.none() | values


objectives = st.builds(Objective, kind=st.sampled_from(Kind), rate=maybe(positive), p99_ms=maybe(positive))
node_classes = st.builds(
    NodeClass,
    architecture=texts,
    model=texts,
    sockets=counts,
    numa_nodes=counts,
    l3_domains=counts,
    cores=counts,
    cpus=counts,
    core_types=st.dictionaries(texts, counts, max_size=3).map(lambda found: tuple(found.items())),
)
keys = st.builds(
    Key,
    model=texts,
    image=texts,
    node_class=node_classes,
    limit_cpus=maybe(positive),
    objective=objectives,
    runtime=texts,
    runtime_version=texts,
    exclusive=st.booleans(),
)
candidates = st.dictionaries(texts, st.booleans() | st.integers() | figures | texts, max_size=4).map(Candidate.of)


def blocks(most=20):
    return st.builds(
        Block,
        latencies_ms=st.lists(positive, max_size=most).map(tuple),
        missed=counts,
        seconds=positive,
        cpu_s=maybe(positive),
        periods=maybe(counts),
        throttled_periods=maybe(counts),
        throttled_s=maybe(positive),
        disturbed=st.lists(texts, max_size=2).map(tuple),
    )


intervals = st.builds(Interval, percent=figures, low=figures, high=figures)
trials = st.builds(
    Trial,
    candidate=candidates,
    phases=st.lists(texts, max_size=3).map(tuple),
    blocks=st.lists(blocks(), max_size=3).map(tuple),
    skipped=texts,
)
results = st.builds(
    Result,
    objective=objectives,
    verdict=st.sampled_from(Verdict),
    figure=st.sampled_from(list(FIGURES)),
    baseline=candidates,
    winner=candidates,
    gain=maybe(intervals),
    noise_percent=figures,
    bound=maybe(st.builds(BoundTest, bound_ms=positive, queries=counts, over=counts, needed=counts)),
    contributions=st.dictionaries(texts, intervals, max_size=3).map(lambda found: tuple(found.items())),
    front=st.lists(candidates, max_size=3).map(tuple),
    trials=st.lists(trials, max_size=4).map(tuple),
    remarks=st.lists(texts, max_size=3).map(tuple),
    capacity=maybe(positive),
)
tunings = st.builds(Tuning, name=texts, finished=texts, key=keys, result=results, planned=candidates)

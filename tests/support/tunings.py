"""InferenceTunings as users write them, what is refused of them (by the reader and by a real API server), any result."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from raddle.cpus.topology import Machine
from raddle.planning.kinds import PolicyError
from raddle_operator.objects.tuning import TuningResults, results_from_object
from raddle_operator.results.candidate import Candidate
from raddle_operator.results.key import Key, NodeClass
from raddle_operator.results.objective import Kind, Objective
from raddle_operator.results.summary import Summary, to_text
from raddle_operator.results.verdict import FIGURES, BoundTest, Interval, Verdict
from raddle_tuner.search.blocks import Block
from raddle_tuner.search.document import TuningResult
from raddle_tuner.search.result import Result, Trial
from support.machines import of_size

Object = dict[str, Any]
WORKLOAD = {"kind": "Deployment", "name": "ranker"}
SERVER = {"url": "http://localhost:8080/v2/models/ranker/infer", "request": {"body": '{"inputs": []}'}}
LATENCY = {"type": "Latency", "requestsPerSecond": 50, "p99": "20ms"}
IMAGE = {"workload": None, "image": "registry.example/ranker:1", "resources": {"limits": {"cpu": "4"}}}


def tuning(name: str = "ranker", namespace: str | None = None, **spec: Any) -> Object:
    """A tuning of a Deployment's server for Latency, but for what is given of its spec; None leaves a field out."""
    given = {"workload": WORKLOAD, "server": SERVER, "objective": LATENCY, **spec}
    metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
    spec = copy.deepcopy({field: value for field, value in given.items() if value is not None})
    return {"apiVersion": "raddle.dev/v1alpha1", "kind": "InferenceTuning", "metadata": metadata, "spec": spec}


ACCEPTED: Mapping[str, Object] = {
    "a server of a Deployment": {},
    "one of its containers": {"workload": {**WORKLOAD, "apiVersion": "apps/v1", "container": "serve"}},
    "a model in its image": {"server": None, "model": "/models/ranker.onnx"},
    "a model in onnxruntime-node": {"server": None, "model": "/models/ranker.onnx", "runner": "Node"},
    "an image alone": IMAGE,
    "a command of its own": {"server": {**SERVER, "command": ["python", "serve.py", ""]}},
    "a request in a ConfigMap": {"server": {**SERVER, "request": {"configMap": {"name": "requests", "key": "one"}}}},
    "throughput without a bound": {"objective": {"type": "Throughput"}},
    "throughput within a bound": {"objective": {"type": "Throughput", "p99": "1s"}},
    "cost": {"objective": {"type": "Cost", "requestsPerSecond": 0.5, "p99": "1m30s"}},
    "one class of nodes": {"nodeClasses": {"selector": {"matchLabels": {"pool": "cpu"}}, "nodesPerClass": 3}},
    "another limit": {"resources": {"limits": {"cpu": "2500m"}}},
    "a budget": {"budget": {"minutes": 5, "trials": 20}, "parallelism": 4},
    "part of the space": {"space": ["threads.intraOp", "program.ioBinding"]},
}

# What is refused -> (the field that is named, the spec). Most of it by rules, which only an API server reads in the CRD.
REFUSED: Mapping[str, tuple[str, Object]] = {
    "neither workload nor image": ("spec.workload", {"workload": None}),
    "workload and image": ("spec.workload", {"image": "registry.example/ranker:1"}),
    "neither server nor model": ("spec.server", {"server": None}),
    "server and model": ("spec.server", {"model": "/models/ranker.onnx"}),
    "a runner of a server": ("spec.runner", {"runner": "C"}),
    "an unknown runner": ("spec.runner", {"server": None, "model": "/m.onnx", "runner": "Perl"}),
    "a model that is no path": ("spec.model", {"server": None, "model": "ranker.onnx"}),
    "an image without a limit": ("spec.resources", {**IMAGE, "resources": None}),
    "no CPU": ("spec.resources.limits.cpu", {"resources": {"limits": {"cpu": "0"}}}),
    "CPUs that are no quantity": ("spec.resources.limits.cpu", {"resources": {"limits": {"cpu": "four"}}}),
    "an unknown kind of workload": ("spec.workload.kind", {"workload": {**WORKLOAD, "kind": "Pod"}}),
    "another group's workload": ("spec.workload.apiVersion", {"workload": {**WORKLOAD, "apiVersion": "batch/v1"}}),
    "a workload without a name": ("spec.workload.name", {"workload": {"kind": "Deployment"}}),
    "a server elsewhere": ("spec.server.url", {"server": {**SERVER, "url": "http://metadata.example/latest/"}}),
    "a server whose name begins alike": ("spec.server.url", {"server": {**SERVER, "url": "http://localhost.example/"}}),
    "a server behind a login": ("spec.server.url", {"server": {**SERVER, "url": "http://localhost:1@a.example/"}}),
    "no request": ("spec.server.request", {"server": {**SERVER, "request": {}}}),
    "two requests": (
        "spec.server.request",
        {"server": {**SERVER, "request": {"body": "", "configMap": {"name": "a", "key": "b"}}}},
    ),
    "an unknown objective": ("spec.objective.type", {"objective": {"type": "Fastest"}}),
    "no objective": ("spec.objective", {"objective": None}),
    "latency without a rate": ("spec.objective.requestsPerSecond", {"objective": {"type": "Latency"}}),
    "cost without a rate": ("spec.objective.requestsPerSecond", {"objective": {"type": "Cost", "p99": "1s"}}),
    "throughput at a rate": (
        "spec.objective.requestsPerSecond",
        {"objective": {"type": "Throughput", "requestsPerSecond": 1}},
    ),
    "no requests": ("spec.objective.requestsPerSecond", {"objective": {**LATENCY, "requestsPerSecond": 0}}),
    "a bound without a unit": ("spec.objective.p99", {"objective": {**LATENCY, "p99": "20"}}),
    "a bound of two hours": ("spec.objective.p99", {"objective": {**LATENCY, "p99": "2h"}}),
    "an operator that selectors lack": (
        "spec.nodeClasses.selector",
        {"nodeClasses": {"selector": {"matchExpressions": [{"key": "pool", "operator": "Like", "values": ["a"]}]}}},
    ),
    "no node": ("spec.nodeClasses.nodesPerClass", {"nodeClasses": {"nodesPerClass": 0}}),
    "no time": ("spec.budget.minutes", {"budget": {"minutes": 0}}),
    "one trial": ("spec.budget.trials", {"budget": {"trials": 1}}),
    "nothing at once": ("spec.parallelism", {"parallelism": 0}),
}


# --- what was found -------------------------------------------------------------------------------------------------

SERVED_IMAGE = "example.test/serve:1"


def key(**changes: Any) -> Key:
    """Of a model in an image under a limit of 2 CPUs."""
    found = Key(
        model="sha256:" + "5e" * 32,
        image="sha256:" + "1a" * 32,
        node_class=NodeClass.of(of_size(32)),
        limit_cpus=2.0,
        objective=Objective(kind=Kind.LATENCY, rate=50.0, p99_ms=20.0),
        runtime="onnxruntime",
        runtime_version="1.29.0",
    )
    return replace(found, **changes)


def summary(machine: Machine, **changes: Any) -> Summary:
    """Of a server under a limit of 4 CPUs: 3 threads take 18 % less time. `key` is changes of the key."""
    of_server = key(model="", image="", node_class=NodeClass.of(machine), limit_cpus=4.0, runtime_version="1.23.2")
    found = Summary(
        verdict=Verdict.BETTER,
        figure="slowest_tenth_ms",
        baseline=Candidate(),
        winner=Candidate.of({"threads.intraOp": 3}),
        planned=Candidate.of({"threads.intraOp": 4}),
        gain=Interval(percent=-18.0, low=-23.0, high=-12.0),
        noise_percent=1.5,
        trials=24,
        bound=None,
        capacity=None,
        key=replace(of_server, **changes.pop("key", {})),
        finished="2026-11-23T10:00:00Z",
        remarks=(),
    )
    return replace(found, **changes)


def of_class(found: Summary, verdict: str | None = None, image: str = SERVED_IMAGE) -> Object:
    """One class of a tuning's status, decided by a node with this summary; `verdict` "" while it is measured."""
    made = {
        "nodeClass": found.key.node_class.title,
        "verdict": found.verdict.value if verdict is None else verdict,
        "decidedBy": "n1",
        "key": {"image": image},
        "nodes": [{"name": "n2", "state": "Failed"}, {"name": "n1", "state": "Measured", "outcome": to_text(found)}],
    }
    return {name: value for name, value in made.items() if value}


def with_status(*classes: Object, name: str = "ranker", namespace: str = "ns", **spec: Any) -> Object:
    """A tuning with a status."""
    return {**tuning(name, namespace, **spec), "status": {"classes": list(classes)}}


def by_name(*objects: Object) -> Mapping[tuple[str, str], TuningResults]:
    """What decisions read of tunings."""
    return {(one["metadata"]["namespace"], one["metadata"]["name"]): results_from_object(one) for one in objects}


# --- what a tuning found, any, for hypothesis ------------------------------------------------------------------------

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


def has_a_spec(candidate):
    """Whether no path of it is below another's value: there is no such policy."""
    try:
        return isinstance(candidate.spec(), dict)
    except PolicyError:
        return False


settings_of_paths = st.dictionaries(texts, st.booleans() | st.integers() | figures | texts, max_size=4)
candidates = settings_of_paths.map(Candidate.of).filter(has_a_spec)


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
tunings = st.builds(TuningResult, name=texts, finished=texts, key=keys, result=results, planned=candidates)

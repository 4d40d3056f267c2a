"""Tunings' Jobs as the controller knows them, for tests of `raddle_operator.jobs`: nodes, outcomes, Jobs and pods."""

from __future__ import annotations

import dataclasses
from typing import Any

from raddle_operator.jobs.places import Node, places
from raddle_operator.jobs.run import Job, Run, State
from raddle_operator.objects.tuning import TuningObject, tuning_from_object
from raddle_operator.results.candidate import Candidate
from raddle_operator.results.key import Key, NodeClass
from raddle_operator.results.objective import Kind, Objective
from raddle_operator.results.summary import Summary
from raddle_operator.results.verdict import Interval, Verdict
from support.tunings import tuning

NOW_S = 1_800_000_000
DIGEST = "sha256:" + "ab" * 32
BIG = NodeClass(architecture="x86_64", model="Big CPU", sockets=2, numa_nodes=2, l3_domains=2, cores=16, cpus=32)
SMALL = dataclasses.replace(BIG, model="Small CPU", sockets=1, numa_nodes=1, l3_domains=1, cores=4, cpus=4)
WINNER = Candidate.of({"threads.intraOp": 3, "spinning.mode": "Never"})


def tuning_object(generation: int = 1, **spec: Any) -> TuningObject:
    """A tuning of a Deployment, as in `support.tunings`, that the API server has stored."""
    found = tuning(namespace="shop", **spec)
    found["metadata"] |= {"uid": "tuning-uid", "generation": generation}
    return tuning_from_object(found)


def nodes(**classes: NodeClass | None) -> tuple[dict[str, Node], dict[str, NodeClass]]:
    """Nodes that are Ready, and the classes of those that have a NodeCPUTopology."""
    known = {name: found for name, found in classes.items() if found is not None}
    return {name: Node(labels={}) for name in classes}, known


def places_of(tuned: TuningObject, **classes: NodeClass | None):
    """Where a tuning can be measured."""
    there, known = nodes(**classes)
    return places(tuned.nodes, {}, there, known)


def outcome(verdict: Verdict = Verdict.BETTER, percent: float = -12.5, **changes: Any) -> Summary:
    """What a tuner says in the end."""
    better = verdict is Verdict.BETTER
    found = Summary(
        verdict=verdict,
        figure="slowest_tenth_ms",
        baseline=Candidate(),
        winner=WINNER if better else Candidate(),
        planned=Candidate.of({"threads.intraOp": 4}),
        gain=Interval(percent=percent, low=percent - 2, high=percent + 2) if better else None,
        noise_percent=1.5,
        trials=12,
        bound=None,
        capacity=None,
        key=Key(
            model="",
            image=DIGEST,
            node_class=BIG,
            limit_cpus=4.0,
            objective=Objective(kind=Kind.LATENCY, rate=50, p99_ms=20),
            runtime="onnxruntime",
            runtime_version="1.23.2",
        ),
        finished="2027-01-15T08:00:00Z",
        remarks=("200 requests",),
    )
    return dataclasses.replace(found, **changes)


def run(node: str, state: State, *, attempt: int = 1, generation: int = 1, since_s: float = NOW_S, **more: Any) -> Run:
    """A Job of the tuning on this node, and what became of it."""
    job = Job(
        name=f"{node}-{generation}-{attempt}",
        uid=f"uid-{node}-{generation}-{attempt}",
        owner="tuning-uid",
        tuning="ranker",
        node=node,
        generation=generation,
        attempt=attempt,
        created_s=int(since_s),
        failed="",
        message="",
        deleting=state is State.ENDING,
    )
    return Run(job=job, state=state, since_s=int(since_s), **more)

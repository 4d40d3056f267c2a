"""The summary of what runs on a node: what it says, when it changes, and when it is written."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import reports

from raddle_operator.agent.client import ApiError
from raddle_operator.agent.reflector import Backoff
from raddle_operator.agent.summary import SummaryWriter
from raddle_operator.effective.running import Summary
from raddle_operator.objects import running
from raddle_operator.objects.nodereport import Cause, Container, Finding, Level, NodeReport
from raddle_operator.objects.reading import SpecError
from raddle_operator.objects.running import Counts, Drift, Running

SMALL = ("InferenceThreading", "models", "small")
ALL = ("ClusterInferenceThreading", "", "all")


def finding(cause=Cause.CODE_SETS_IT, detail="16 threads, 2 were planned"):
    return Finding(cause=cause, detail=detail, fix="f")


def container(*findings, name="resnet-1", policy="InferenceThreading/small"):
    names = {"namespace": "models", "pod": name, "uid": f"uid-{name}", "name": "serve"}
    return Container(**names, policy=policy, findings=tuple(findings))


def report(*containers):
    return NodeReport(node="n", level=Level.PROCESSES, at="", window_s=10, containers=containers)


def after(*taken):
    """What is said after these reports, each as its containers."""
    summary = Summary()
    for one in taken:
        said = summary.take(report(*one))
    return said


def drifted(said):
    return {key: counts.drifted for key, counts in said.policies.items()}


def test_containers_are_counted_by_policy_and_cause_and_the_worst_named():
    now = [
        container(finding(), finding(Cause.RESIZED, "r")),
        container(name="resnet-2"),
        container(finding(Cause.OVERSUBSCRIBED, "o"), name="bert-1", policy="ClusterInferenceThreading/all"),
        container(finding(), name="nobodys", policy=""),
    ]
    said = after(now, now)
    assert said.policies == {
        SMALL: Counts(containers=2, drifted=1, causes=((Cause.CODE_SETS_IT, 1), (Cause.RESIZED, 1))),
        ALL: Counts(containers=1, drifted=1, causes=((Cause.OVERSUBSCRIBED, 1),)),
    }
    worst = [(one.pod, one.cause) for one in said.worst]
    assert worst == [("bert-1", Cause.OVERSUBSCRIBED), ("resnet-1", Cause.CODE_SETS_IT)]


@pytest.mark.parametrize(
    "reference",
    [
        "InferenceThreading/theirs/small", "InferenceThreading/a/b/c", "InferenceThreading/models//small",
        "ClusterInferenceThreading/models/all", "InferenceThreading/" + "x" * 400, "InferenceThreading/a b",
        "Pod/small", "small",
    ],
)  # fmt: skip
def test_a_reference_that_no_webhook_writes_counts_for_nobody_and_spoils_nothing(reference):
    one = [container(finding()), container(finding(), name="bad", policy=reference)]
    said = after(one, one)
    assert list(said.policies) == [SMALL]
    assert [drift.pod for drift in said.worst] == ["resnet-1"]
    assert running.from_document(running.to_document(said)) == said


def test_what_is_found_once_is_not_told_yet():
    assert drifted(after([container()], [container(finding())])) == {SMALL: 0}
    assert drifted(after([container(finding())], [container()], [container(finding())])) == {SMALL: 0}


def test_nothing_is_said_before_a_finding_could_have_been_told():
    assert after([container(finding())]) is None


def test_what_was_told_stays_told_until_it_has_been_gone_for_three_reports():
    there, gone = [container(finding())], [container()]
    assert drifted(after(there, there, gone, gone)) == {SMALL: 1}
    assert drifted(after(there, there, gone, gone, there, gone, gone)) == {SMALL: 1}
    assert drifted(after(there, there, gone, gone, gone)) == {SMALL: 0}


def test_a_container_that_is_gone_is_gone_at_once():
    there = [container(finding())]
    assert after(there, there, []) == Running()


@pytest.mark.parametrize(
    ("later", "told"),
    [
        ("17 threads, 2 were planned", "16 threads, 2 were planned"),
        ("64 threads, 2 were planned", "64 threads, 2 were planned"),
        ("16 threads of 2", "16 threads of 2"),
    ],
    ids=["about the same", "many more", "another sentence"],
)
def test_a_sentence_stays_while_its_numbers_are_about_the_same(later, told):
    first = [container(finding())]
    assert after(first, first, [container(finding(detail=later))]).worst[0].detail == told


def test_a_sentence_stays_when_another_of_equal_processes_is_the_worst():
    first, later = ([container(finding(detail=f"16 threads ran in process {pid} (python)"))] for pid in (7, 4711))
    assert after(first, first, later) == after(first, first)


@pytest.mark.parametrize("names", [("a#b", "a1b"), ("a1b", "a#b"), ("1", "#"), ("\u0661", "\u00b2")])
def test_names_of_threads_never_break_the_comparison_of_sentences(names):
    first, second = ([container(finding(detail=f"16 threads of pool {name} ran"))] for name in names)
    assert after(first, first, second).worst[0].detail == f"16 threads of pool {names[1]} ran"


@given(st.lists(reports.reports, min_size=1, max_size=4))
def test_a_summary_of_any_reports_is_the_same_after_its_way_through_json_and_stays_small(taken):
    summary = Summary()
    for one in taken:
        named = tuple(replace(found, policy="InferenceThreading/p", namespace="n") for found in one.containers)
        said = summary.take(replace(one, containers=named)) or Running()
        document = json.loads(json.dumps(running.to_document(said)))
        assert running.to_document(running.from_document(document)) == document
        assert len(document["worst"]) <= running.MOST_WORST


@given(reports.reports)
def test_the_same_report_again_changes_nothing_once_it_is_told(one):
    summary = Summary()
    summary.take(one)
    assert summary.take(one) == summary.take(one) == summary.take(one)


@pytest.mark.parametrize(
    ("document", "path"),
    [
        ({"policies": {}}, "running.policies"),
        ({"policies": [1]}, "running.policies[]"),
        ({"policies": [{"policy": "InferenceThreading/p"}]}, "running.policy"),
        ({"policies": [{"policy": "ClusterInferenceThreading/n/p"}]}, "running.policy"),
        ({"policies": [{"policy": "InferenceThreading/n/p", "drifted": -1}]}, "running.drifted"),
        ({"policies": [{"policy": "InferenceThreading/n/p", "containers": "1"}]}, "running.containers"),
        ({"worst": [{"policy": "InferenceThreading/n/p", "cause": "Bad"}]}, "running.cause"),
        ({"worst": [{"policy": "InferenceThreading/n/p", "cause": "Resized", "pod": 1}]}, "running.worst[].pod"),
    ],
)
def test_what_is_no_summary_is_refused_with_its_field(document, path):
    with pytest.raises(SpecError) as refused:
        running.from_document(document)
    assert refused.value.path == path


def test_the_order_of_harm_has_every_cause_once():
    assert sorted(running.BY_HARM) == sorted(Cause)


def test_containers_of_one_cause_are_named_in_the_order_of_their_names():
    def drift(cause, pod):
        return Drift(policy=SMALL, namespace="n", pod=pod, container="c", cause=cause, detail="")

    found = [drift(Cause.RESIZED, "a"), drift(Cause.NOT_REACHED, "c"), drift(Cause.NOT_REACHED, "b")]
    assert [one.pod for one in sorted(found, key=running.by_harm)] == ["b", "c", "a"]


class Server:
    """Keeps what is applied; `drops` is a server whose schema does not know the field yet."""

    def __init__(self, *, drops=False):
        self.live = {"metadata": {"name": "n1"}, "status": {"conditions": []}}
        self.written = []
        self.fails = False
        self.drops = drops

    def apply(self, path, body, field_manager):
        if self.fails:
            raise ApiError(503, "busy")
        self.written.append((path, body["status"], field_manager))
        status = {"conditions": [], **({} if self.drops else body["status"])}
        self.live = {**self.live, "status": status}
        return self.live


class Clock:
    now_s = 100.0

    def __call__(self):
        return self.now_s


def writing(*taken, **server):
    """A server, a clock, and a writer that has taken this report as often as it takes to tell of it."""
    server, clock = Server(**server), Clock()
    made = SummaryWriter(server, "/apis/t/n1", "n1", Backoff(1, 60), every_s=10, now_s=clock)
    for one in taken * 2:
        made.take(one)
    return server, clock, made


def test_the_first_summary_is_written_and_then_nothing_while_nothing_changes():
    server, clock, made = writing()
    for _ in range(5):
        made.take(report(container()))
        made.write(server.live)
        clock.now_s += 60
    assert [(path, manager) for path, _, manager in server.written] == [("/apis/t/n1/status", "raddle-agent-running")]
    assert server.live["status"]["running"]["policies"][0]["containers"] == 1


def test_a_change_that_comes_soon_after_a_write_waits():
    server, clock, made = writing(report(container()))
    assert made.write(server.live) == 10
    made.take(report(container(), container(name="b")))
    clock.now_s += 4
    assert made.write(server.live) == 6
    clock.now_s += 6
    made.write(server.live)
    assert len(server.written) == 2


def test_what_somebody_else_has_taken_away_is_written_again():
    server, clock, made = writing(report())
    made.write(server.live)
    clock.now_s += 60
    made.write({"status": {}})
    assert len(server.written) == 2


def test_an_agent_that_no_longer_looks_takes_its_summary_away():
    server, _, made = writing()
    server.live["status"]["running"] = {"policies": []}
    assert made.write(server.live) is None
    made.give_up()
    made.write(server.live)
    assert [status for _, status, _ in server.written] == [{}]
    assert made.write(server.live) is None


def test_a_server_that_does_not_know_the_field_yet_is_not_written_to_again_and_again():
    server, clock, made = writing(report(container()), drops=True)
    for _ in range(5):
        made.write(server.live)
        clock.now_s += 60
    assert len(server.written) == 1


def test_a_look_that_failed_changes_nothing():
    server, clock, made = writing(report(container()))
    made.write(server.live)
    made.take(None)
    clock.now_s += 60
    assert made.write(server.live) is None
    assert "running" in server.live["status"]


def test_nothing_is_written_before_the_object_is_there_and_a_refusal_is_tried_again_later():
    server, clock, made = writing(report())
    assert made.write(None) is None
    server.fails = True
    wait_s = made.write(server.live)
    assert 0 < wait_s <= 1
    server.fails = False
    clock.now_s += wait_s
    made.write(server.live)
    assert len(server.written) == 1

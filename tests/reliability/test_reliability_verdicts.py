"""What the checks on a real cluster count as wrong: each of these must be able to find something."""

import json

import pytest

from reliability import attack_load, attack_port, calls, truth
from reliability.audit import Write
from reliability.controlplane_leader import unchanged, without_lease
from reliability.lifecycle import is_kept


def write(at_s, writer, resource="inferencethreadings/status", version="1", lease_s=15, name="shop/p"):
    sent = {"spec": {"leaseDurationSeconds": lease_s}} if resource == "leases" else {}
    return Write(
        at_s=at_s,
        account="raddle-controller",
        writer=writer,
        verb="patch",
        resource=resource,
        name=name,
        sent=sent,
        stored={"metadata": {"resourceVersion": version}},
    )


# --- the leader -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("at_s", "writer", "wrong"),
    [
        pytest.param(5, "a", 0, id="the holder, in time"),
        pytest.param(16, "a", 1, id="the holder, after its Lease has run out"),
        pytest.param(5, "b", 1, id="somebody else"),
    ],
)
def test_a_write_counts_as_without_the_lease_where_its_writer_does_not_hold_it(at_s, writer, wrong):
    assert len(without_lease([write(0, "a", "leases"), write(at_s, writer)])) == wrong


def test_after_another_has_taken_the_lease_the_first_holds_it_no_more():
    first, second = write(0, "a", "leases"), write(8, "b", "leases")
    assert without_lease([first, second, write(9, "b"), write(9, "a")]) == [write(9, "a")]


def test_a_second_write_to_the_same_version_has_changed_nothing():
    writes = [write(1, "a", version="7"), write(2, "b", version="7"), write(3, "b", version="7", name="shop/q")]
    assert unchanged(writes) == [writes[1]]


# --- statuses ---------------------------------------------------------------------------------------------------------

POLICY = {"metadata": {"name": "app", "generation": 2}, "spec": {"threads": {"maxIntraOp": 4}}}
RIGHT = {"observedGeneration": 2, "matchedPods": 3, "injectedPods": 2, "stalePods": 1}


def pod(app, threads=None):
    annotations = {"plan.raddle.dev/serve": json.dumps({"v": 1, "set": {"intraOp": threads}})} if threads else {}
    labels = {"app": app} | ({"raddle.dev/injected": "true"} if threads else {})
    return {"metadata": {"name": "a", "labels": labels, "annotations": annotations}}


PODS = [pod("app"), pod("app", 4), pod("app", 6), pod("other", 4)]


@pytest.mark.parametrize(
    ("told", "wrong"),
    [({}, 0), *(({key: 9}, 1) for key in RIGHT)],
    ids=["as it is", *(f"other {key}" for key in RIGHT)],
)
def test_a_status_is_right_only_if_every_count_is_that_of_the_pods(told, wrong):
    assert len(list(truth.of_policy({**POLICY, "status": RIGHT | told}, PODS))) == wrong


# --- objects below another schema -------------------------------------------------------------------------------------

STORED = {"metadata": {"uid": "u", "generation": 1}, "spec": {"a": {"b": [1, 2]}}}


@pytest.mark.parametrize(
    ("after", "kept"),
    [
        pytest.param({"spec": {"a": {"b": [1, 2]}}}, True, id="the same"),
        pytest.param({"spec": {"a": {"b": [1, 2], "new": False}}}, True, id="with a new field's default"),
        pytest.param({"spec": {"a": {"b": [1]}}}, False, id="with other content"),
        pytest.param({"spec": {"a": {}}}, False, id="without a field"),
        pytest.param({"metadata": {"uid": "v", "generation": 1}}, False, id="made again"),
        pytest.param({"metadata": {"uid": "u", "generation": 2}}, False, id="written"),
    ],
)
def test_an_object_is_kept_if_all_that_it_had_is_there_and_nobody_has_written_it(after, kept):
    assert is_kept(STORED, STORED | after) is kept


# --- the API server's calls -------------------------------------------------------------------------------------------

METRICS = """\
# TYPE apiserver_admission_webhook_fail_open_count counter
apiserver_admission_webhook_fail_open_count{name="pods.raddle.dev",type="admit"} 3
apiserver_admission_webhook_fail_open_count{name="bindings.raddle.dev",type="admit"} 4
apiserver_admission_webhook_fail_open_count{name="pods.another.example",type="admit"} 5
apiserver_admission_webhook_request_total{code="200",name="pods.raddle.dev"} 6
"""


def test_calls_that_failed_open_are_those_of_all_webhooks_of_raddle_and_of_no_other():
    assert calls.count(METRICS) == 7
    assert calls.count("") == 0


# --- attacks ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [0, 9_999])
def test_a_pod_of_the_crowd_is_one_that_its_policy_and_no_other_selects(number):
    labels = attack_load.crowds_pod(number)["metadata"]["labels"]
    selected = [
        other
        for other in range(10_000)
        if attack_load.crowds_policy(other)["spec"]["podSelector"]["matchLabels"].items() <= labels.items()
    ]
    assert selected == [number]


def test_a_webhook_that_is_not_there_has_refused_nothing():
    assert list(attack_port.send_large(("127.0.0.1", 1), 2)) == [-1, -1]

"""The benchmark of a large cluster: its layout, what it holds for right, and what it counts as a call."""

import json
from collections import Counter

import pytest

from raddle import env
from raddle_operator.injection.matching import Policies, select
from raddle_operator.objects.policy import policy_from_object
from scale import agents, calls, copying, objects, text, traffic, truth
from scale.calls import Call
from scale.figures import Change, Idle, Results, Start
from scale.objects import Size
from scale.phases import CHANGES_ALL, CHANGES_ONE, LETS_GO, ROLLOUT, TAKES_ALL, Plan
from scale.truth import Counts, PodRow, PolicyRow

SMALL = Size(pods=40, nodes=3, policies=8)
CONDITIONS = [{"type": kind} for kind in ("Accepted", "Ready", "Degraded")]


def every_pod(size):
    return [pod for name in size.namespaces for pod in objects.pods(name, size)]


def stored(policy, kind, generation=1):
    """As the API server would return it."""
    return {**policy, "kind": kind, "metadata": {**policy["metadata"], "uid": "u", "generation": generation}}


def every_policy(size):
    found = [stored(policy, "InferenceThreading") for policy in objects.policies(size)]
    return [*found, stored(objects.fleet(), "ClusterInferenceThreading")]


@pytest.mark.parametrize("size", [SMALL, Size(pods=100, nodes=1, policies=10), Size(pods=20, nodes=1, policies=2)])
def test_a_cluster_has_as_many_pods_and_policies_as_its_size_says(size):
    assert len(every_policy(size)) == size.policies
    names = {(pod["metadata"]["namespace"], pod["metadata"]["name"]) for pod in every_pod(size)}
    assert len(names) == size.pods


def test_one_policy_governs_each_pod_and_each_namespaced_policy_governs_some():
    policies = Policies(map(policy_from_object, every_policy(SMALL)))
    governed = Counter()
    for pod in every_pod(SMALL):
        metadata = pod["metadata"]
        found = select(metadata["labels"], metadata["namespace"], {}, policies)
        governed[found.policy.namespace, found.policy.name] += 1
    assert len(governed) == SMALL.policies - 1
    rows = [truth.policy_row(policy, policy["kind"]) for policy in every_policy(SMALL)]
    wanted = truth.expected(map(truth.pod_row, every_pod(SMALL)), rows)
    assert {key: counts.matched for key, counts in wanted.items() if counts.matched} == governed


def row(app="a", settings="now", namespace="n", *, injected=True, safe=False):
    return PodRow(namespace, {"app": app}, injected, safe, settings)


def policy(name="p", app="a", namespace="n", settings="now"):
    return PolicyRow((namespace, name), {"matchLabels": {"app": app}}, settings, 1)


@pytest.mark.parametrize(
    ("pods", "policies", "wanted"),
    [
        ([], [policy()], {("n", "p"): Counts()}),
        ([row(), row(app="b")], [policy()], {("n", "p"): Counts(matched=1, injected=1)}),
        ([row(settings="old")], [policy()], {("n", "p"): Counts(matched=1, injected=1, stale=1)}),
        ([row(safe=True)], [policy()], {("n", "p"): Counts(matched=1, injected=1, safe=1)}),
        ([row(injected=False, settings="", safe=True)], [policy()], {("n", "p"): Counts(matched=1)}),
        (
            [row(), row(namespace="m")],
            [policy(), policy("all", namespace="")],
            {("n", "p"): Counts(), ("", "all"): Counts(matched=2, injected=2)},
        ),
    ],
    ids=["no pods", "another app", "older settings", "safe values", "no values", "the cluster policy comes first"],
)
def test_the_counts_of_a_policy_follow_from_a_list_of_pods(pods, policies, wanted):
    assert truth.expected(pods, policies) == wanted


def test_two_policies_for_one_pod_are_refused():
    with pytest.raises(ValueError, match="selected by"):
        truth.expected([row()], [policy("one"), policy("two")])


def test_an_operator_that_is_not_used_here_is_refused():
    with pytest.raises(ValueError, match="NotIn"):
        truth.selects({"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["a"]}]}, {"app": "b"})


def test_a_pod_is_read_from_its_metadata():
    annotations = {env.SETTINGS_HASH: "0123456789", f"{env.PLAN_PREFIX}serve": json.dumps({"node": "node-1"})}
    metadata = {"namespace": "n", "labels": {env.INJECTED_LABEL: "true"}, "annotations": annotations}
    found = truth.pod_row({"metadata": metadata})
    assert (found.injected, found.safe, found.settings_hash) == (True, False, "0123456789")
    annotations[f"{env.PLAN_PREFIX}other"] = json.dumps({"node": None})
    assert truth.pod_row({"metadata": metadata}).safe


@pytest.mark.parametrize(
    ("said", "right"),
    [
        ({}, True),
        ({"stalePods": 0}, False),
        ({"observedGeneration": 6}, False),
        ({"skippedPods": [{"reason": "WebhookMissed", "count": 1}]}, False),
        ({"conditions": []}, False),
    ],
    ids=["all of it", "another count", "an older generation", "skipped pods", "no conditions"],
)
def test_a_status_is_right_when_it_says_what_the_list_says(said, right):
    numbers = {"matchedPods": 3, "injectedPods": 3, "safeValuePods": 0, "stalePods": 3, "skippedPods": []}
    status = {**numbers, "observedGeneration": 7, "conditions": CONDITIONS, **said}
    assert truth.is_right(status, Counts(matched=3, injected=3, stale=3), 7) is right


def test_a_pod_without_values_may_be_said_to_be_skipped():
    numbers = {"matchedPods": 3, "injectedPods": 2, "safeValuePods": 0, "stalePods": 0, "conditions": CONDITIONS}
    counts = Counts(matched=3, injected=2)
    for skipped, right in ((0, True), (1, True), (2, False)):
        said = {**numbers, "observedGeneration": 1, "skippedPods": [{"reason": "WebhookMissed", "count": skipped}]}
        assert truth.is_right(said, counts, 1) is right


def audited(verb, stage, account="controller", **target):
    username = f"system:serviceaccount:raddle-system:raddle-{account}"
    return json.dumps(
        {"verb": verb, "stage": stage, "user": {"username": username}, "objectRef": target, "requestURI": "/readyz?x"}
    )


def test_each_request_in_the_audit_log_counts_once():
    lines = [
        audited("watch", "ResponseStarted", resource="pods"),
        audited("watch", "ResponseComplete", resource="pods"),
        audited("patch", "ResponseComplete", resource="inferencethreadings", subresource="status"),
        audited("list", "ResponseComplete", "webhook", resource="pods"),
        audited("get", "ResponseComplete"),
    ]
    assert calls.count(lines) == {
        Call("controller", "watch", "pods"): 1,
        Call("controller", "patch", "inferencethreadings/status"): 1,
        Call("webhook", "list", "pods"): 1,
        Call("controller", "get", "/readyz"): 1,
    }


def test_the_log_gives_what_was_written_after_a_mark(tmp_path):
    path = tmp_path / "audit.log"
    log = calls.Log(path)
    assert log.mark() == 0
    path.write_text(audited("list", "ResponseComplete", resource="nodes") + "\n")
    mark = log.mark()
    later = audited("get", "ResponseComplete", resource="leases")
    with path.open("a") as file:
        file.write(f"{later}\n{later[:20]}")
    assert log.since(mark) == {Call("controller", "get", "leases"): 1}


def results():
    change = Change(right_s=2.0, cpu_s=0.1, writes=3)
    once = (CHANGES_ALL, LETS_GO, CHANGES_ONE, ROLLOUT)
    slow = Change(right_s=20.0, cpu_s=0.1, writes=3)
    return Results(
        first_start=Start(ready_s=16.0, cpu_s=2.0),
        starts=[Start(ready_s=4.0, cpu_s=2.0)],
        webhook_starts=[Start(ready_s=2.0, cpu_s=1.0)],
        changes={TAKES_ALL: [change, slow], **{what: [change] for what in once}},
        peak_mb={"controller": 150.0, "webhook": 130.0},
        idle={"controller": Idle(settled_mb=140.0, cpu_percent=1.0, received_bytes=None)},
        idle_s=120.0,
        calls=Counter({Call("controller", "get", "leases"): 60}),
        load=[1.0],
    )


def test_the_longest_time_and_the_peak_are_held_against_the_budgets():
    assert [line.met for line in text.budgets(results())] == [False, False, True, True, True, True, False]


def test_calls_are_told_by_the_minute_and_an_account_without_any_is_told_too():
    rows = text.call_rows(results().calls, 120.0)
    assert rows == [["controller", "get", "leases", "30"], ["webhook", "none", "", "0"]]


def test_the_section_says_what_was_measured():
    found = text.section(Plan(), results())
    assert "| controller, again | 1 | 4 | 2 |" in found
    assert f"| {TAKES_ALL} | 2 | 11 (2–20) |" in found
    assert "| controller | 140 | 150 | 1 | 30 | – |" in found


def test_the_whole_size_divides_without_a_rest():
    size = Size()
    assert size.replicas * objects.APPS * len(size.namespaces) == size.pods
    assert len(size.namespaces) * 2 == size.policies


SOCKETS = """\
ESTAB 0      0       127.0.0.1:43036    127.0.0.1:6443 users:(("python",pid=17,fd=74)) bbr wscale:10,10 bytes_sent:1808 bytes_acked:1808 bytes_received:1926 segs_out:7
ESTAB 0      0       127.0.0.1:43038    127.0.0.1:6443 users:(("python",pid=17,fd=75)) bbr rto:204 bytes_received:74 segs_out:7
ESTAB 0      0       127.0.0.1:43040    127.0.0.1:6443 users:(("python",pid=17,fd=76)) bbr rto:204 bytes_sent:9 segs_out:7
ESTAB 0      0       127.0.0.1:43042    127.0.0.1:6443 users:(("python",pid=18,fd=7)) bbr rto:204 bytes_received:5 segs_out:7
"""


def test_bytes_are_those_of_the_processs_own_connections():
    assert traffic.received(SOCKETS, 17) == {"127.0.0.1:43036": 1926, "127.0.0.1:43038": 74}


def test_a_connection_that_was_opened_meanwhile_counts_whole():
    assert traffic.between({"a": 10, "closed": 5}, {"a": 12, "new": 3}) == 5
    assert traffic.between(None, {"a": 1}) is None


def template(number):
    """The first pod of an app, as the API server has it once it runs."""
    pod = objects.pod("tenant-000", number % objects.APPS, 0, objects.GENERATION)
    pod["metadata"] |= {"uid": "u", "resourceVersion": "7", "creationTimestamp": "2026-01-01T00:01:00Z"}
    pod["spec"]["nodeName"] = objects.node_name(number)
    return {**pod, **objects.running(pod, "2026-01-01T00:01:10Z")}


def test_copies_of_an_apps_first_pod_differ_where_replicas_do():
    size = Size(pods=10 * 40, nodes=16, policies=4)
    copies = list(copying.of(template(3), 3, range(1, size.replicas), size))
    for found in (
        {copy["metadata"]["name"] for copy in copies},
        {copy["metadata"]["uid"] for copy in copies},
        {copy["metadata"]["creationTimestamp"] for copy in copies},
        {copy["status"]["podIP"] for copy in copies},
    ):
        assert len(found) == len(copies) == size.replicas - 1
    assert {copy["spec"]["nodeName"] for copy in copies} == {"node-0003", "node-0011"}  # the other one of its make
    assert not any("resourceVersion" in copy["metadata"] for copy in copies)  # which etcd gives


def test_copies_are_spread_over_the_nodes():
    size = Size(pods=16 * 20, nodes=80, policies=8)
    apps = range(len(size.namespaces) * objects.APPS)
    nodes = Counter(
        copy["spec"]["nodeName"]
        for number in apps
        for copy in copying.of(template(number), number, range(size.replicas), size)
    )
    assert sum(nodes.values()) == size.pods
    assert max(nodes.values()) - min(nodes.values()) <= size.replicas // 10 + 1


def test_what_agents_say_is_told_with_the_writes_of_each_change():
    written = Counter(
        {
            Call("controller", "patch", "inferencethreadings/status"): 3,
            Call("controller", "create", "events"): 1,
            Call("controller", "update", "leases"): 7,
            Call("webhook", "create", "tokenreviews"): 5,
            Call("controller", "watch", "pods"): 1,
        }
    )
    change = agents.Change(written_s=1.0, right_s=2.0, cpu_s=0.5, calls=written)
    slow = agents.Change(written_s=3.0, right_s=6.0, cpu_s=0.7, calls=written)
    results = agents.Results(
        start=Start(ready_s=4.0, cpu_s=2.0),
        first_right_s=5.0,
        changes={1: [change], 50: [change, slow]},
        peak_mb=900.0,
        load=[1.0],
    )
    found = agents.section(agents.QUICK, results)
    assert "| 1 node at once, from the last until every status is right, the longest | 2 s | ≤ 5 s | kept |" in found
    assert "the longest | 6 s | ≤ 5 s | missed |" in found
    assert "| 50 nodes | 2 | 2 (1–3) | 4 (2–6) | 0.6 (0.5–0.7) | 4 | events 1, inferencethreadings/status 3 |" in found

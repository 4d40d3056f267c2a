"""From facts to status: counting, conditions, messages; and whether a topology describes its node."""

import dataclasses
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster import objects
from raddle.planning.planner import Budget, plan
from raddle.planning.policy import Policy
from raddle.planning.wire import TuningTarget, plan_text
from raddle_operator.controller.examine import verdict
from raddle_operator.controller.facts import (
    NamespaceFacts,
    NodeFacts,
    PodFacts,
    PodReader,
    PolicyRecord,
    TopologyRecord,
    read_namespace,
    read_node,
    read_policy,
    read_topology,
)
from raddle_operator.controller.freshness import topology_status
from raddle_operator.controller.status import (
    NamespaceTally,
    Tally,
    case_of,
    key_of,
    policy_status,
    status_matches,
    tally,
)
from raddle_operator.injection.decide import Facts
from raddle_operator.injection.matching import Policies
from raddle_operator.injection.volumes import ShimDelivery
from raddle_operator.kube import CLUSTER_INFERENCE_THREADINGS, INFERENCE_THREADINGS
from raddle_operator.objects.nodecheck import Checker
from raddle_operator.objects.policy import policy_from_object
from raddle_operator.objects.reasons import SkipReason
from raddle_operator.objects.times import epoch_s, rfc3339

NOW_S = 1_800_000_000
CREATED = "2026-11-21T10:00:00Z"
CREATED_S = epoch_s(CREATED)
OPEN = NamespaceFacts(labels={"raddle.dev/inject": "enabled"}, opted_in_s=0, terminating=False)
LABELLED = NamespaceFacts(labels={"raddle.dev/inject": "labelled"}, opted_in_s=0, terminating=False)


def policy_object(name="p", namespace="shop", *, created=CREATED, kind="InferenceThreading", **spec):
    metadata = {"uid": f"uid-{name}", "creationTimestamp": created, "generation": 3, "resourceVersion": "1"}
    return objects.policy(
        name, namespace, kind, metadata, **{"podSelector": {"matchLabels": {"app": "resnet"}}, **spec}
    )


def policy(*arguments, **options):
    return policy_from_object(policy_object(*arguments, **options))


def record(*arguments, status=None, **options):
    obj = {**policy_object(*arguments, **options), "status": status or {}}
    return read_policy(INFERENCE_THREADINGS, obj)


def pod(
    *, injected=False, settings_hash="", safe=False, resized=False, created_s=CREATED_S + 100, layouts=(), **labels
):
    found = {"app": "resnet", **labels, **({"raddle.dev/injected": "true"} if injected else {})}
    facts = {"injected": injected, "safe_values": safe, "settings_hash": settings_hash, "resized": resized}
    return PodFacts(labels=tuple(sorted(found.items())), created_s=created_s, layouts=layouts, **facts)


def throughput_plan(budget):
    wanted = Policy(objective="Throughput")
    return plan_text(plan(None, budget, wanted), budget, wanted, "InferenceThreading/p")


def counted(pods, *policies, facts=OPEN, verdicts=None, changed_s=CREATED_S, **options):
    named = [(f"pod-{number}", one) for number, one in enumerate(pods)]
    found = {key_of(one): changed_s for one in policies}
    return tally("shop", facts, named, Policies(policies), found, verdicts or {}, **options)


def test_pods_are_counted_for_the_policy_that_governs_them():
    present = policy()
    now = {"injected": True, "settings_hash": present.settings_hash}
    older = pod(injected=True, settings_hash="older", resized=True)
    pods = [pod(**now), pod(**now, safe=True), older, pod(app="other", resized=True)]
    found = counted(pods, present).policies[key_of(present)]
    assert (found.matched, found.injected, found.safe, found.stale, found.resized) == (3, 3, 1, 1, 1)


def test_the_advice_of_all_pods_is_counted_by_layout():
    pods = [
        pod(injected=True, layouts=("16x4",)),
        pod(injected=True, layouts=("16x4", "2x3+2x4")),
        pod(injected=True),
        # What is not Raddle's any more does not count.
        pod(layouts=("9x9",)),
    ]
    found = counted(pods, policy()).policies[key_of(policy())]
    assert policy_status(record(), found + found, now_s=NOW_S)["layouts"] == [
        {"layout": "2x3+2x4", "workers": 2, "threads": 3, "pods": 2},
        {"layout": "16x4", "workers": 16, "threads": 4, "pods": 4},
    ]


def test_of_many_layouts_the_commonest_are_shown():
    counts = {f"{number}x4": number for number in range(1, 30)}
    shown = policy_status(record(), Tally(layouts=counts), now_s=NOW_S)["layouts"]
    assert [one["pods"] for one in shown] == list(range(14, 30))


@pytest.mark.parametrize(
    ("text", "layouts"),
    [
        (throughput_plan(Budget(quota_cpus=8.0, smallest_cores=8)), ("2x4",)),
        (throughput_plan(Budget()), ()),
        ('{"set":{"layout":{"workers":2,"threads":4}}}', ("2x4",)),
        # Annotations are untrusted, and the status has to be one that the API server takes.
        ('{"set":{"layout":{"workers":2,"threads":3,"others":[{"workers":2,"threads":4}]}}}', ("2x3+2x4",)),
        ('{"set":{"layout":{"workers":2,"threads":3,"others":[{"workers":0,"threads":4}]}}}', ()),
        ('{"set":{"layout":{"workers":0,"threads":4}}}', ()),
        ('{"set":{"layout":{"workers":123456,"threads":4}}}', ()),
        (r'{"because":{"intraOp":"\"layout\":{\"workers\":2,\"threads\":4}"}}', ()),
        ("not JSON", ()),
    ],
)
def test_a_pods_advice_is_read_from_its_plans(text, layouts):
    metadata = {"creationTimestamp": CREATED, "annotations": {"plan.raddle.dev/a": text, "plan.raddle.dev/b": text}}
    assert PodReader().read({"metadata": metadata}).layouts == layouts


@pytest.mark.parametrize(
    ("created_s", "changed_s", "opted_in_s", "older"),
    [
        (100, 50, 0, 0),
        (100, 100, 0, 1),  # the same second: it may have been before
        (100, 150, 0, 1),
        (100, 50, 150, 1),
        (100, 50, 100, 1),
        (101, 100, 100, 0),
    ],
)
def test_a_pod_from_before_the_policy_or_the_opt_in_is_older_and_not_missed(created_s, changed_s, opted_in_s, older):
    facts = NamespaceFacts(labels=OPEN.labels, opted_in_s=opted_in_s, terminating=False)
    found = counted([pod(created_s=created_s)], policy(), facts=facts, changed_s=changed_s)
    assert found.policies[key_of(policy())].older == older
    assert bool(found.valueless) is not bool(older)


def test_one_pod_of_each_kind_is_named_for_examination_until_there_is_a_verdict():
    one, pods = policy(), [pod(), pod(), pod(tier="batch")]
    found = counted(pods, one)
    assert list(found.valueless.values()) == ["pod-0", "pod-2"]
    assert found.policies[key_of(one)].skipped == {}
    assert found.policies[key_of(one)].pending == 3
    verdicts = {
        case_of("shop", pods[0].labels, one): SkipReason.WEBHOOK_MISSED,
        case_of("shop", pods[2].labels, one): SkipReason.NO_CPU_BOUND,
    }
    found = counted(pods, one, verdicts=verdicts)
    assert found.policies[key_of(one)].pending == 0
    assert found.policies[key_of(one)].skipped == {"WebhookMissed": 2, "NoCPUBound": 1}
    assert found.policies[key_of(one)].missed == ["shop/pod-0", "shop/pod-1"]


def test_under_observe_nobody_is_missed():
    found = counted([pod(), pod()], policy(mode="Observe"))
    assert found.policies[key_of(policy())].skipped == {"Observed": 2}
    assert found.valueless == {}


def test_pods_that_are_not_opted_in_do_not_count():
    pods = [pod(), pod(**{"raddle.dev/inject": "enabled"})]
    found = counted(pods, policy(), facts=LABELLED)
    assert found.policies[key_of(policy())].matched == 1
    closed = NamespaceFacts(labels={}, opted_in_s=0, terminating=False)
    assert counted(pods, policy(), facts=closed) == NamespaceTally()
    assert counted(pods, policy(), facts=closed, unlabelled="enabled").policies[key_of(policy())].matched == 2


def test_a_pod_that_names_a_missing_policy_is_counted_for_none():
    found = counted([pod(**{"raddle.dev/policy": "gone"})], policy())
    assert found.policies == {}
    assert found.unattributed == {"PolicyNotFound": 1}


def test_of_two_equal_policies_the_older_governs_and_the_younger_learns_its_name():
    older, younger = policy("older"), policy("younger", created="2026-11-21T11:00:00Z")
    found = counted([pod(), pod()], older, younger)
    assert found.policies[key_of(older)].matched == 2
    assert found.policies[key_of(younger)].matched == 0
    assert found.policies[key_of(younger)].rivals == {"InferenceThreading/older"}
    status = policy_status(record("younger"), found.policies[key_of(younger)], now_s=NOW_S)
    accepted = condition(status, "Accepted")
    assert (accepted["status"], accepted["reason"]) == ("False", "Conflict")
    assert "InferenceThreading/older" in accepted["message"]
    assert condition(status, "Ready")["reason"] == "Conflict"


def test_the_oldest_injected_pod_is_noted():
    pods = [pod(injected=True, created_s=70), pod(injected=True, created_s=60), pod(created_s=50)]
    assert counted(pods, policy()).oldest_injected_s == 60
    assert counted([pod()], policy()).oldest_injected_s is None


def condition(status, kind):
    [found] = [item for item in status["conditions"] if item["type"] == kind]
    return found


CONDITIONS = [
    # name, spec, tally, options, (Accepted, Ready, Degraded) as (status, reason)
    ("nothing matched", {}, Tally(), {}, ("True Accepted", "False NoPodsMatched", "False AsExpected")),
    ("in force", {}, Tally(matched=2, injected=2), {}, ("True Accepted", "True InForce", "False AsExpected")),
    ("observing", {"mode": "Observe"}, Tally(matched=2, skipped={"Observed": 2}), {}, ("True Accepted",
     "True Observing", "False AsExpected")),
    ("older pods", {}, Tally(matched=2, older=2), {}, ("True Accepted", "True InForce", "False AsExpected")),
    ("missed", {}, Tally(matched=2, skipped={"WebhookMissed": 1}, missed=("shop/a",)), {}, ("True Accepted",
     "True InForce", "True WebhookMissed")),
    ("no shim in the process", {}, Tally(matched=2, injected=2, shimless=1), {}, ("True Accepted", "True InForce",
     "True SpinningNotControlled")),
    ("no shim in the process, and none needed", {"threads": {"spinning": "Always"}}, Tally(matched=2, injected=2,
     shimless=1), {}, ("True Accepted", "True InForce", "False AsExpected")),
    ("no shim", {"shim": "None"}, Tally(matched=1), {}, ("True Accepted", "True InForce",
     "True SpinningNotControlled")),
    ("no shim wanted", {"shim": "None", "threads": {"spinning": "Always"}}, Tally(matched=1), {}, ("True Accepted",
     "True InForce", "False AsExpected")),
    ("shim forbidden", {}, Tally(matched=1), {"shimless": ["shop"]}, ("True Accepted", "True InForce",
     "True ShimMissing")),
    ("too many", {}, Tally(), {"too_many": True}, ("False TooManyPolicies", "False TooManyPolicies",
     "False AsExpected")),
    ("conflict, some pods", {}, Tally(matched=1, rivals=frozenset({"InferenceThreading/a"})), {}, ("False Conflict",
     "True InForce", "False AsExpected")),
    ("unusable", {"mode": "Whatever"}, Tally(), {}, ("False Invalid", "False Invalid", "False AsExpected")),
]  # fmt: skip


@pytest.mark.parametrize(
    ("spec", "counts", "options", "expected"), [case[1:] for case in CONDITIONS], ids=[case[0] for case in CONDITIONS]
)
def test_conditions_say_what_is_the_case(spec, counts, options, expected):
    status = policy_status(record(**spec), counts, now_s=NOW_S, **options)
    found = [condition(status, kind) for kind in ("Accepted", "Ready", "Degraded")]
    assert tuple(f"{item['status']} {item['reason']}" for item in found) == expected
    assert all(item["message"] for item in found)
    assert all(item["lastTransitionTime"] == rfc3339(NOW_S) for item in found)
    assert all(item["observedGeneration"] == 3 for item in found)


ANEW = "the tuning is evaluated when a pod is bound; restart pods to evaluate it again"
TUNED = [
    (Tally(), "False NoPodsYet", "no pod has been created since the policy names this tuning"),
    (Tally(tuned=Counter(ranker=2)), "True Tuned", "2 pods follow InferenceTuning ranker"),
    (Tally(tuned=Counter(ranker=2), untuned=Counter({"the limit is another": 1})), "True PartlyTuned",
     f"2 of 3 pods follow InferenceTuning ranker; the others use the plan: the limit is another (1 pod); {ANEW}"),
    (Tally(untuned=Counter({"it has no result yet": 1, "there is none": 2})), "False NotTuned",
     f"3 pods use the plan: there is none (2 pods); it has no result yet (1 pod); {ANEW}"),
]  # fmt: skip


@pytest.mark.parametrize(("counts", "said", "message"), TUNED)
def test_a_policy_that_names_a_tuning_says_which_pods_follow_it(counts, said, message):
    status = policy_status(record(tuning="ranker"), counts, now_s=NOW_S)
    found = condition(status, "Tuned")
    assert f"{found['status']} {found['reason']}" == said
    assert found["message"] == message


def test_a_policy_that_names_no_tuning_says_nothing_of_any():
    status = policy_status(record(), Tally(untuned=Counter(x=1)), now_s=NOW_S)
    assert "Tuned" not in {item["type"] for item in status["conditions"]}


def tuned_plan(because, by=""):
    made = plan(None, Budget(quota_cpus=2.0), Policy())
    made = made._replace(because={**made.because, "tuned": because})
    policy = Policy(tuning="ranker")
    return plan_text(made, Budget(quota_cpus=2.0), policy, "InferenceThreading/p", None, TuningTarget("image", "", by))


OTHER_LIMIT, FOLLOWED = tuned_plan('the "limit" is another'), tuned_plan("intraOp 3", "ranker")


@pytest.mark.parametrize(
    ("texts", "tuned", "untuned"),
    [
        ([FOLLOWED], "ranker", ""),
        ([OTHER_LIMIT], "", 'the "limit" is another'),
        # A proxy beside the server that was tuned.
        ([OTHER_LIMIT, FOLLOWED], "ranker", ""),
        ([throughput_plan(Budget())], "", ""),
        # Annotations are untrusted, and the status has to be one that can be written.
        ([r'{"because":{"tuned":"\ud800 \n"}}'], "", "   "),
        ([r'{"because":{"tuned":"\uzzzz"}}'], "", ""),
        ([r'{"because":{"x":"\"tuned\":{\"by\":\"ranker\"}"}}'], "", ""),
        (['{"tuned":{"by":"Ranker?"}}'], "", ""),
    ],
)
def test_what_a_pods_plans_say_of_a_tuning_is_read(texts, tuned, untuned):
    annotations = {f"plan.raddle.dev/c{number}": text for number, text in enumerate(texts)}
    labels = {"raddle.dev/injected": "true"}
    found = PodReader().read({"metadata": metadata(labels=labels, annotations=annotations)})
    assert (found.tuned, found.untuned) == (tuned, untuned)
    pods = [dataclasses.replace(found, labels=pod(injected=True).labels)]
    counts = counted(pods, policy()).policies[key_of(policy())]
    assert (sum(counts.tuned.values()), sum(counts.untuned.values())) == (bool(tuned), bool(untuned))


def test_an_unusable_policy_says_which_field():
    status = policy_status(record(mode="Whatever"), Tally(), now_s=NOW_S)
    assert "spec.mode" in condition(status, "Accepted")["message"]


def test_the_worst_problem_gives_the_reason_and_all_are_told():
    counts = Tally(matched=9, skipped={"WebhookMissed": 7}, missed=("shop/a", "shop/b"), shimless=2)
    status = policy_status(record(), counts, now_s=NOW_S)
    degraded = condition(status, "Degraded")
    assert degraded["reason"] == "WebhookMissed"
    assert "shop/a, shop/b and 5 more" in degraded["message"]
    assert "no shim reaches the processes of 2 pods" in degraded["message"]


def test_counts_are_given_as_they_are():
    counts = Tally(
        matched=9, injected=5, safe=2, stale=1, skipped={"NoCPUBound": 3, "EnvFromPresent": 1, "Observed": 0}
    )
    status = policy_status(record(), counts, now_s=NOW_S)
    names = ("matchedPods", "injectedPods", "safeValuePods", "stalePods", "observedGeneration")
    assert [status[name] for name in names] == [9, 5, 2, 1, 3]
    assert status["skippedPods"] == [{"reason": "EnvFromPresent", "count": 1}, {"reason": "NoCPUBound", "count": 3}]


def test_an_unchanged_world_gives_an_equal_status_at_any_later_time():
    first = policy_status(record(), Tally(matched=1, injected=1), now_s=NOW_S)
    again = policy_status(record(status=first), Tally(matched=1, injected=1), now_s=NOW_S + 1000)
    assert again == first
    assert status_matches(first, again)


def test_the_time_of_a_condition_changes_with_its_status_only():
    first = policy_status(record(), Tally(), now_s=NOW_S)
    then = policy_status(record(status=first), Tally(matched=1), now_s=NOW_S + 1000)
    assert condition(then, "Accepted")["lastTransitionTime"] == rfc3339(NOW_S)
    assert condition(then, "Ready")["lastTransitionTime"] == rfc3339(NOW_S + 1000)
    assert not status_matches(first, then)


def test_conditions_of_others_do_not_matter():
    wanted = policy_status(record(), Tally(), now_s=NOW_S)
    there = {**wanted, "conditions": [{"type": "Theirs"}, *reversed(wanted["conditions"])], "theirs": 1}
    assert status_matches(there, wanted)


def test_a_message_is_never_longer_than_the_schema_allows():
    counts = Tally(matched=9, skipped={"WebhookMissed": 5}, missed=tuple("n" * 400 + str(n) for n in range(5)))
    status = policy_status(record(), counts, now_s=NOW_S)
    assert len(condition(status, "Degraded")["message"]) <= 4096


tallies = st.builds(
    Tally,
    matched=st.integers(0, 9),
    injected=st.integers(0, 9),
    shimless=st.integers(0, 9),
    resized=st.integers(0, 9),
    skipped=st.builds(Counter, st.dictionaries(st.sampled_from(["A", "B"]), st.integers(1, 9))),
    rivals=st.sets(st.sampled_from("xyz")),
    tuned=st.builds(Counter, st.dictionaries(st.sampled_from("ab"), st.integers(1, 9))),
    untuned=st.builds(Counter, st.dictionaries(st.sampled_from("ab"), st.integers(1, 9))),
)


@given(tallies, tallies, tallies)
def test_tallies_add_up_in_any_order(a, b, c):
    assert (a + b) + c == a + (b + c)
    assert a + Tally() == a
    assert (a + b) == (b + a)


def metadata(**more):
    return {"name": "a", "namespace": "shop", "creationTimestamp": CREATED, "uid": "u", "resourceVersion": "1", **more}


def test_a_pods_metadata_is_read():
    recorded = plan(None, Budget(quota_cpus=2.0, shim=False), Policy())
    text = plan_text(recorded, Budget(quota_cpus=2.0, shim=False), Policy(), "InferenceThreading/p")
    annotations = {"raddle.dev/settings-hash": "abc", "plan.raddle.dev/serve": text}
    labels = {"app": "resnet", "raddle.dev/injected": "true"}
    found = PodReader().read({"metadata": metadata(labels=labels, annotations=annotations)})
    pairs = (("app", "resnet"), ("raddle.dev/injected", "true"))
    facts = {"safe_values": True, "settings_hash": "abc", "shimless": True, "threads": (recorded.intra_op,)}
    assert found == PodFacts(labels=pairs, created_s=CREATED_S, injected=True, **facts)
    assert PodReader().read({"metadata": metadata(annotations={"kubernetes.io/config.mirror": "x"})}) is None


def test_equal_pods_share_their_facts():
    reader = PodReader()
    first = reader.read({"metadata": metadata(labels={"app": "resnet"})})
    again = reader.read({"metadata": metadata(name="b", labels={"app": "resnet"})})
    assert first is again
    reader.forget()
    assert reader.read({"metadata": metadata(labels={"app": "resnet"})}) == first


def managed(time, fields, **more):
    return {"manager": "m", "time": time, "fieldsV1": fields, **more}


def wrote(resources, subresource="resize", containers="f:containers"):
    fields = {"f:spec": {containers: {'k:{"name":"serve"}': {"f:resources": resources}}}}
    return managed(CREATED, fields, subresource=subresource)


@pytest.mark.parametrize(
    ("entries", "resized"),
    [
        ([wrote({"f:limits": {"f:cpu": {}}})], True),
        ([wrote({"f:limits": {}, "f:requests": {"f:cpu": {}}})], True),
        ([wrote({"f:limits": {"f:cpu": {}}}, containers="f:initContainers")], True),
        ([wrote({"f:limits": {"f:memory": {}}})], False),
        ([wrote({"f:limits": {"f:cpu": {}}}, subresource="")], False),
        ([managed(CREATED, {"f:status": {}}, subresource="status")], False),
        ([wrote({}), wrote(None), managed(CREATED, None, subresource="resize")], False),
    ],
)
def test_a_pod_whose_cpus_were_changed_in_place_tells_by_its_managed_fields(entries, resized):
    of = {"managedFields": entries}
    planned = metadata(annotations={"plan.raddle.dev/serve": "{}"}, **of)
    assert PodReader().read({"metadata": planned}).resized is resized
    assert PodReader().read({"metadata": metadata(**of)}).resized is False


def test_when_a_namespace_was_opted_in_is_read_from_its_managed_fields():
    label = {"f:metadata": {"f:labels": {"f:raddle.dev/inject": {}}}}
    other = {"f:metadata": {"f:labels": {"f:team": {}}}}
    fields = [managed("2026-11-21T12:00:00Z", label), managed("2026-11-21T13:00:00Z", other)]
    obj = {"metadata": metadata(labels={"raddle.dev/inject": "enabled"}, managedFields=fields)}
    assert read_namespace(obj).opted_in_s == epoch_s("2026-11-21T12:00:00Z")
    assert read_namespace({"metadata": metadata()}).opted_in_s == CREATED_S


def test_when_a_policys_spec_was_written_is_not_when_its_status_was():
    obj = policy_object()
    obj["metadata"]["managedFields"] = [
        managed("2026-11-21T12:00:00Z", {"f:spec": {}}),
        managed("2026-11-21T13:00:00Z", {"f:status": {}}, subresource="status"),
    ]
    assert read_policy(INFERENCE_THREADINGS, obj).changed_s == epoch_s("2026-11-21T12:00:00Z")


def test_a_cluster_policy_from_a_list_has_no_kind_and_is_read_all_the_same():
    obj = policy_object(namespace="", kind="")
    found = read_policy(CLUSTER_INFERENCE_THREADINGS, obj)
    assert found.policy is not None
    assert found.policy.tier == "Baseline"


POD = {
    "metadata": {"name": "a", "labels": {"app": "resnet"}},
    "spec": {"containers": [{"name": "serve", "image": "x", "resources": {"limits": {"cpu": "2"}}}]},
}


SHIM = ShimDelivery(config_map="raddle-shim-0", items={"x86_64": ()})


def asked(obj, shim=SHIM, *, door=True):
    labels, facts = {"raddle.dev/inject": "enabled"}, Facts(architectures=frozenset({"x86_64"}))
    return verdict(obj, "shop", labels, Policies([policy()]), facts, shim=shim, door=door, unlabelled="disabled")


def test_a_pod_that_the_webhook_would_have_changed_was_missed():
    assert asked(POD) is SkipReason.WEBHOOK_MISSED


def test_a_pod_that_would_have_got_nothing_but_the_shim_was_missed_where_there_is_one():
    (container,) = POD["spec"]["containers"]
    pod = {**POD, "spec": {"containers": [{**container, "envFrom": [{"configMapRef": {"name": "x"}}]}]}}
    assert asked(pod) is SkipReason.WEBHOOK_MISSED
    assert asked(pod, shim=ShimDelivery()) is SkipReason.ENV_FROM_PRESENT
    assert asked(pod, door=False) is SkipReason.ENV_FROM_PRESENT


def test_a_pod_that_the_webhook_leaves_alone_has_the_webhooks_reason():
    container = {"name": "serve", "image": "x"}
    assert asked({**POD, "spec": {"containers": [container]}}) is SkipReason.NO_CPU_BOUND
    assert asked({**POD, "spec": {**POD["spec"], "os": {"name": "windows"}}}) is SkipReason.WINDOWS_POD
    critical = {**POD["spec"], "priorityClassName": "system-node-critical"}
    assert asked({**POD, "spec": critical}) is SkipReason.OPTED_OUT


FRESH = [
    ("same", "b1", 16, NodeFacts(boot_id="b1", capacity_cpus=16), "True SameBoot"),
    ("rebooted", "b1", 16, NodeFacts(boot_id="b2", capacity_cpus=16), "False BootIDChanged"),
    ("resized", "b1", 16, NodeFacts(boot_id="b1", capacity_cpus=8), "False CapacityChanged"),
    ("no node", "b1", 16, None, "False NodeGone"),
    ("agent silent on boot", "", 16, NodeFacts(boot_id="b1", capacity_cpus=16), "Unknown BootIDUnknown"),
    ("kubelet silent on boot", "b1", 16, NodeFacts(boot_id="", capacity_cpus=16), "Unknown BootIDUnknown"),
    ("unreadable list", "b1", None, NodeFacts(boot_id="b1", capacity_cpus=16), "Unknown CapacityUnknown"),
    ("no capacity", "b1", 16, NodeFacts(boot_id="b1", capacity_cpus=None), "Unknown CapacityUnknown"),
]


@pytest.mark.parametrize(
    ("boot_id", "cpus", "node", "expected"), [case[1:] for case in FRESH], ids=[case[0] for case in FRESH]
)
def test_a_topology_is_fresh_when_boot_and_cpu_count_are_the_nodes(boot_id, cpus, node, expected):
    found = TopologyRecord(uid="u", generation=1, boot_id=boot_id, cpus=cpus, cores=None, status={})
    fresh = condition(topology_status(found, node, now_s=NOW_S), "Fresh")
    assert f"{fresh['status']} {fresh['reason']}" == expected


def test_a_node_and_a_topology_are_read():
    node = {"status": {"nodeInfo": {"bootID": "b1"}, "capacity": {"cpu": "16"}}}
    assert read_node(node) == NodeFacts(boot_id="b1", capacity_cpus=16)
    assert read_node({}) == NodeFacts(boot_id="", capacity_cpus=None)


@pytest.mark.parametrize(
    ("states", "silent"),
    [
        ([], False),
        ([("Ready", "True")], False),
        ([("Ready", "False")], False),
        ([("X", "Unknown")], False),
        ([("X", "True"), ("Ready", "Unknown")], True),
    ],
)
def test_a_node_is_silent_where_nobody_has_heard_of_its_kubelet(states, silent):
    conditions = [{"type": kind, "status": status} for kind, status in states]
    assert read_node({"status": {"conditions": conditions}}).silent is silent


@pytest.mark.parametrize(("system", "known"), [("linux", True), ("", True), ("windows", False)])
def test_a_node_that_runs_no_linux_is_none_that_lacks_a_topology(system, known):
    assert (read_node({"status": {"nodeInfo": {"operatingSystem": system}}}) is not None) is known


@pytest.mark.parametrize(("capacity", "cpus"), [("1k", 1000), ("1024", 1024), ("", None), ("many", None), (None, None)])
def test_the_cpus_of_a_node_are_a_quantity(capacity, cpus):
    assert read_node({"status": {"capacity": {"cpu": capacity}}}).capacity_cpus == cpus
    spec = {"bootID": "b1", "cpus": {"online": "0-7,16-23"}, "cores": ["0,16", "1,17"]}
    problem_of = Checker().problem
    found = read_topology({"metadata": metadata(), "spec": spec}, problem_of)
    assert (found.boot_id, found.cpus, found.cores, found.problem) == ("b1", 16, 2, "")
    broken = read_topology({"metadata": metadata(), "spec": {"cpus": {"online": "all of them"}}}, problem_of)
    assert (broken.cpus, broken.cores) == (None, None)
    assert broken.problem == "spec.cpus.online: 'all of them' is not a CPU list such as 0-3,8"


def test_a_topology_that_is_no_machine_says_so_and_is_not_called_fresh():
    node = NodeFacts(boot_id="b1", capacity_cpus=16)
    found = TopologyRecord(uid="u", generation=1, boot_id="b1", cpus=16, cores=None, status={})
    valid = condition(topology_status(found, node, now_s=NOW_S), "Valid")
    assert (valid["status"], valid["reason"]) == ("True", "Machine")
    broken = dataclasses.replace(found, problem="spec.cores[0]: '400' is not online")
    status = topology_status(broken, node, now_s=NOW_S)
    valid, fresh = condition(status, "Valid"), condition(status, "Fresh")
    assert (valid["status"], valid["reason"]) == ("False", "NoMachine")
    assert valid["message"].startswith("spec.cores[0]: '400' is not online; pods keep safe values")
    assert (fresh["status"], fresh["reason"]) == ("Unknown", "NoMachine")


def test_a_record_is_what_policy_status_needs():
    assert isinstance(record(), PolicyRecord)
    assert record(mode="Whatever").policy is None

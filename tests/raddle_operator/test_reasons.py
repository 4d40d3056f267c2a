"""One word for one reason: the webhook's answer, log and metric, the policy's status and events, and `raddle explain`.

Each of them decides or counts for itself; here all are asked about the same pod.
"""

import logging
import re

import pytest
from prometheus_client import REGISTRY
from support import webhooks

from raddle_operator.cli import cluster, why
from raddle_operator.controller import metrics
from raddle_operator.controller.examine import verdict
from raddle_operator.controller.facts import read_policy
from raddle_operator.controller.publish import StatusWriter
from raddle_operator.controller.status import NamespaceTally, Tally, policy_status
from raddle_operator.injection.binding import BindingOutcome
from raddle_operator.injection.decide import Facts
from raddle_operator.injection.matching import MAX_POLICIES_PER_NAMESPACE, Policies
from raddle_operator.injection.volumes import ShimDelivery
from raddle_operator.kube import INFERENCE_THREADINGS
from raddle_operator.kube.events import Recorder
from raddle_operator.objects.policy import policy_from_object
from raddle_operator.objects.reasons import SkipReason
from raddle_operator.webhook.lookup import LookupFailure
from raddle_operator.webhook.review import UnsupportedReview
from raddle_operator.webhook.server import Refusal
from raddle_operator.webhook.sources import MemorySources


def pod(*, labels=None, annotations=None, container=None, cpu="4", **spec):
    obj = webhooks.pod(cpu=cpu, **spec)
    obj["metadata"]["labels"] |= labels or {}
    if annotations:
        obj["metadata"]["annotations"] = annotations
    obj["spec"]["containers"][0] |= container or {}
    return obj


# Reasons for which a pod gets nothing: the pod, and the policies of its namespace.
WHOLE_PODS = {
    "OptedOut": (pod(labels={"raddle.dev/inject": "disabled"}), [webhooks.policy()]),
    "NoPolicy": (pod(), [webhooks.policy(podSelector={"matchLabels": {"app": "other"}})]),
    "PolicyNotFound": (pod(labels={"raddle.dev/policy": "gone"}), [webhooks.policy()]),
    "TooManyPolicies": (
        pod(labels={"raddle.dev/policy": f"p{MAX_POLICIES_PER_NAMESPACE}"}),
        [webhooks.policy(f"p{number:03}") for number in range(MAX_POLICIES_PER_NAMESPACE + 1)],
    ),
    "MirrorPod": (pod(annotations={"kubernetes.io/config.mirror": "x"}), [webhooks.policy()]),
    "WindowsPod": (pod(os={"name": "windows"}), [webhooks.policy()]),
    "ManagedByServer": (pod(container={"command": ["vllm", "serve"]}), [webhooks.policy()]),
    "NoCPUBound": (pod(cpu=None), [webhooks.policy()]),
    "AnnotationBudget": (pod(annotations={"big": "x" * 250_000}), [webhooks.policy()]),
    "EnvFromPresent": (
        pod(container={"envFrom": [{"configMapRef": {"name": "own"}}]}),
        [webhooks.policy(threads={"intraOp": 2}, shim="None")],
    ),
    "ContainerNotFound": (pod(), [webhooks.policy(containers=["other"])]),
    "Observed": (pod(), [webhooks.policy(mode="Observe")]),
    "Malformed": (pod(container={"resources": {"limits": {"cpu": "many"}}}), [webhooks.policy()]),
}
# Reasons for which a pod that gets values does not get all of them.
PARTS = {
    "ShimMissing": (pod(), webhooks.policy(shim="None", allocator="Jemalloc")),
    "ArchitectureUnknown": (pod(), webhooks.policy()),
    "DoorClosed": (pod(labels={"raddle.dev/door": "closed"}), webhooks.policy()),
    "DoorOccupied": (pod(schedulerName="hami-scheduler"), webhooks.policy()),
}
# Reasons that a policy's condition has, and with it an event.
CONDITIONS = {
    "Conflict": {"tally": Tally(matched=1, injected=1, rivals=frozenset({"InferenceThreading models/older"}))},
    "TooManyPolicies": {"tally": Tally(), "too_many": True},
    "WebhookMissed": {"tally": Tally(matched=1, skipped={"WebhookMissed": 1}, missed=("models/resnet-1",))},
    "ShimMissing": {"tally": Tally(matched=1, injected=1), "shimless": ["models"]},
}
# Reasons of a moment in one process: the controller and `raddle explain`, asked later, say WebhookMissed.
MOMENTS = {"CachesNotReady", "NamespaceUnknown"}


def test_every_reason_is_asked_about_here():
    assert WHOLE_PODS.keys() | PARTS.keys() | CONDITIONS.keys() | MOMENTS == {str(one) for one in SkipReason}


def stocked(policies, *, nodes=True):
    memory = MemorySources.empty()
    memory.namespaces.put(webhooks.namespace())
    memory.shims.put(webhooks.shim())
    for policy in policies:
        memory.policies.put(policy)
    if nodes:
        memory.topologies.put(webhooks.topology())
    return memory


async def of_the_webhook(folder, caplog, obj, policies, *, nodes=True):
    """(what the answer, the log and the metric say, the lines about parts, the reasons counted for parts)."""
    caplog.set_level(logging.INFO)
    async with webhooks.running(folder, stocked(policies, nodes=nodes)) as here:
        response = await here.create(obj)
        said = response["auditAnnotations"]["decision"].split()
        (line,) = re.findall(r"path=pods decision=(\S+) reason=(\S+) .*detail=(.*) unlogged", caplog.text)
        decision, reason, detail = line
        assert said == [decision, reason] if reason != "-" else said == [decision]
        shown = reason if reason != "-" else ""
        assert here.count("raddle_webhook_requests_total", path="pods", decision=decision, reason=shown) == 1
        withheld = {str(one) for one in SkipReason if here.count("raddle_webhook_withheld_total", reason=str(one))}
        return shown, detail, withheld


def of_the_status(reason):
    """What the policy's status and the controller's metric say of a pod with this reason."""
    tally = Tally(matched=1, skipped={str(reason): 1})
    metrics.measure_pods({"models": NamespaceTally(policies={("InferenceThreading", "models", "fast"): tally})})
    sample = REGISTRY.get_sample_value("raddle_skipped_pods", {"reason": str(reason)})
    metrics.measure_pods({})
    assert sample == 1
    record = read_policy(INFERENCE_THREADINGS, with_times(webhooks.policy()))
    (found,) = policy_status(record, tally, now_s=1_800_000_000)["skippedPods"]
    return found["reason"]


def with_times(policy):
    times = {"creationTimestamp": "2026-11-21T10:00:00Z", "resourceVersion": "1"}
    return {**policy, "metadata": {**policy["metadata"], **times}}


LABELS = {"raddle.dev/inject": "enabled"}


def of_the_controller(obj, policies):
    arranged = Policies(policy_from_object(one) for one in policies)
    shim = ShimDelivery(config_map="raddle-shim-0")
    return verdict(obj, "models", LABELS, arranged, Facts(), shim=shim, door=True, unlabelled="disabled")


def of_explain(obj, policies):
    found = tuple(policy_from_object(one) for one in policies)
    world = cluster.Snapshot(pod=obj, namespace="models", namespace_labels=LABELS, policies=found)
    return why.why_not(world).reason


@pytest.mark.parametrize("reason", WHOLE_PODS)
async def test_a_pod_that_gets_nothing_has_the_same_reason_for_all(tmp_path, caplog, reason):
    obj, policies = WHOLE_PODS[reason]
    said, _, _ = await of_the_webhook(tmp_path, caplog, obj, policies, nodes=reason != "NoCPUBound")
    assert said == reason
    assert of_the_controller(obj, policies) is SkipReason(reason)
    assert of_explain(obj, policies) is SkipReason(reason)
    assert of_the_status(SkipReason(reason)) == reason


@pytest.mark.parametrize("reason", PARTS)
async def test_what_a_pod_does_not_get_has_the_same_reason_for_all(tmp_path, caplog, reason):
    obj, policy = PARTS[reason]
    said, detail, counted = await of_the_webhook(tmp_path, caplog, obj, [policy], nodes=reason != "ArchitectureUnknown")
    assert said == "", "the pod has values"
    assert f"serve: {reason}: " in detail
    assert reason in counted
    found = (policy_from_object(policy),)
    world = cluster.Snapshot(pod=obj, namespace="models", namespace_labels=LABELS, policies=found)
    (outcome,) = why.decided(world).containers
    assert reason in [str(skip.reason) for skip in outcome.withheld]


class Server:
    """Takes statuses and events, and keeps the events."""

    def __init__(self):
        self.events = []

    async def apply_status(self, resource, body, *, field_manager):
        return body

    async def create(self, resource, body):
        self.events.append(body)


@pytest.mark.parametrize("reason", CONDITIONS)
async def test_an_event_has_the_reason_of_the_condition(reason):
    server = Server()
    recorder = Recorder(server, controller="raddle.dev/controller", instance="me")
    record = read_policy(INFERENCE_THREADINGS, with_times(webhooks.policy()))
    wanted = policy_status(record, now_s=1_800_000_000, **CONDITIONS[reason])
    writer = StatusWriter(server, recorder, interval_s=0)
    await writer.write(INFERENCE_THREADINGS, ("models", "fast"), "uid", record.status, wanted)
    while not recorder._queue.empty():
        await recorder.write(recorder._queue.get_nowait())
    assert reason in [item["reason"] for item in wanted["conditions"]]
    assert reason in [event["reason"] for event in server.events]


@pytest.mark.parametrize("reason", sorted(MOMENTS))
async def test_what_holds_for_a_moment_is_a_skip_reason_too(tmp_path, reason):
    memory = stocked([webhooks.policy()]) if reason == "NamespaceUnknown" else MemorySources.empty(synced=False)
    async with webhooks.running(tmp_path, memory) as here:
        response = await here.create(webhooks.pod(namespace="new"))
        assert response["auditAnnotations"]["decision"] == f"skipped {reason}"
        assert here.count("raddle_webhook_requests_total", path="pods", decision="skipped", reason=reason) == 1
    assert of_explain(pod(), [webhooks.policy()]) is SkipReason.WEBHOOK_MISSED
    assert of_the_controller(pod(), [webhooks.policy()]) is SkipReason.WEBHOOK_MISSED


def test_words_for_other_things_are_no_skip_reasons():
    """But for those that mean the same: the caches are not ready for a binding either."""
    words = {str(one) for one in SkipReason}
    assert {str(one) for one in BindingOutcome} & words == {"CachesNotReady"}
    assert not {str(one) for one in (*UnsupportedReview, *Refusal)} & words


@pytest.mark.parametrize("missing", LookupFailure)
def test_a_pod_that_is_bound_can_be_missing_in_every_way(missing):
    assert BindingOutcome(f"Pod{missing}")

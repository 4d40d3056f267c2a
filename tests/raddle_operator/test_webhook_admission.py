"""What becomes of pods and bindings: decisions fed from the caches, late arrivals, deadlines, warnings, the log."""

import asyncio
import json
import logging

import pytest
from support import tunings, webhooks
from support.waiting import until

from raddle.env import SETTINGS_HASH
from raddle_operator.kube import Forbidden, NotFound, Unavailable
from raddle_operator.webhook.caches import Caches
from raddle_operator.webhook.decision_log import DecisionLog
from raddle_operator.webhook.sources import MemorySources
from raddle_operator.webhook.waiters import Waiters

PLAN = "plan.raddle.dev/serve"
THREADS = "threads.raddle.dev/serve"


def planned(annotations):
    """How many threads the container is planned with."""
    return json.loads(annotations[PLAN])["set"]["intraOp"]


@pytest.fixture
async def here(tmp_path):
    async with webhooks.running(tmp_path, webhooks.stocked()) as running:
        yield running


async def injected(here, *, uid="pod-1", name="resnet-1", cpu=None):
    """A pod that this webhook has injected, as the watch shows it. Without a limit its count depends on the node."""
    changed = webhooks.patched(webhooks.pod(name, cpu=cpu), await here.create(webhooks.pod(name, cpu=cpu)))
    return webhooks.injected(name, uid=uid, annotations=changed["metadata"]["annotations"])


def decision(response):
    return response["auditAnnotations"]["decision"]


async def test_a_namespace_without_the_label_counts_as_the_settings_say(tmp_path):
    async with webhooks.running(tmp_path, webhooks.stocked(), default_inject="enabled") as here:
        here.memory.namespaces.put(webhooks.namespace(inject=None))
        assert decision(await here.create(webhooks.pod())) == "changed"


async def test_a_policy_that_can_not_be_used_is_left_out_with_one_line_in_the_log(here, caplog):
    here.memory.policies.put(webhooks.policy(priority="high"))
    assert decision(await here.create(webhooks.pod())) == "skipped NoPolicy"
    assert "InferenceThreading models/fast is ignored: spec.priority" in caplog.text


async def test_reviewing_what_was_injected_again_changes_nothing(here):
    once = webhooks.patched(webhooks.pod(), await here.create(webhooks.pod()))
    response = await here.create(once)
    assert decision(response) == "unchanged"
    assert "patch" not in response


async def test_a_dry_run_gets_the_same_answer(here):
    assert await here.create(webhooks.pod(), dry_run=True) == await here.create(webhooks.pod())


async def test_a_pod_bound_to_a_known_node_gets_its_values_at_once(here):
    here.memory.topologies.put(webhooks.topology("big", of=webhooks.machine(32)))
    obj = webhooks.pod(cpu=None, nodeName="big")
    annotations = webhooks.patched(obj, await here.create(obj))["metadata"]["annotations"]
    assert (planned(annotations), json.loads(annotations[PLAN])["node"]) == (32, "big")
    here.memory.topologies.put(webhooks.topology("big", of=webhooks.machine(32), fresh=False))
    annotations = webhooks.patched(obj, await here.create(obj))["metadata"]["annotations"]
    assert json.loads(annotations[PLAN])["node"] is None, "a node that has changed since gives safe values"


async def test_safe_values_follow_the_smallest_known_node(here):
    async def threads():
        changed = webhooks.patched(webhooks.pod(cpu=None), await here.create(webhooks.pod(cpu=None)))
        return planned(changed["metadata"]["annotations"])

    assert await threads() == 8
    here.memory.topologies.put(webhooks.topology("small", of=webhooks.machine(2)))
    assert await threads() == 2
    here.memory.topologies.remove(webhooks.topology("small"))
    assert await threads() == 8
    here.memory.topologies.remove(webhooks.topology())
    assert decision(await here.create(webhooks.pod(cpu=None))) == "skipped NoCPUBound"


async def test_a_load_that_is_observed_counts_for_the_next_pod_of_the_same_template(here):
    spec = {"observe": "Runs", "load": {"source": "Observed"}}

    async def annotations():
        obj = webhooks.pod(cpu="1")
        del obj["metadata"]["name"]
        return webhooks.patched(obj, await here.create(obj))["metadata"]["annotations"]

    here.memory.policies.put(webhooks.policy(**spec))
    first = await annotations()
    assert "no load observed yet" in first[PLAN]
    load = {"runTime": "33ms", "requestsPerSecond": 10, "containers": 3}
    here.memory.policies.put({**webhooks.policy(**spec), "status": {"load": load}})
    second = await annotations()
    assert (planned(first), planned(second)) == (1, 4)
    assert "observed load: runs of 33 ms at 10/s" in second[PLAN]
    assert first[SETTINGS_HASH] == second[SETTINGS_HASH]


def test_the_architectures_are_those_of_all_known_nodes():
    memory = MemorySources.empty()
    caches = Caches(memory.sources())
    assert caches.architectures == frozenset()
    memory.topologies.put(webhooks.topology("n1"))
    assert caches.architectures == {"x86_64"}
    memory.topologies.put(webhooks.topology("n2", of=webhooks.machine()._replace(architecture="aarch64")))
    assert caches.architectures == {"x86_64", "aarch64"}
    memory.topologies.remove(webhooks.topology("n1"))
    assert caches.architectures == {"aarch64"}


async def test_the_shim_is_mounted_only_where_its_config_map_has_been_seen(here):
    assert "volumes" in webhooks.patched(webhooks.pod(), await here.create(webhooks.pod()))["spec"]
    here.memory.shims.remove(webhooks.shim())
    assert "volumes" not in webhooks.patched(webhooks.pod(), await here.create(webhooks.pod()))["spec"]


async def test_whoever_makes_a_mistake_is_warned(here):
    obj = webhooks.pod()
    obj["metadata"]["labels"]["raddle.dev/policy"] = "n" * 60
    response = await here.create(obj)
    assert decision(response) == "skipped PolicyNotFound"
    (warning,) = response["warnings"]
    assert warning.startswith("raddle: PolicyNotFound")
    here.memory.policies.put(webhooks.policy(containers=["serve", *(f"missing-{number}" for number in range(9))]))
    response = await here.create(webhooks.pod())
    assert decision(response) == "changed"
    assert len(response["warnings"]) == 3


class Asked:
    """Stands where the API client stands; answers what it is given and remembers what was asked."""

    def __init__(self, answer, *, after_s=0.0):
        self.answer = answer
        self.asked = []
        self.after_s = after_s

    async def get(self, resource, name, namespace="", *, metadata_only=False):
        self.asked.append((resource.plural, namespace, name, metadata_only))
        await asyncio.sleep(self.after_s)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


async def test_a_namespace_that_is_not_known_yet_is_asked_for(tmp_path):
    kube = Asked(webhooks.namespace("new"))
    memory = webhooks.stocked()
    everything = {"metadata": {"name": "all"}, "spec": {"podSelector": {}}, "kind": "ClusterInferenceThreading"}
    memory.cluster_policies.put(everything)
    async with webhooks.running(tmp_path, memory, kube=kube) as here:
        assert decision(await here.create(webhooks.pod(namespace="new"))) == "changed"
        assert kube.asked == [("namespaces", "", "new", True)]


@pytest.mark.parametrize(
    ("error", "detail"),
    [
        (NotFound(404, "NotFound", ""), "NotFound"),
        (Unavailable(0, "NoAnswer", ""), "LookupFailed"),
        (Forbidden(403, "Forbidden", ""), "LookupFailed"),
    ],
)
async def test_pods_of_a_namespace_that_can_not_be_found_pass_unchanged(tmp_path, caplog, error, detail):
    caplog.set_level(logging.INFO)
    async with webhooks.running(tmp_path, webhooks.stocked(), kube=Asked(error)) as here:
        assert decision(await here.create(webhooks.pod(namespace="new"))) == "skipped NamespaceUnknown"
    assert f"reason=NamespaceUnknown namespace=new name=resnet-1 detail='{detail}'" in caplog.text


async def test_a_namespace_that_arrives_while_it_is_waited_for_counts(tmp_path):
    async with webhooks.running(tmp_path, webhooks.stocked(), arrival_wait_s=30.0) as here:
        under_way = asyncio.create_task(here.create(webhooks.pod(namespace="new")))
        await waiting_for(here.webhook._caches.namespace_waiters)
        here.memory.namespaces.put(webhooks.namespace("new"))
        assert decision(await under_way) == "skipped NoPolicy"


async def waiting_for(arrivals):
    await until(lambda: len(arrivals))


async def test_a_bound_pod_gets_the_nodes_values_for_the_keys_it_has(here):
    here.memory.topologies.put(webhooks.topology("big", of=webhooks.machine(32)))
    pod = await injected(here)
    here.memory.unbound.put(pod)
    assert planned(pod["metadata"]["annotations"]) == 8
    response = await here.bind(webhooks.binding(node="big"))
    annotations = webhooks.patched(webhooks.binding(), response)["metadata"]["annotations"]
    assert planned(annotations) == 32
    assert json.loads(annotations[PLAN])["node"] == "big"
    assert annotations.keys() <= pod["metadata"]["annotations"].keys(), "nothing validates what a Binding adds"
    assert here.count("raddle_webhook_bindings_total", outcome="NodeSpecific") == 1


@pytest.mark.parametrize(("tuning", "threads"), [(True, 3), (False, 4)])
async def test_a_tunings_result_is_planned_with_where_the_webhook_is_told_to_read_them(tmp_path, tuning, threads):
    memory = webhooks.stocked()
    memory.policies.put(webhooks.policy(tuning="ranker"))
    of_class = tunings.of_class(tunings.summary(webhooks.machine()), image="registry.example/app:1")
    memory.tunings.put(tunings.with_status(of_class, namespace="models", **tunings.IMAGE))
    async with webhooks.running(tmp_path, memory, tuning=tuning) as here:
        memory.unbound.put(await injected(here, cpu="4"))
        response = await here.bind(webhooks.binding())
        assert planned(webhooks.patched(webhooks.binding(), response)["metadata"]["annotations"]) == threads


async def test_a_tunings_result_counts_from_the_next_pod_on_that_is_created_on_a_known_node(tmp_path):
    memory = webhooks.stocked()
    memory.policies.put(webhooks.policy(tuning="ranker"))
    async with webhooks.running(tmp_path, memory, tuning=True) as here:
        obj = webhooks.pod(nodeName="n1")
        del obj["metadata"]["name"]
        annotations = webhooks.patched(obj, await here.create(obj))["metadata"]["annotations"]
        assert planned(annotations) == 4
        of_class = tunings.of_class(tunings.summary(webhooks.machine()), image="registry.example/app:1")
        memory.tunings.put(tunings.with_status(of_class, namespace="models", **tunings.IMAGE))
        annotations = webhooks.patched(obj, await here.create(obj))["metadata"]["annotations"]
        assert planned(annotations) == 3


async def test_a_tuning_that_can_not_be_read_is_left_out_with_one_line_in_the_log(tmp_path, caplog):
    memory = webhooks.stocked()
    memory.tunings.put({"metadata": {"name": "ranker", "namespace": "models"}, "status": {"classes": 3}})
    assert not memory.tunings.store
    assert "InferenceTuning models/ranker is ignored: status.classes" in caplog.text


@pytest.mark.parametrize("path", ["pods/binding", "bindings"])
async def test_a_binder_that_names_no_uid_is_served_too(here, path):
    here.memory.unbound.put(await injected(here))
    resource, _, subresource = path.partition("/")
    obj = webhooks.binding(uid="")
    response = await here.admit("/mutate/binding", webhooks.review(obj, resource=resource, subresource=subresource))
    assert decision(response) == "changed NodeSpecific"


@pytest.mark.parametrize(
    ("node", "outcome"), [("unknown", "SafeNoTopology"), ("stale", "TopologyStale"), ("fresh", "NodeSpecific")]
)
async def test_safe_values_stand_where_the_nodes_topology_can_not_be_trusted(here, node, outcome):
    here.memory.topologies.put(webhooks.topology("stale", fresh=False))
    here.memory.topologies.put(webhooks.topology("fresh", fresh=True))
    here.memory.unbound.put(await injected(here))
    response = await here.bind(webhooks.binding(node=node))
    assert ("patch" in response) is (outcome == "NodeSpecific")
    assert here.count("raddle_webhook_bindings_total", outcome=outcome) == 1


async def test_a_pod_that_arrives_late_is_waited_for(tmp_path):
    async with webhooks.running(tmp_path, webhooks.stocked(), arrival_wait_s=30.0) as here:
        pod = await injected(here)
        under_way = asyncio.create_task(here.bind(webhooks.binding(), "?timeout=20s"))
        await waiting_for(here.webhook._caches.unbound_waiters)
        here.memory.unbound.put(await injected(here, uid="another"))
        here.memory.unbound.put(pod)
        assert decision(await under_way) == "changed NodeSpecific"
        assert len(here.webhook._caches.unbound_waiters) == 0


async def test_a_pod_that_does_not_arrive_is_asked_for(tmp_path):
    async with webhooks.running(tmp_path, webhooks.stocked(), kube=(kube := Asked(None))) as here:
        kube.answer = await injected(here)
        assert decision(await here.bind(webhooks.binding())) == "changed NodeSpecific"
        assert kube.asked == [("pods", "models", "resnet-1", True)]


async def test_the_watch_may_win_over_the_question(tmp_path):
    kube = Asked(None, after_s=30.0)
    async with webhooks.running(tmp_path, webhooks.stocked(), kube=kube, lookup_timeout_s=20) as here:
        pod = await injected(here)
        under_way = asyncio.create_task(here.bind(webhooks.binding(), "?timeout=20s"))
        await until(lambda: kube.asked)
        here.memory.unbound.put(pod)
        assert decision(await under_way) == "changed NodeSpecific"


class Claims(Asked):
    """Answers for a pod and for its claim; `answer` is the claim."""

    def __init__(self, pod, answer, *, after_s=0.0):
        super().__init__(answer, after_s=after_s)
        self.pod = pod

    async def get(self, resource, name, namespace="", *, metadata_only=False):
        found = await super().get(resource, name, namespace, metadata_only=metadata_only)
        return self.pod if resource.plural == "pods" else found


def claiming(*claims):
    """A pod with 2 CPUs and these claims of its own."""
    pod = webhooks.pod(cpu="2", resourceClaims=[{"name": one, "resourceClaimName": f"my-{one}"} for one in claims])
    if claims:
        pod["spec"]["containers"][0]["resources"]["claims"] = [{"name": one} for one in claims]
    return pod


def claim():
    result = {"request": "r", "driver": "dra.cpu", "device": "cpudevnuma000", "consumedCapacity": {"dra.cpu/cpu": "2"}}
    return {"status": {"allocation": {"devices": {"results": [result]}}}}


async def bound_with(here, pod):
    """How the plan of a pod that is bound counts its CPUs, and why it does."""
    changed = webhooks.patched(pod, await here.create(pod))
    here.memory.unbound.put(webhooks.injected(annotations=changed["metadata"]["annotations"]))
    response = await here.bind(webhooks.binding(), "?timeout=1s")
    assert decision(response) == "changed NodeSpecific"
    plan = json.loads(webhooks.patched(webhooks.binding(), response)["metadata"]["annotations"][PLAN])
    return plan["set"].get("exclusiveCPUs"), plan["because"]["intraOp"]


async def test_the_claims_of_a_pod_are_read_when_it_is_bound_and_of_no_other(tmp_path):
    kube = Claims(claiming("cpus"), claim())
    async with webhooks.running(tmp_path, webhooks.stocked(), kube=kube) as here:
        assert await bound_with(here, claiming("cpus")) == (2, "2 exclusive CPUs (DRA claim cpus)")
        assert kube.asked == [("pods", "models", "resnet-1", False), ("resourceclaims", "models", "my-cpus", False)]
        assert await bound_with(here, claiming()) == (None, "limits.cpu 2")
        assert len(kube.asked) == 2


@pytest.mark.parametrize(
    ("answer", "after_s", "why"),
    [
        # An API server without resource.k8s.io/v1, one where we have no right to, one that is slow.
        (NotFound(404, "NotFound", ""), 0.0, "claims NotFound"),
        (Forbidden(403, "Forbidden", ""), 0.0, "claims LookupFailed"),
        (claim(), 30.0, "claims LookupFailed"),
        (["no claim"], 0.0, ""),
        ({}, 0.0, ""),
    ],
)
async def test_claims_that_can_not_be_read_change_nothing(tmp_path, caplog, answer, after_s, why):
    caplog.set_level(logging.INFO)
    kube = Claims(claiming("cpus"), answer, after_s=after_s)
    async with webhooks.running(tmp_path, webhooks.stocked(), kube=kube, lookup_timeout_s=0.2) as here:
        assert await bound_with(here, claiming("cpus")) == (None, "limits.cpu 2")
    assert f"node n1 {why}".rstrip() in caplog.text


async def test_claims_that_take_too_long_leave_time_for_an_answer(tmp_path):
    kube = Claims(claiming("cpus"), claim(), after_s=30.0)
    async with webhooks.running(tmp_path, webhooks.stocked(), kube=kube, lookup_timeout_s=30.0) as here:
        async with asyncio.timeout(20):
            assert await bound_with(here, claiming("cpus")) == (None, "limits.cpu 2")


def chosen(pod, cpus):
    """The pod as koord-scheduler leaves it, a moment before it binds it."""
    status = {"scheduling.koordinator.sh/resource-status": json.dumps({"cpuset": cpus} if cpus else {})}
    return webhooks.injected(annotations={**pod["metadata"]["annotations"], **status})


async def lsr(here):
    """A pod that is to have CPUs of its own by Koordinator's choice, seen by the watch before any are chosen."""
    pod = webhooks.pod(cpu="2")
    pod["metadata"]["labels"]["koordinator.sh/qosClass"] = "LSR"
    changed = webhooks.patched(pod, await here.create(pod))
    seen = webhooks.injected(annotations=changed["metadata"]["annotations"])
    here.memory.unbound.put(seen)
    return seen


def reason(response):
    assert decision(response) == "changed NodeSpecific"
    bound = webhooks.patched(webhooks.binding(), response)
    return json.loads(bound["metadata"]["annotations"][PLAN])["because"]["intraOp"]


NOTHING_CHOSEN = "limits.cpu 2; Koordinator LSR, but no CPUs in scheduling.koordinator.sh/resource-status"


@pytest.mark.parametrize(
    ("cpus", "because"),
    [
        ("2-3", "2 exclusive CPUs (Koordinator LSR)"),
        # A scheduler of another kind, or a bind policy that gives no CPUs.
        ("", NOTHING_CHOSEN),
    ],
)
async def test_cpus_that_a_scheduler_has_only_just_chosen_are_asked_for(tmp_path, cpus, because):
    async with webhooks.running(tmp_path, webhooks.stocked(), kube=(kube := Asked(None))) as here:
        kube.answer = chosen(await lsr(here), cpus)
        assert reason(await here.bind(webhooks.binding())).startswith(because)
        assert kube.asked == [("pods", "models", "resnet-1", True)]
        # What the watch has shown by then is not asked for.
        here.memory.unbound.put(kube.answer)
        assert reason(await here.bind(webhooks.binding())).startswith(because)
        assert len(kube.asked) == 1


async def test_the_watch_may_show_chosen_cpus_first(tmp_path):
    async with webhooks.running(tmp_path, webhooks.stocked(), arrival_wait_s=30.0) as here:
        pod = await lsr(here)
        under_way = asyncio.create_task(here.bind(webhooks.binding(), "?timeout=20s"))
        await waiting_for(here.webhook._caches.unbound_waiters)
        here.memory.unbound.put(pod)
        here.memory.unbound.put(chosen(pod, "2-3"))
        assert reason(await under_way).startswith("2 exclusive CPUs (Koordinator LSR)")


@pytest.mark.parametrize("error", [NotFound(404, "NotFound", ""), Unavailable(0, "NoAnswer", "")])
async def test_a_pod_whose_chosen_cpus_can_not_be_asked_for_is_bound_as_it_was_seen(tmp_path, error):
    async with webhooks.running(tmp_path, webhooks.stocked(), kube=Asked(error)) as here:
        await lsr(here)
        assert reason(await here.bind(webhooks.binding())) == NOTHING_CHOSEN


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        (NotFound(404, "NotFound", ""), "PodNotFound"),
        (Unavailable(503, "ServiceUnavailable", ""), "PodLookupFailed"),
        (webhooks.injected(uid="another"), "PodAnotherUID"),
        ({"metadata": {"name": "resnet-1", "uid": "pod-1"}}, "NotInjected"),
        ({"metadata": {"name": "resnet-1", "uid": "pod-1", "labels": {"raddle.dev/injected": "no"}}}, "NotInjected"),
    ],
)
async def test_a_pod_that_can_not_be_found_keeps_its_safe_values_and_is_counted(tmp_path, answer, outcome):
    async with webhooks.running(tmp_path, webhooks.stocked(), kube=Asked(answer)) as here:
        assert "patch" not in await here.bind(webhooks.binding())
        assert here.count("raddle_webhook_bindings_total", outcome=outcome) == 1


@pytest.mark.parametrize("slow", ["watch", "question"])
async def test_a_binding_is_answered_well_before_the_api_server_gives_up(tmp_path, slow):
    waits = {"arrival_wait_s": 30.0} if slow == "watch" else {"lookup_timeout_s": 30.0}
    kube = Asked(None, after_s=30.0)
    async with webhooks.running(tmp_path, webhooks.stocked(), kube=kube, **waits) as here:
        async with asyncio.timeout(0.5):
            response = await here.bind(webhooks.binding(), "?timeout=200ms")
        assert decision(response) == "skipped Deadline"
        assert here.count("raddle_webhook_bindings_total", outcome="Deadline") == 1


async def test_only_so_many_questions_run_at_once(tmp_path):
    # A place stays taken for as long as a question may last.
    kube = Asked(None, after_s=60.0)
    waits = {"arrival_wait_s": 0.0, "lookup_timeout_s": 4.0}
    async with webhooks.running(tmp_path, webhooks.stocked(), kube=kube, **waits) as here:
        answers = await asyncio.gather(*(here.bind(webhooks.binding(f"p{n}"), "?timeout=9s") for n in range(100)))
        assert {decision(answer) for answer in answers} == {"skipped PodLookupFailed", "skipped PodTooManyLookups"}
        assert len(kube.asked) < 100


@pytest.mark.parametrize("text", ["", "{", "[]", '{"v":1}', "x" * 3000, '{"v":1,"budget":{"quota_cpus":1e308}}'])
async def test_annotations_are_untrusted(here, text):
    here.memory.unbound.put(webhooks.injected(annotations={PLAN: text, THREADS: "7"}))
    response = await here.bind(webhooks.binding())
    assert "patch" not in response or THREADS in str(webhooks.operations(response))
    assert here.count("raddle_webhook_fail_open_total") == 0


@pytest.mark.parametrize(
    "change",
    [
        {"metadata": []},
        {"metadata": {"name": 7}},
        {"metadata": {"name": "a", "uid": 7}},
        {"target": []},
        {"target": {}},
        {"target": {"name": None}},
    ],
)
async def test_a_binding_of_a_wrong_shape_is_allowed_unchanged(here, change):
    review = webhooks.binding_review(webhooks.binding(), object=webhooks.binding() | change, name="")
    response = await here.admit("/mutate/binding", review)
    assert decision(response) == "foreign MalformedRequest"


async def test_those_who_wait_for_a_key_are_woken_by_that_key_only():
    arrivals = Waiters()
    task = asyncio.create_task(arrivals.next(("a", "b"), lambda value: value == 2))
    await asyncio.sleep(0)
    arrivals.notify(("a", "other"), None, 2)
    arrivals.notify(("a", "b"), 1, None)
    arrivals.notify(("a", "b"), None, 1)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not task.done()
    arrivals.notify(("a", "b"), 1, 2)
    assert await task == 2
    assert len(arrivals) == 0


async def test_who_stops_waiting_leaves_nothing_behind():
    arrivals = Waiters()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(arrivals.next(("a", "b"), lambda _: True), 0.01)
    assert len(arrivals) == 0


def test_decisions_are_logged_up_to_a_rate_and_the_rest_is_counted(caplog):
    caplog.set_level(logging.INFO)
    now_s = 0.0
    decision_log = DecisionLog(2.0, lambda: now_s)
    for _ in range(10):
        decision_log.decision("pods", "changed", "", "models", "a", "InferenceThreading/fast")
    assert len(caplog.records) == 2
    now_s = 1.0
    decision_log.decision("pods", "skipped", "NoPolicy", "models", "", "")
    line = "path=pods decision=skipped reason=NoPolicy namespace=models name=- detail='' unlogged=8"
    assert caplog.records[-1].getMessage() == line


def test_no_decision_is_logged_where_none_is_wanted(caplog):
    caplog.set_level(logging.INFO)
    DecisionLog(0.0).decision("pods", "changed", "", "models", "a", "")
    assert not caplog.records


def test_one_kind_of_failure_is_logged_once_a_minute_with_the_number_of_the_others(caplog):
    now_s = 0.0
    decision_log = DecisionLog(0.0, lambda: now_s)
    for moment in (0.0, 1.0, 59.0, 61.0):
        now_s = moment
        decision_log.failure("pods", ValueError("x"))
    decision_log.failure("pods", KeyError("y"))
    assert [record.getMessage() for record in caplog.records] == [
        "pods: ValueError (0 more since the last such line)",
        "pods: ValueError (2 more since the last such line)",
        "pods: KeyError (0 more since the last such line)",
    ]

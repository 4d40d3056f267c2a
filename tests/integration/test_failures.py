"""What goes on when something fails: webhook, controller, API server, topologies, and users who mean ill.

The processes are stopped here, so the cluster is this module's own.
"""

import contextlib
import time

import pytest
from support.nodes import unregister
from support.reliability.installed import (
    LIMIT_CPUS,
    NODE,
    NODE_THREADS,
    SHAPE,
    LeaderWatch,
    installed,
    leads,
    next_second,
    restart,
    stopped,
)
from support.reliability.load import Load, refused, without_values

import machines
from cluster import ApiError, Cluster
from cluster.local_raddle import NAMESPACE
from cluster.namespaces import TOPOLOGIES
from cluster.objects import container, injected, plan_of, pod, policy, threads
from cluster.waiting import wait

VICTIM = "victim"
GATES = [{"name": "test/wait"}]
TAKE_OVER_SECONDS = 20.0
# A standby looks at the Lease every 2.4 s at the latest; a Lease that nobody released lasts for 15 s.
AT_ONCE_SECONDS = 8.0


@pytest.fixture(scope="module")
def cluster():
    with Cluster(name="failures") as running:
        yield running


@pytest.fixture(scope="module")
def shared(cluster):
    with installed(cluster) as running:
        yield running


@pytest.fixture
def raddle(shared):
    """Raddle with both processes up; a test may end either, and the next test has both again."""
    yield shared
    restart(shared.webhook)
    restart(shared.controller)


def on(node, *containers, **more):
    return pod(*(containers or [container(cpu=str(LIMIT_CPUS), request="10m")]), nodeSelector={"node": node}, **more)


def gated(name="app", node=NODE):
    return on(node, name=name, schedulingGates=GATES)


def release(space, name="app"):
    """Take the gate away; return the pod once it is bound."""
    space.client.merge(f"/api/v1/namespaces/{space.name}/pods/{name}", {"spec": {"schedulingGates": []}})
    return space.bound(name)


def condition(status, kind):
    return next((item for item in status.get("conditions", []) if item["type"] == kind), {})


# --- the webhook ------------------------------------------------------------------------------------------------------


def test_a_pod_that_is_bound_while_the_webhook_is_down_keeps_its_safe_values(space, raddle):
    space.apply(policy())
    space.create(gated())
    raddle.webhook.stop()
    bound = release(space)
    assert bound["spec"]["nodeName"] == NODE
    assert (threads(bound), plan_of(bound).node) == (LIMIT_CPUS, None)
    wait(lambda: space.policy_status().get("safeValuePods") == 1)
    raddle.webhook.start().wait_ready()
    space.create(on(NODE, name="later"))
    assert (threads(space.bound("later")), plan_of(space.get("later")).node) == (NODE_THREADS, NODE)


def test_pods_that_are_created_while_the_webhook_is_down_are_as_the_user_wrote_them_and_are_counted(space, raddle):
    space.apply(policy())
    next_second()
    raddle.webhook.stop()
    names = ["first", "second"]
    for name in names:
        made = space.create(on(NODE, name=name))
        assert not injected(made)
        assert "annotations" not in made["metadata"]
        assert "env" not in made["spec"]["containers"][0]
        assert space.bound(name)["spec"]["nodeName"] == NODE
    raddle.webhook.start().wait_ready()
    wait(lambda: space.policy_status().get("skippedPods") == [{"reason": "WebhookMissed", "count": 2}])
    degraded = condition(space.policy_status(), "Degraded")
    assert (degraded["status"], degraded["reason"]) == ("True", "WebhookMissed")
    assert all(f"{space.name}/{name}" in degraded["message"] for name in names)
    assert raddle.controller.metric("raddle_missed_pods", pod_namespace=space.name) == 2
    [event] = wait(lambda: raddle.events(space.name, "WebhookMissed"))
    assert event["type"] == "Warning"
    # Restarted, as the message says, they have values.
    for name in names:
        space.delete(name)
        assert injected(space.create(on(NODE, name=name)))
    wait(lambda: condition(space.policy_status(), "Degraded").get("status") == "False")
    assert space.policy_status()["injectedPods"] == 2
    assert raddle.controller.metric("raddle_missed_pods", pod_namespace=space.name) == 0


@pytest.mark.parametrize("end", ["kill", "stop"])
def test_no_create_fails_while_the_webhook_goes_away_and_comes_back_on_its_port(space, raddle, end):
    space.apply(policy())
    with Load(space, rate_per_s=100) as load:
        load.go_on(5, with_values=True)
        getattr(raddle.webhook, end)()
        wait(lambda: len(without_values(load.calls)) >= 5)
        raddle.webhook.start()
        load.go_on(5, with_values=True)
    assert refused(load.calls) == []


def test_a_webhook_that_hangs_delays_pods_and_denies_none(space, raddle):
    space.apply(policy())
    space.create(gated())
    hung_s = time.monotonic()
    with stopped(raddle.webhook):
        made = space.create(on(NODE, name="hung"))
        bound = release(space)
        delayed_s = time.monotonic() - hung_s
    assert not injected(made)
    assert (threads(bound), plan_of(bound).node) == (LIMIT_CPUS, None)
    # 2 s at CREATE and 1 s at each of the two bindings; the rest is room for a busy machine.
    assert 2 <= delayed_s < 15
    space.apply(policy("later", priority=1))
    assert injected(space.create(on(NODE, name="later")))


# --- topologies that are not to be believed ----------------------------------------------------------------------------


@pytest.fixture
def victim(space, raddle):
    """A node whose topology a test spoils; it is as good as the other one before."""
    handle = raddle.register_machine(VICTIM, machines.path(SHAPE), labels={"node": VICTIM})
    space.apply(policy())
    wait(lambda: space.knows(VICTIM))
    yield handle
    unregister(space.cluster, handle)


@pytest.mark.parametrize(
    ("spoil", "outcome"),
    [
        pytest.param({"cores": ["0,99"], "counts": {"cores": 1}}, "SafeNoTopology", id="a core that is not online"),
        pytest.param({"cpus": {"online": "7-0"}}, "SafeNoTopology", id="a range that runs backwards"),
        pytest.param(
            {"numaNodes": [{"numaNodeID": 0, "cpus": "0-31"}, {"numaNodeID": 1, "cpus": "0-31"}]},
            "SafeNoTopology",
            id="CPUs on two NUMA nodes",
        ),
        pytest.param({"bootID": "of-another-boot"}, "TopologyStale", id="another boot"),
        pytest.param(None, "SafeNoTopology", id="deleted"),
    ],
)
def test_a_topology_that_can_not_be_right_leaves_safe_values(space, raddle, victim, spoil, outcome):
    space.create(gated("early", VICTIM))
    before = raddle.webhook.metric("raddle_webhook_bindings_total", outcome=outcome)
    if spoil is None:
        space.client.delete(f"{TOPOLOGIES}/{VICTIM}")
    else:
        space.client.merge(f"{TOPOLOGIES}/{VICTIM}", {"spec": spoil})
    wait(lambda: not space.knows(VICTIM))
    bound = [release(space, "early")]
    space.create(on(VICTIM, name="late"))
    bound.append(space.bound("late"))
    placed = [(one["spec"]["nodeName"], threads(one), plan_of(one).node) for one in bound]
    assert placed == [(VICTIM, LIMIT_CPUS, None)] * 2
    if spoil and outcome == "SafeNoTopology":
        valid = lambda: condition(space.client.get(f"{TOPOLOGIES}/{VICTIM}").get("status", {}), "Valid")  # noqa: E731
        wait(lambda: valid().get("reason") == "NoMachine")
        assert "pods keep safe values" in valid()["message"]
    assert raddle.webhook.metric("raddle_webhook_bindings_total", outcome=outcome) == before + 2
    assert raddle.webhook.metric("raddle_webhook_fail_open_total") == 0


# --- the controller ---------------------------------------------------------------------------------------------------


def idle(controller):
    """Whether the controller has looked at everything since it began to lead, and has nothing left to do."""
    if not leads(controller):
        return False
    resyncs = controller.metric("raddle_controller_resyncs_total", outcome="done")
    return resyncs >= 1 and controller.metric("raddle_controller_queue_depth") == 0


def test_a_killed_controller_finds_everything_again_and_writes_only_what_has_changed(space, raddle):
    space.apply(policy("quiet", podSelector={"matchLabels": {"app": "quiet"}}))
    space.apply(policy("busy", podSelector={"matchLabels": {"app": "busy"}}))
    next_second()
    raddle.webhook.stop()  # one that is missed: why it was must be found out again
    space.create(on(NODE, name="quiet-missed", labels={"app": "quiet"}))
    raddle.webhook.start().wait_ready()
    for name in ("quiet-a", "quiet-b", "busy-a", "busy-b"):
        space.create(on(NODE, name=name, labels={"app": name.split("-")[0]}))
        space.bound(name)

    def counts(name):
        status = space.policy_status(name)
        skipped = {item["reason"]: item["count"] for item in status.get("skippedPods", [])}
        return status.get("matchedPods"), status.get("injectedPods"), status.get("safeValuePods"), skipped

    def version(name):
        path = f"/apis/raddle.dev/v1alpha1/namespaces/{space.name}/inferencethreadings/{name}"
        return space.client.get(path)["metadata"]["resourceVersion"]

    missed = {"WebhookMissed": 1}
    wait(lambda: counts("quiet") == (3, 2, 0, missed) and counts("busy") == (2, 2, 0, {}))
    wait(lambda: idle(raddle.controller))
    quiet, pods = (
        version("quiet"),
        {one["metadata"]["name"]: one["metadata"]["resourceVersion"] for one in space.list()},
    )
    raddle.controller.kill()
    space.delete("busy-a")
    space.client.apply(policy("new", space.name, podSelector={"matchLabels": {"app": "new"}}))
    raddle.controller.start().wait_ready()
    wait(lambda: counts("busy") == (1, 1, 0, {}) and counts("new") == (0, 0, 0, {}))
    wait(lambda: idle(raddle.controller))
    assert counts("quiet") == (3, 2, 0, missed)
    assert version("quiet") == quiet
    del pods["busy-a"]
    assert {one["metadata"]["name"]: one["metadata"]["resourceVersion"] for one in space.list()} == pods
    written = raddle.controller.metric("raddle_controller_status_writes_total", kind="InferenceThreading")
    assert written == 2, "one write for each policy that something had changed for"


def test_a_second_controller_takes_over_and_there_are_never_two_leaders(space, raddle):
    first, second = raddle.controller, raddle.controller_process("second")
    wait(lambda: leads(first))
    second.start().wait_ready()
    try:
        with LeaderWatch(first, second) as watch:
            assert not leads(second)
            killed_s = time.monotonic()
            first.kill()
            wait(lambda: leads(second), seconds=TAKE_OVER_SECONDS)
            took_s = time.monotonic() - killed_s
            space.apply(policy())
            wait(lambda: space.policy_status().get("conditions"))
            first.start().wait_ready()
            assert not leads(first)
            stopped_s = time.monotonic()
            second.stop()
            wait(lambda: leads(first), seconds=AT_ONCE_SECONDS)
            handed_over_s = time.monotonic() - stopped_s
            wait(lambda: idle(first))
        assert watch.both == 0
        assert watch.looks > 20
        lease = space.client.get(f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/raddle-controller")
        assert lease["spec"]["holderIdentity"] == "controller"
        print(f"took over {took_s:.1f} s after SIGKILL, {handed_over_s:.1f} s after an orderly stop began")
    finally:
        second.stop()


# --- the API server -----------------------------------------------------------------------------------------------------


def test_webhook_and_controller_go_on_after_the_api_server_was_restarted(space, raddle):
    space.apply(policy("before"))
    space.create(on(NODE, name="before"))
    wait(lambda: space.policy_status("before").get("injectedPods") == 1)
    pids = raddle.webhook.pid, raddle.controller.pid
    space.cluster.restart("apiserver")

    def again():
        with contextlib.suppress(ApiError):  # RBAC's own roles may take a moment
            return space.list()

    assert [one["metadata"]["name"] for one in wait(again)] == ["before"]
    # It governs both pods from now on, for anyone who has been told of it.
    space.apply(policy("after", priority=9, threads={"maxIntraOp": 3}))
    made = space.create(on(NODE, name="after"))
    assert (injected(made), threads(made)) == (True, 3)
    assert plan_of(space.bound("after")).node == NODE
    wait(lambda: space.policy_status("after").get("injectedPods") == 2)
    assert space.policy_status("after")["stalePods"] == 1
    assert (raddle.webhook.pid, raddle.controller.pid) == pids

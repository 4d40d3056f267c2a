"""The control plane fails under Raddle: API server killed, etcd restored from a snapshot, versions forgotten."""

import contextlib
import http.client
import os
import signal
import time

import pytest
from support.reliability import audit, truth
from support.reliability.etcd import Etcd
from support.reliability.installed import SHAPE, alone, restart, stopped
from support.reliability.load import Load, refused, without_values

import machines
from cluster import ApiError, objects
from cluster.namespaces import POLICIES, TOPOLOGIES
from cluster.waiting import wait

# The longer outage outlasts the Lease: the leader must have stepped down by itself.
SHORT_S, LONG_S = 2, 15
CONTROL_PLANE = ("scheduler", "controller-manager", "apiserver", "etcd")
AGENT_NODE = "with-agent"
PADDING = 200


@pytest.mark.failure(
    "api-server-killed",
    f"The API server is killed while pods are created, for {SHORT_S} s and for {LONG_S} s.",
    "The webhook lives through both and gives values to the first pod; the controller goes on, or after the longer"
    " outage begins again; nothing that was stored is lost.",
)
def test_an_api_server_that_is_killed_costs_no_stored_pod_its_values(figures):
    with alone() as space:
        cluster, raddle = space.cluster, space.raddle
        space.store(*(truth.capped(name, 4) for name in ("app", "changed")))
        truth.settle(space)
        webhook, controller = raddle.webhook.pid, raddle.controller.pid
        with Load(space, connections=1) as load:
            for most, outage_s in ((5, SHORT_S), (6, LONG_S)):
                load.go_on(5, with_values=True)
                os.kill(cluster.pids()["kube-apiserver"], signal.SIGKILL)
                wait(lambda: "kube-apiserver" not in cluster.pids(), "it has ended")
                time.sleep(outage_s)
                cluster.start("apiserver")
                back_s = time.monotonic()
                if outage_s == LONG_S:
                    restart(raddle.controller)
                space.store(truth.capped("changed", most))
                truth.settle(space, status=False)
                figures[f"webhook follows changes, {outage_s} s outage"] = f"{time.monotonic() - back_s:.1f} s"
                assert raddle.webhook.pid == webhook
                assert outage_s == LONG_S or raddle.controller.pid == controller
        settled_s = time.monotonic()
        truth.settle(space)
        away, without = refused(load.calls), without_values(load.calls)
        stored = {one.name for one in load.calls if not one.refused}
        lost = stored - {one["metadata"]["name"] for one in space.list()}
        figures |= {
            "pods created": len(stored),
            "of these lost": len(lost),
            "of these without values": len(without),
            "status right after the last": f"{time.monotonic() - settled_s:.1f} s",
            "creates that failed while it was away": len(away),
        }
        assert lost == set()
        assert without == []
        assert away, "the API server was to be away"


# --- etcd is restored from a snapshot ---------------------------------------------------------------------------------


@pytest.mark.failure(
    "etcd-restored",
    "etcd is restored from a snapshot under running processes, so that resource versions go back.",
    "Webhook, controller and agent find out by themselves; every status is right again; no status is of a"
    " generation that is gone.",
)
def test_a_past_that_comes_back_is_found_out_and_nothing_of_the_lost_one_is_written(figures):
    with alone(cluster_options={"audit_policy": audit.POLICY}) as space:
        cluster, raddle, etcd = space.cluster, space.raddle, Etcd(space.cluster)
        begin(space)
        with paused_agent(raddle):
            snapshot = etcd.snapshot()
        change_much(space)
        truth.settle(space)
        webhook, before = raddle.webhook.pid, etcd.revision()
        for name in CONTROL_PLANE:
            cluster.stop(name)
        etcd.restore(snapshot)
        restored_at, began_s = time.time(), time.monotonic()
        for name in reversed(CONTROL_PLANE):
            cluster.start(name)
        after = etcd.revision()
        # By the Lease that it could not renew meanwhile, or by a list that is older than what it knew.
        wait(lambda: raddle.controller.pid is None, "the controller has ended", truth.SETTLE_S)
        controller_s = time.monotonic() - began_s
        restart(raddle.controller)
        kept = {one["metadata"]["name"] for one in truth.policies(space)}
        truth.settle(space)
        right_s = time.monotonic() - began_s
        # All of this happens at revisions that were there once before, with other content.
        space.store(truth.capped("changed", 7), truth.capped("again", 3))
        space.delete("kept-before")
        truth.settle(space)
        space.create(truth.of_app("again", "again-after"))
        truth.settle(space)
        changes_at = etcd.revision()
        wait(lambda: has_topology(cluster), "the agent has published again", truth.SETTLE_S)
        written = audit.writes(cluster)
        wrong = [one for one in written if one.at_s > restored_at and says_too_much(one)]
        figures |= {
            "revision before": before,
            "revision restored": after,
            "all right after etcd's start": f"{right_s:.1f} s",
            "wrong writes": len(wrong),
            "the controller ended, to be restarted, after": f"{controller_s:.1f} s",
        }
        assert after < before
        assert changes_at < before, "changes after it were to have revisions of before"
        assert kept == {"changed", "deleted", "kept"}
        assert wrong == []
        assert not [one for one in written if one.resource.startswith("pods")]
        assert raddle.webhook.pid == webhook


def begin(space):
    """Three policies, each with a pod."""
    space.store(*(truth.capped(name, 4) for name in ("changed", "deleted", "kept")))
    truth.settle(space)
    for app in ("changed", "deleted", "kept"):
        space.create(truth.of_app(app, f"{app}-before"))
    truth.settle(space)


def change_much(space):
    """Change what a snapshot does not have, and move the revision far beyond it."""
    space.store(truth.capped("changed", 6), truth.capped("new", 5))
    space.client.delete(f"{POLICIES}/namespaces/{space.name}/inferencethreadings/deleted")
    for app in ("changed", "new"):
        space.create(truth.of_app(app, f"{app}-since"))
    space.delete("kept-before")
    for number in range(PADDING):
        counter = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "counter"}}
        space.store({**counter, "data": {"number": str(number)}})


@contextlib.contextmanager
def paused_agent(raddle):
    """An agent that has published, and within the block neither runs nor has its object on the server."""
    raddle.register_machine(AGENT_NODE, machines.path(SHAPE), publish=False)
    agent = raddle.start_agent(AGENT_NODE, str(machines.path(SHAPE)), ["--kubelet-config", "None"])
    wait(lambda: has_topology(raddle.cluster), "the agent has published")
    with stopped(agent):
        raddle.cluster.client.delete(f"{TOPOLOGIES}/{AGENT_NODE}")
        yield
    wait(lambda: has_topology(raddle.cluster), "the agent has published again")


def has_topology(cluster):
    with contextlib.suppress(ApiError):
        return bool(cluster.client.get(f"{TOPOLOGIES}/{AGENT_NODE}"))
    return False


def says_too_much(one):
    """Whether a status is of a generation that the object does not have."""
    if one.resource != "inferencethreadings/status":
        return False
    return one.stored.get("status", {}).get("observedGeneration", 0) > one.stored["metadata"]["generation"]


# --- 410 Gone ---------------------------------------------------------------------------------------------------------

KINDS = {
    "InferenceThreading": f"{POLICIES}/inferencethreadings",
    "NodeCPUTopology": TOPOLOGIES,
    "Namespace": "/api/v1/namespaces",
    "Node": "/api/v1/nodes",
}
"""What kopf watches for the controller."""


@pytest.mark.failure(
    "versions-forgotten",
    "Webhook and controller stand still while much changes or goes, etcd is compacted and the API server restarted.",
    "Their watches get 410 Gone; they list again and are right, also about what is gone.",
)
def test_processes_whose_versions_are_forgotten_list_again_and_know_what_is_gone(figures):
    with alone() as space:
        cluster, raddle, etcd = space.cluster, space.raddle, Etcd(space.cluster)
        going = raddle.register_machine("going", machines.path(SHAPE))
        space.client.apply(objects.namespace("going"))
        begin(space)
        version = space.client.get(space.pods_path)["metadata"]["resourceVersion"]
        with stopped(raddle.webhook), stopped(raddle.controller):
            # Their watches end here; else the kernel would keep what is sent for them to read.
            cluster.restart("apiserver")
            # Webhook calls time out meanwhile, and pods are created all the same.
            change_much(space)
            space.client.delete("/api/v1/namespaces/going")
            going.delete()
            space.client.delete(f"{TOPOLOGIES}/going", missing_ok=True)
            wait(lambda: "going" not in str(names(space, "Namespace")), "the namespace is gone")
            etcd.compact()
            cluster.restart("apiserver")
            code = watch_code(space, version)
        began_s = time.monotonic()
        truth.settle(space)
        right_s = time.monotonic() - began_s
        wait(
            lambda: (
                {kind: kept(raddle.controller, kind) for kind in KINDS}
                == {kind: len(names(space, kind)) for kind in KINDS}
            ),
            "the controller has forgotten what is gone",
            truth.SETTLE_S,
        )
        forgotten_s = time.monotonic() - began_s
        told = [process.log.count("the resource version is too old") for process in (raddle.webhook, raddle.controller)]
        figures |= {
            "changes meanwhile": PADDING + 9,
            "a watch from before is answered": code,
            "caches listed again": f"{told[0]} of the webhook, {told[1]} of the controller",
            "status and webhook right after": f"{right_s:.1f} s",
            "the controller has forgotten what is gone after": f"{forgotten_s:.1f} s",
        }
        assert code == http.client.GONE
        assert all(told)


def names(space, kind):
    return [one["metadata"]["name"] for one in space.client.get(KINDS[kind])["items"]]


def kept(controller, kind):
    return controller.metric("raddle_controller_cache_objects", kind=kind)


def watch_code(space, version):
    """What the API server says to a watch of pods from this version: 410 as an event, 200 where it goes on."""
    query = {"watch": "true", "resourceVersion": version, "timeoutSeconds": "1"}
    try:
        answer = space.client.get(space.pods_path, **query)
    except ApiError as error:
        return error.status
    except ValueError:  # several events, one a line
        return http.client.OK
    return answer.get("object", {}).get("code", http.client.OK)

"""The control plane fails under Raddle: API server killed, etcd restored from a snapshot, versions forgotten."""

from __future__ import annotations

import contextlib
import http.client
import os
import signal
import time
from collections.abc import Iterator
from typing import Final

import machines
from cluster import ApiError, Cluster
from cluster.local_raddle import LocalRaddle, Process
from cluster.namespaces import TOPOLOGIES, TestNamespace
from cluster.waiting import wait
from reliability import audit, truth
from reliability.etcd import Etcd
from reliability.load import Load, refused, without_values
from reliability.model import Check, Result, broken_unless
from reliability.webhook import stopped
from reliability.world import SHAPE, World

# The longer outage outlasts the Lease: the leader must have stepped down by itself.
OUTAGES_S: Final = (2.0, 15.0)
CONTROL_PLANE: Final = ("scheduler", "controller-manager", "apiserver", "etcd")
AGENT_NODE: Final = "with-agent"
PADDING: Final = 200


# --- the API server is killed -----------------------------------------------------------------------------------------


def api_server_killed(world: World) -> Result:
    """Kill it twice under writes: for a moment, and for longer than the leader's Lease lasts."""
    figures: dict[str, str] = {}
    broken: list[str] = []
    with world.fresh_cluster() as cluster, world.raddle_on(cluster) as raddle, world.namespace(raddle) as space:
        space.store(*(truth.capped(name, 4) for name in ("app", "changed")))
        truth.settle(space)
        pids = raddle.webhook.pid, raddle.controller.pid
        with Load(space, connections=1) as load:
            for number, outage_s in enumerate(OUTAGES_S):
                load.go_on(5, with_values=True)
                _kill(cluster, "apiserver")
                time.sleep(outage_s)
                cluster.start("apiserver")
                back_s = time.monotonic()
                if outage_s == max(OUTAGES_S):
                    _restart_as_a_kubelet_would(raddle.controller)
                space.store(truth.capped("changed", 5 + number))
                truth.settle(space, status=False)
                figures[f"webhook follows changes, {outage_s:g} s outage"] = f"{time.monotonic() - back_s:.1f} s"
                if outage_s == min(OUTAGES_S):
                    broken += broken_unless(
                        neither_process_has_ended=pids == (raddle.webhook.pid, raddle.controller.pid)
                    )
        settled_s = time.monotonic()
        truth.settle(space)
        away, without = len(refused(load.calls)), without_values(load.calls)
        stored = {one.name for one in load.calls if not one.refused}
        lost = stored - {one["metadata"]["name"] for one in space.list()}
        figures |= {
            "pods created": str(len(stored)),
            "of these lost": str(len(lost)),
            "of these without values": str(len(without)),
            "status right after the last": f"{time.monotonic() - settled_s:.1f} s",
            "creates that failed while it was away": str(away),
        }
        broken += broken_unless(
            no_stored_pod_was_lost=not lost,
            every_pod_that_was_stored_has_its_values=not without,
            the_webhook_never_ended=raddle.webhook.pid == pids[0],
            the_api_server_was_really_away=away > 0,
        )
    return Result(figures, tuple(broken))


# --- etcd is restored from a snapshot ---------------------------------------------------------------------------------


def etcd_restored(world: World) -> Result:
    """Go back to a snapshot while Raddle's processes run on, with all that they learned since in their memory."""
    with contextlib.ExitStack() as stack:
        cluster = stack.enter_context(world.fresh_cluster(audit_policy=audit.POLICY))
        raddle = stack.enter_context(world.raddle_on(cluster))
        space = stack.enter_context(world.namespace(raddle))
        etcd = Etcd(cluster, world.progress)
        space.store(*(truth.capped(name, 4) for name in ("changed", "deleted", "kept")))
        truth.settle(space)
        for app in ("changed", "deleted", "kept"):
            space.create(truth.of_app(app, f"{app}-before"))
        truth.settle(space)
        with _paused_agent(raddle):
            snapshot = etcd.snapshot()
        _change_much(space)
        truth.settle(space)
        webhook = raddle.webhook.pid
        before = etcd.revision()
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
        _restart_as_a_kubelet_would(raddle.controller)
        kept = {one["metadata"]["name"] for one in truth.policies(space)}
        truth.settle(space)
        right_s = time.monotonic() - began_s
        # All of this happens at revisions that were there once before, with other content.
        space.store(truth.capped("changed", 7), truth.capped("again", 3))
        space.client.delete(f"{space.pods_path}/kept-before")
        truth.settle(space)
        space.create(truth.of_app("again", "again-after"))
        truth.settle(space)
        changes_at = etcd.revision()
        wait(lambda: _has_topology(cluster), "the agent has published again", truth.SETTLE_S)
        wrong = [one for one in audit.writes(cluster) if one.at_s > restored_at and _says_too_much(one)]
        pods = [one for one in audit.writes(cluster) if one.resource.startswith("pods")]
        return Result(
            {
                "revision before": str(before),
                "revision restored": str(after),
                "all right after etcd's start": f"{right_s:.1f} s",
                "wrong writes": str(len(wrong)),
                "the controller ended, to be restarted, after": f"{controller_s:.1f} s",
            },
            broken_unless(
                the_revision_went_back=after < before,
                changes_after_it_had_revisions_of_before=changes_at < before,
                policies_are_those_of_the_snapshot=kept == {"changed", "deleted", "kept"},
                no_status_was_of_a_generation_that_is_not_there=not wrong,
                no_pod_was_written_to=not pods,
                the_webhook_never_ended=raddle.webhook.pid == webhook,
            ),
        )


def _change_much(space: TestNamespace) -> None:
    """Change what a snapshot does not have, and move the revision far beyond it."""
    space.store(truth.capped("changed", 6), truth.capped("new", 5))
    space.client.delete(f"/apis/raddle.dev/v1alpha1/namespaces/{space.name}/inferencethreadings/deleted")
    for app in ("changed", "new"):
        space.create(truth.of_app(app, f"{app}-since"))
    space.client.delete(f"{space.pods_path}/kept-before")
    counter = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "counter"}}
    for number in range(PADDING):
        space.store({**counter, "data": {"number": str(number)}})


@contextlib.contextmanager
def _paused_agent(raddle: LocalRaddle) -> Iterator[None]:
    """An agent that has published, and within the block neither runs nor has its object on the server."""
    raddle.register_machine(AGENT_NODE, machines.path(SHAPE), publish=False)
    agent = raddle.start_agent(AGENT_NODE, str(machines.path(SHAPE)), ["--kubelet-config", "None"])
    wait(lambda: _has_topology(raddle.cluster), "the agent has published")
    with stopped(agent):
        raddle.cluster.client.delete(f"{TOPOLOGIES}/{AGENT_NODE}")
        yield
    wait(lambda: _has_topology(raddle.cluster), "the agent has published again")


def _has_topology(cluster: Cluster) -> bool:
    try:
        cluster.client.get(f"{TOPOLOGIES}/{AGENT_NODE}")
    except ApiError:
        return False
    return True


def _says_too_much(one: audit.Write) -> bool:
    """Whether a status is of a generation that the object does not have."""
    if one.resource != "inferencethreadings/status":
        return False
    observed = one.stored.get("status", {}).get("observedGeneration", 0)
    return bool(observed > one.stored["metadata"]["generation"])


# --- 410 Gone ---------------------------------------------------------------------------------------------------------


def versions_forgotten(world: World) -> Result:
    """Stop both processes for a while; compact etcd and restart the API server, so that their versions are too old."""
    with world.fresh_cluster() as cluster, world.raddle_on(cluster) as raddle, world.namespace(raddle) as space:
        etcd = Etcd(cluster, world.progress)
        space.store(*(truth.capped(name, 4) for name in ("changed", "deleted", "kept")))
        for app in ("changed", "deleted", "kept"):
            space.create(truth.of_app(app, f"{app}-before"))
        truth.settle(space)
        version = space.client.get(space.pods_path)["metadata"]["resourceVersion"]
        with stopped(raddle.webhook), stopped(raddle.controller):
            # Webhook calls time out meanwhile, and pods are created all the same.
            _change_much(space)
            etcd.compact()
            cluster.restart("apiserver")
            code = _watch_code(space, version)
        began_s = time.monotonic()
        truth.settle(space)
        told = [process.log.count("has forgotten our version") for process in (raddle.webhook, raddle.controller)]
        return Result(
            {
                "changes meanwhile": str(PADDING + 6),
                "a watch from before is answered": str(code),
                "caches listed again": f"{told[0]} of the webhook, {told[1]} of the controller",
                "status and webhook right after": f"{time.monotonic() - began_s:.1f} s",
            },
            broken_unless(
                the_server_had_forgotten_the_version=code == http.client.GONE,
                both_have_listed_again_for_it=all(told),
            ),
        )


def _watch_code(space: TestNamespace, version: str) -> int:
    """What the API server says to a watch of pods from this version: 410 as an event, 200 where it goes on."""
    query = {"watch": "true", "resourceVersion": version, "timeoutSeconds": "1"}
    try:
        answer = space.client.get(space.pods_path, **query)
    except ApiError as error:
        return error.status
    except ValueError:  # several events, one a line
        return http.client.OK
    return int(answer.get("object", {}).get("code", http.client.OK))


# --- what they share --------------------------------------------------------------------------------------------------


def _kill(cluster: Cluster, component: str) -> None:
    pid = cluster.pids()[f"kube-{component}"]
    os.kill(pid, signal.SIGKILL)
    wait(lambda: f"kube-{component}" not in cluster.pids(), f"{component} has ended")


def _restart_as_a_kubelet_would(process: Process) -> None:
    """Start a process that has ended by itself; one that runs is left alone."""
    if process.pid is None:
        process.start()
    process.wait_ready()


CHECKS: Final = (
    Check(
        "api-server-killed",
        "The API server is killed while pods are created, for 2 s and for 15 s.",
        "The webhook lives through both and gives values to the first pod; the controller goes on, or after the longer"
        " outage begins again; nothing that was stored is lost.",
        api_server_killed,
    ),
    Check(
        "etcd-restored",
        "etcd is restored from a snapshot under running processes, so that resource versions go back.",
        "Webhook, controller and agent find out by themselves; every status is right again; no status is of a"
        " generation that is gone.",
        etcd_restored,
    ),
    Check(
        "versions-forgotten",
        "Webhook and controller stand still while much changes, etcd is compacted and the API server restarted.",
        "Their watches get 410 Gone; they list again and are right.",
        versions_forgotten,
    ),
)

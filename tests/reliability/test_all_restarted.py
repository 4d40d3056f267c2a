"""Everything is down at once, and comes up again with a webhook that is registered and answers nobody.

The chart's own Deployments and DaemonSet are in the cluster and the whole cluster is opted in, which is the case in
which a webhook could keep itself from being scheduled. What must run for the webhook to come back must not need it.
"""

import contextlib
import os
import signal
import socket
import time

import pytest
from support.attackers import webhook_address
from support.reliability.installed import SHAPE, count_missed, deployment, failed_open, installed

import machines
from cluster import Cluster, namespaces
from cluster.local_raddle import NAMESPACE
from cluster.namespaces import TestNamespace
from cluster.objects import injected, policy
from cluster.waiting import wait

NODES = ("node-a", "node-b", "node-c")
# Two of the controller, two of the webhook, an agent on each node.
OWN_PODS, SYSTEM_PODS, USER_PODS = 4 + len(NODES), 2, 20
VALUES = {"injection": {"default": "enabled"}}
UNLABELLED = ["--unlabelled", "enabled"]
SETTLE_S = 120.0


@pytest.mark.failure(
    "all-restarted",
    "All nodes, the control plane and Raddle are lost at once, in a cluster that is opted in whole; what comes up"
    " finds a webhook that takes connections and never answers.",
    "Raddle's own pods, kube-system's and the users' are created and bound without it; then Raddle works again.",
)
def test_a_cluster_that_is_lost_whole_comes_up_without_the_webhook_and_then_with_it(figures):
    options = {"node": False, "values": VALUES, "webhook_options": UNLABELLED, "controller_options": UNLABELLED}
    with (
        Cluster(name="reliability-own") as cluster,
        installed(cluster, workloads=True, **options) as raddle,
        namespaces.fresh(raddle, "check", {}) as space,
    ):
        own, system = TestNamespace(raddle, NAMESPACE), TestNamespace(raddle, "kube-system")
        nodes = register_nodes(raddle)
        space.store(policy())
        space.governed()
        space.store(deployment("users", USER_PODS, nodeSelector={}))
        system.store(deployment("dns", SYSTEM_PODS, nodeSelector={}))
        places = {own: OWN_PODS, system: SYSTEM_PODS, space: USER_PODS}
        for place, count in places.items():
            until_bound(place, count)
        before = {one["metadata"]["uid"] for place in places for one in place.list()}

        address = webhook_address(cluster.client)
        for name in ("controller-manager", "scheduler"):
            cluster.stop(name)
        for process in (raddle.webhook, raddle.controller):
            process.kill()
        for place in places:
            cluster.client.delete(place.pods_path)
        for node in nodes:
            node.delete()
        for pid in cluster.pids().values():
            os.kill(pid, signal.SIGKILL)
        wait(lambda: not cluster.pids(), "the control plane is down")

        with hanging(address):
            for name in ("etcd", "apiserver", "controller-manager", "scheduler"):
                cluster.start(name)
            began_s = time.monotonic()
            register_nodes(raddle)
            took_s = [until_bound(place, count) - began_s for place, count in places.items()]
            given_up = failed_open(cluster.client)
            pods = [one for place in places for one in place.list()]
        left_alone = sum(not injected(one) for one in space.list())
        began_s = time.monotonic()
        raddle.webhook.start().wait_ready()
        space.governed()
        back_s = time.monotonic() - began_s
        raddle.controller.start().wait_ready()
        missed = count_missed(space, left_alone)
        figures |= {
            "Raddle's own pods bound": f"{OWN_PODS} of {OWN_PODS} in {took_s[0]:.1f} s",
            "kube-system's": f"{SYSTEM_PODS} of {SYSTEM_PODS} in {took_s[1]:.1f} s",
            "users' in an opted-in namespace": f"{USER_PODS} of {USER_PODS} in {took_s[2]:.1f} s",
            "of these without values, and counted so": f"{left_alone}, {missed}",
            "webhook calls that failed open": given_up,
            "webhook's start until pods get values": f"{back_s:.1f} s",
        }
        assert not before & {one["metadata"]["uid"] for one in pods}, "every pod was to be a new one"
        assert given_up > 0, "the dead webhook was to be asked"
        assert missed == left_alone
        assert not any(map(injected, own.list() + system.list()))


def register_nodes(raddle):
    return [raddle.register_machine(name, machines.path(SHAPE)) for name in NODES]


def until_bound(space, wanted):
    """Wait until a namespace has so many pods and all are bound; when that was (time.monotonic())."""

    def bound():
        return sum(bool(one["spec"].get("nodeName")) for one in space.list())

    wait(lambda: bound() == wanted, f"{wanted} pods of {space.name} are bound", SETTLE_S)
    return time.monotonic()


@contextlib.contextmanager
def hanging(address):
    """Something that takes connections at the webhook's address and never answers: worse than nothing there."""
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(1000)
        yield

"""Everything is down at once, and comes up again with a webhook that is registered and answers nobody.

The chart's own Deployments and DaemonSet are in the cluster and the whole cluster is opted in, which is the case in
which a webhook could keep itself from being scheduled. What must run for the webhook to come back must not need it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import time
from collections.abc import Iterator, Mapping
from typing import Any, Final

import machines
from cluster import Cluster
from cluster.local_raddle import NAMESPACE, LocalRaddle
from cluster.namespaces import TestNamespace
from cluster.objects import injected, policy
from cluster.waiting import wait
from reliability import calls
from reliability.model import Check, Result, broken_unless
from reliability.world import SHAPE, World, count_missed, deployment

NODES: Final = ("node-a", "node-b", "node-c")
USER_PODS: Final = 20
# Two of the controller, two of the webhook, an agent on each node.
OWN_PODS: Final = 4 + len(NODES)
SYSTEM_PODS: Final = 2
VALUES: Final[Mapping[str, Any]] = {"workloads": {"enabled": True}, "injection": {"default": "enabled"}}
SETTLE_S: Final = 120.0


def all_restarted(world: World) -> Result:
    """Lose every process, node and pod; start the control plane and the nodes; count what is bound without Raddle."""
    with contextlib.ExitStack() as stack:
        cluster = stack.enter_context(world.fresh_cluster())
        unlabelled = ("--unlabelled", VALUES["injection"]["default"])
        raddle = stack.enter_context(
            world.raddle_on(
                cluster, node=False, values=VALUES, webhook_options=unlabelled, controller_options=unlabelled
            )
        )
        space = stack.enter_context(world.namespace(raddle, {}))
        system = TestNamespace(raddle, "kube-system")
        own = TestNamespace(raddle, NAMESPACE)
        nodes = _nodes(raddle)
        space.store(policy())
        space.governed()
        space.store(deployment("users", USER_PODS, nodeSelector={}))
        system.store(deployment("dns", SYSTEM_PODS, nodeSelector={}))
        everyone = ((own, OWN_PODS), (system, SYSTEM_PODS), (space, USER_PODS))
        _all_bound(everyone)
        before = {one["metadata"]["uid"] for place, _ in everyone for one in place.list()}

        address = calls.address(cluster.client)
        for name in ("controller-manager", "scheduler"):
            cluster.stop(name)
        for process in (raddle.webhook, raddle.controller):
            process.kill()
        for place, _ in everyone:
            cluster.client.delete(place.pods_path)
        for node in nodes:
            node.delete()
        _kill_all(cluster)

        with _hanging(address):
            _start_all(cluster)
            began_s = time.monotonic()
            _nodes(raddle)
            took_s = {place.name: _all_bound(((place, count),)) - began_s for place, count in everyone}
            asked = calls.failed_open(cluster.client)
            pods = [one for place, _ in everyone for one in place.list()]
        unchanged = sum(not injected(one) for one in space.list())
        began_s = time.monotonic()
        raddle.webhook.start().wait_ready()
        space.governed()
        back_s = time.monotonic() - began_s
        raddle.controller.start().wait_ready()
        missed = count_missed(space, unchanged)
        return Result(
            {
                "Raddle's own pods bound": f"{OWN_PODS} of {OWN_PODS} in {took_s[NAMESPACE]:.1f} s",
                "kube-system's": f"{SYSTEM_PODS} of {SYSTEM_PODS} in {took_s['kube-system']:.1f} s",
                "users' in an opted-in namespace": f"{USER_PODS} of {USER_PODS} in {took_s[space.name]:.1f} s",
                "of these without values, and counted so": f"{unchanged}, {missed}",
                "webhook calls that failed open": str(asked),
                "webhook's start until pods get values": f"{back_s:.1f} s",
            },
            broken_unless(
                every_pod_is_a_new_one=not before & {one["metadata"]["uid"] for one in pods},
                the_dead_webhook_was_really_asked=asked > 0,
                all_pods_without_values_are_counted=missed == unchanged,
                no_pod_of_raddle_or_kube_system_was_changed=not any(map(injected, own.list() + system.list())),
            ),
        )


def _nodes(raddle: LocalRaddle) -> list[Any]:
    return [raddle.register_machine(name, machines.path(SHAPE)) for name in NODES]


def _all_bound(everyone: tuple[tuple[TestNamespace, int], ...]) -> float:
    """Wait until each namespace has so many pods and all are bound; return when that was (time.monotonic())."""
    for place, count in everyone:
        wait(
            lambda place=place, count=count: _bound(place) == count,  # type: ignore[misc]
            f"{count} pods of {place.name} are bound ({_bound(place)} were at first)",
            SETTLE_S,
        )
    return time.monotonic()


def _bound(space: TestNamespace) -> int:
    return sum(bool(one["spec"].get("nodeName")) for one in space.list())


def _kill_all(cluster: Cluster) -> None:
    pids = cluster.pids()
    for pid in pids.values():
        os.kill(pid, signal.SIGKILL)
    wait(lambda: not cluster.pids(), "the control plane is down")


def _start_all(cluster: Cluster) -> None:
    for name in ("etcd", "apiserver", "controller-manager", "scheduler"):
        cluster.start(name)


@contextlib.contextmanager
def _hanging(address: tuple[str, int]) -> Iterator[None]:
    """Something that takes connections at the webhook's address and never answers: worse than nothing there."""
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(1000)
        yield


CHECKS: Final = (
    Check(
        "all-restarted",
        "All nodes, the control plane and Raddle are lost at once, in a cluster that is opted in whole; what comes up"
        " finds a webhook that takes connections and never answers.",
        "Raddle's own pods, kube-system's and the users' are created and bound without it; then Raddle works again.",
        all_restarted,
    ),
)

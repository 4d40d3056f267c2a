"""The node agent is gone while its node is booted again, and comes back."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import machines
from cluster.namespaces import TOPOLOGIES, TestNamespace
from cluster.objects import threads
from cluster.waiting import settled, wait
from reliability.model import Check, Result, broken_unless
from reliability.rollout import became
from reliability.world import LIMIT_CPUS, NODE_THREADS, SHAPE, World, pod

NODE: Final = "mortal"
BOOT_ID: Final = Path("proc/sys/kernel/random/boot_id")
FIRST, SECOND = "11111111-1111-4111-8111-111111111111", "22222222-2222-4222-8222-222222222222"
PODS: Final = 5


def gone(world: World) -> Result:
    """Killed; its node says another boot; the agent starts again on it."""
    raddle = world.raddle
    with tempfile.TemporaryDirectory(prefix="raddle-reliability-") as folder, world.governed_namespace(raddle) as space:
        root = machines.unpack((machines.ARCHIVES / f"{SHAPE}.txt").read_text(), Path(folder))
        _boot(root, FIRST)
        node = raddle.register_machine(NODE, root, labels={"node": NODE}, publish=False)
        try:
            agent = raddle.start_agent(NODE, str(root), ["--kubelet-config", "None"])
            fresh = _awaited(space, "True")
            before = _pods(space, "before")
            agent.kill()
            without_agent = _pods(space, "same-boot")
            rebooted_s = time.monotonic()
            space.client.merge(f"/api/v1/nodes/{NODE}/status", {"status": {"nodeInfo": {"bootID": SECOND}}})
            stale = _awaited(space, "False")
            said_s = time.monotonic() - rebooted_s
            metric = settled(lambda: raddle.controller.metric("raddle_topologies", fresh="false"), 1.0)
            wait(lambda: not _has_node_values(space), "the webhook has seen it")
            during = _pods(space, "stale")
            _boot(root, SECOND)
            agent.start()
            back_s = time.monotonic()
            again = _awaited(space, "True")
            wait(lambda: _has_node_values(space), "the webhook has seen it")
            back_s = time.monotonic() - back_s
            after = _pods(space, "after")
        finally:
            node.delete()
            space.client.delete(f"{TOPOLOGIES}/{NODE}", missing_ok=True)
    figures = {
        "pods bound": str(4 * PODS),
        "with the agent": _told(before),
        "agent gone, same boot": _told(without_agent),
        "said to be stale after the reboot": f"{said_s:.1f} s ({stale.get('reason')})",
        "agent gone, another boot": _told(during),
        "agent back, fresh again in": f"{back_s:.1f} s",
        "then": _told(after),
    }
    broken = broken_unless(
        the_topology_was_fresh_at_first=fresh.get("reason") == "SameBoot",
        pods_have_the_nodes_values_while_its_boot_is_the_same=_all(before, "node") and _all(without_agent, "node"),
        the_condition_Fresh_says_that_the_boot_has_changed=stale.get("reason") == "BootIDChanged",
        the_metric_counts_it=metric == 1,
        pods_get_safe_values_then=_all(during, "safe") and {threads(one) for one in during} == {LIMIT_CPUS},
        the_topology_is_fresh_again=again.get("reason") == "SameBoot",
        pods_have_the_nodes_values_again=_all(after, "node") and {threads(one) for one in after} == {NODE_THREADS},
    )
    return Result(figures, broken)


def _boot(root: Path, boot_id: str) -> None:
    path = root / BOOT_ID
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(boot_id + "\n")


def _awaited(space: TestNamespace, wanted: str) -> dict[str, str]:
    """The condition Fresh of the node's topology once it is as wanted."""

    def found() -> dict[str, str] | None:
        objects = space.client.get(TOPOLOGIES)["items"]
        conditions = [
            condition
            for one in objects
            if one["metadata"]["name"] == NODE
            for condition in one.get("status", {}).get("conditions", [])
            if condition["type"] == "Fresh" and condition["status"] == wanted
        ]
        return conditions[0] if conditions else None

    return wait(found, f"the topology's condition Fresh is {wanted}")


def _has_node_values(space: TestNamespace) -> bool:
    """Whether a pod that names the node has its values at CREATE already."""
    return became([space.probe(pod("probe", nodeName=NODE))])["node"] == 1


def _pods(space: TestNamespace, name: str) -> list[dict[str, Any]]:
    names = [f"{name}-{number}" for number in range(PODS)]
    for one in names:
        space.create(pod(one, nodeSelector={"node": NODE}))
    return [space.bound(one) for one in names]


def _all(pods: list[dict[str, Any]], got: str) -> bool:
    return became(pods) == {got: PODS}


def _told(pods: list[dict[str, Any]]) -> str:
    got: Mapping[str, int] = became(pods)
    counts = {threads(one) for one in pods}
    return f"{got.get('node', 0)} node values, {got.get('safe', 0)} safe, threads {', '.join(map(str, counts))}"


CHECKS: Final = (
    Check(
        "agent-gone",
        "The agent of a node is killed, the node is booted again without it, then the agent comes back.",
        "Values stay the node's while it is the same boot; after another boot the topology is said to be stale and pods"
        " get safe values; with the agent back they get the node's again.",
        gone,
    ),
)

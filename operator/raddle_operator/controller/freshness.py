"""Whether a NodeCPUTopology describes a machine, and still its node. Pure.

The agent writes when the node's facts change and sends no heartbeat; a reboot or a re-created node that the agent has
not yet seen shows in the Node's own status. What somebody else wrote into it shows in itself.
"""

from __future__ import annotations

from typing import Any, Final

from raddle_operator.controller.facts import NodeFacts, TopologyRecord
from raddle_operator.controller.status import condition, with_times

FRESH: Final = "Fresh"
VALID: Final = "Valid"


def topology_status(record: TopologyRecord, node: NodeFacts | None, *, now_s: float) -> dict[str, Any]:
    """The whole status of a NodeCPUTopology as it is applied. ``node`` None: there is no such Node."""
    result = [_fresh(record, node), _valid(record)]
    return {"conditions": with_times(result, record.status, record.generation, now_s)}


def _valid(record: TopologyRecord) -> dict[str, str]:
    if record.problem:
        message = f"{record.problem}; pods keep safe values until the node's agent writes it again"
        return condition(VALID, "False", "NoMachine", message)
    return condition(VALID, "True", "Machine", "the topology describes a valid machine")


def _fresh(record: TopologyRecord, node: NodeFacts | None) -> dict[str, str]:
    if node is None:
        return condition(FRESH, "False", "NodeGone", "there is no Node with this name")
    if record.problem:
        return condition(FRESH, "Unknown", "NoMachine", "the topology is not valid; see condition Valid")
    if not record.boot_id or not node.boot_id:
        return condition(FRESH, "Unknown", "BootIDUnknown", "the agent or the kubelet does not report a boot ID")
    if record.boot_id != node.boot_id:
        message = (
            f"read in boot {record.boot_id}, but the node's boot ID is {node.boot_id}; the agent will read it again"
        )
        return condition(FRESH, "False", "BootIDChanged", message)
    if record.cpus is None or node.capacity_cpus is None:
        return condition(
            FRESH, "Unknown", "CapacityUnknown", "the agent or the kubelet does not report the number of CPUs"
        )
    if record.cpus != node.capacity_cpus:
        # Either may be behind: the agent for a minute, a kubelet until it starts again.
        message = f"{record.cpus} CPUs were online, the kubelet counted {node.capacity_cpus} when it started"
        return condition(FRESH, "False", "CapacityChanged", message)
    return condition(FRESH, "True", "SameBoot", "boot ID and CPU count match the node's")

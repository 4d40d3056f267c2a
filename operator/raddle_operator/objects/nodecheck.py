"""Whether a NodeCPUTopology describes a machine. Pure.

The schema bounds every field, but it can't count the CPUs of a set; an edit by hand may pass it and contradict itself.
All readers of the objects ask here, so that the controller's condition and the webhook's decision never differ.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from raddle.cpus import cpuset
from raddle.cpus.topology import Machine, threads_per_core
from raddle_operator.objects import nodetopology
from raddle_operator.objects.nodetopology import TopologyError

_REMEMBERED: Final = 256


def machine_of(obj: Mapping[str, Any]) -> Machine:
    """The machine that a NodeCPUTopology describes.

    Raises TopologyError naming the field, for all that `nodetopology.from_object` refuses, and for facts that
    contradict each other.
    """
    machine = nodetopology.from_object(obj)
    for error in _contradictions(obj["spec"], machine):
        raise error
    return machine


def _contradictions(spec: Mapping[str, Any], machine: Machine) -> Iterator[TopologyError]:
    counts = spec.get("counts") or {}
    cpus = cpuset.count(machine.online)
    if counts.get("cpus", cpus) != cpus:
        yield TopologyError("spec.counts.cpus", str(counts["cpus"]), f"the number of CPUs in cpus.online, {cpus}")
    both = machine.online & cpuset.parse_list(spec["cpus"].get("offline") or "")
    if both:
        yield TopologyError("spec.cpus.offline", cpuset.format_list(both)[:80], "free of CPUs in cpus.online")
    threads = threads_per_core(machine)
    if machine.cores and spec.get("threadsPerCore", threads) != threads:
        yield TopologyError(
            "spec.threadsPerCore", str(spec["threadsPerCore"]), f"the size of the largest entry in cores, {threads}"
        )
    known = machine.online | machine.offline
    unknown = (machine.kubelet.reserved_cpus or 0) & ~known
    if unknown:
        allowed = f"within the node's CPUs, {cpuset.format_list(known)[:80]}"
        yield TopologyError("spec.kubelet.reservedCPUs", cpuset.format_list(unknown)[:80], allowed)


class Checker:
    """Says what is wrong with a NodeCPUTopology; nodes of one make are looked at once."""

    def __init__(self) -> None:
        self._problems: dict[str, str] = {}

    def problem(self, obj: Mapping[str, Any]) -> str:
        """What is wrong, naming the field, what is there and what is allowed; "" where nothing is."""
        spec = obj.get("spec")
        digest = nodetopology.shape_hash(spec if isinstance(spec, dict) else {})
        known = self._problems.get(digest)
        if known is None:
            if len(self._problems) >= _REMEMBERED:
                self._problems.clear()
            known = self._problems[digest] = _problem(obj)
        return known


def _problem(obj: Mapping[str, Any]) -> str:
    try:
        machine_of(obj)
    except TopologyError as error:
        return str(error)
    return ""

"""Where a pool goes on the container's exclusive CPUs: the machine as the plan tells it, the planner's own rules."""

from __future__ import annotations

from typing import Any, Mapping

from raddle import env
from raddle.cpus import cpuset, machine_part, placement
from raddle.cpus.placement import Placement, PlacementPolicy
from raddle.cpus.topology import Machine

# ((CPUs, what the plan tells), machine, policy -> placement): the CPUs change when the kubelet moves the container.
_last: tuple[tuple[Any, ...], Machine | None, dict[PlacementPolicy, Placement]] | None = None


def placed(fields: Mapping[str, Any], cpus: int) -> Placement | None:
    """Where a pool goes on these exclusive CPUs, worked out once for them; None where the plan doesn't know them."""
    (_, machine, known), wanted = _read(fields, cpus), _placement_policy(fields)
    if machine is not None and wanted not in known:
        known[wanted] = placement.place(machine, cpuset.count(cpus), wanted, cpus)
    return known.get(wanted)


def pool(fields: Mapping[str, Any], cpus: int, count: int) -> int:
    """The CPUs of a pool of `count`, idle SMT siblings included; all where the plan doesn't know them."""
    machine = _read(fields, cpus)[1]
    return cpus if machine is None else placement.pool_for(machine, cpus, count, _placement_policy(fields))


def groups(
    fields: Mapping[str, Any], cpus: int, count: int, affinity: str, *, siblings: bool = True
) -> tuple[int, ...]:
    """A CPU set for each worker of a pool of `count`, () where there is nothing sensible to say.

    Without `siblings` on one CPU of each core: where siblings are numbered apart, that makes ranges of lists.
    """
    machine = _read(fields, cpus)[1]
    if machine is None:
        return ()
    return placement.pin(machine, cpus, count, affinity, _placement_policy(fields), siblings=siblings)


def _placement_policy(fields: Mapping[str, Any]) -> PlacementPolicy:
    return PlacementPolicy(
        fields.get("numa", "auto"), fields.get("core_type", "auto"), bool(fields.get("smt")), bool(fields.get("gpu"))
    )


def _read(
    fields: Mapping[str, Any], cpus: int
) -> tuple[tuple[Any, ...], Machine | None, dict[PlacementPolicy, Placement]]:
    global _last  # noqa: PLW0603  # a cache of one
    told = (cpus, *map(fields.get, env.LISTS))
    # Read and written once each: other threads make sessions too.
    known = _last
    if known is None or known[0] != told:
        known = _last = (told, machine_part.machine_of(fields, cpus), {})
    return known

"""Where a pool goes on the container's exclusive CPUs: the machine read once for them, the planner's own rules."""

from __future__ import annotations

from typing import Any, Mapping

from raddle import cpuset, placement, sysfs
from raddle.placement import Placement, Wish
from raddle.topology import Machine

# (CPUs, machine, wish -> placement): they change only when the kubelet moves the container.
_last: tuple[int, Machine, dict[Wish, Placement]] | None = None


def placed(fields: Mapping[str, Any], cpus: int) -> Placement:
    """Where a pool goes on these exclusive CPUs; worked out once for them."""
    (_, machine, known), wish = _read(cpus), _wish(fields)
    if wish not in known:
        known[wish] = placement.place(machine, cpuset.count(cpus), wish, cpus)
    return known[wish]


def pool(fields: Mapping[str, Any], cpus: int, count: int) -> int:
    """The CPUs of a pool of `count`, idle SMT siblings included."""
    return placement.pool_for(_machine(cpus), cpus, count, _wish(fields))


def groups(fields: Mapping[str, Any], cpus: int, count: int, affinity: str) -> tuple[int, ...]:
    """A CPU set for each worker of a pool of `count`, () where there is nothing sensible to say."""
    return placement.tie(_machine(cpus), cpus, count, affinity, _wish(fields))


def lowest_groups(fields: Mapping[str, Any], cpus: int, count: int, affinity: str) -> tuple[int, ...]:
    """The same on one CPU of each core: where siblings are numbered apart, that makes ranges of lists."""
    return placement.tie(_machine(cpus), cpus, count, affinity, _wish(fields), siblings=False)


def _wish(fields: Mapping[str, Any]) -> Wish:
    return Wish(
        fields.get("numa", "auto"), fields.get("ctype", "auto"), bool(fields.get("smt")), bool(fields.get("gpu"))
    )


def _machine(cpus: int) -> Machine:
    return _read(cpus)[1]


def _read(cpus: int) -> tuple[int, Machine, dict[Wish, Placement]]:
    global _last  # noqa: PLW0603  # a cache of one
    # Read and written once each: other threads make sessions too.
    known = _last
    if known is None or known[0] != cpus:
        known = _last = (cpus, sysfs.read_machine(details=False), {})
    return known

"""CPUs that ResourceClaims give a pod's containers, where dra-driver-cpu hands CPUs out; pure.

A claim says how many whole CPUs it holds when the pod is bound, and mostly not which ones: the driver chooses them on
the node, out of a NUMA node, a socket or the machine. Only where something else chooses (the driver's external
allocator) they stand in the claim. The container's own shim finds the real ones, and cuts what is claimed too much.

docs/user/{workload-requirements,device-attributes,opaque-cpuset-overrides}.md of kubernetes-sigs/dra-driver-cpu 0.2
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any, Final, NamedTuple

from raddle import env
from raddle.cpus import cpuset
from raddle_operator.objects.quantities import QuantityError, parse
from raddle_operator.objects.reading import SpecError, as_object, mapping, sequence, text

DRIVER: Final = "dra.cpu"
MAX_CLAIMS: Final = 8
"""Claims of one pod that are looked at; the API server is asked for each."""
_CAPACITY: Final = "dra.cpu/cpu"
# A device that is one CPU; those of groups have a word more, and tell how much of them is taken.
_ONE_CPU: Final = re.compile(r"cpudev[0-9]+")
_MAX_LIST: Final = 4096
_MAX_SOURCE: Final = 40


class Reference(NamedTuple):
    """What a container names: the claim by its name in the pod and in the cluster, the request "" for all of them."""

    claim: str
    name: str
    request: str


class Claimed(NamedTuple):
    """CPUs that a container has to itself: how many, which of the node's (None: not known yet), by which claims."""

    whole_cpus: int
    cpus: int | None
    source: str


def references(pod: Any) -> dict[str, tuple[Reference, ...]]:
    """What of its ResourceClaims each container of a pod uses, given as JSON; those without any are left out.

    A claim made from a template has its name in the pod's status. Raises SpecError for what no pod can be.
    """
    pod = as_object(pod, "pod")
    spec = mapping(pod, "spec", "")
    names = {
        text(one, "name", "resourceClaims"): text(one, "resourceClaimName", "resourceClaims")
        for part, field in ((spec, "resourceClaims"), (mapping(pod, "status", ""), "resourceClaimStatuses"))
        for one in _objects(part, field)
        if one.get("resourceClaimName")
    }
    result = {}
    for container in (*_objects(spec, "containers"), *_objects(spec, "initContainers")):
        used = _objects(mapping(container, "resources", "containers"), "claims")
        of_container = [
            Reference(claim, names[claim], text(one, "request", "claims"))
            for one in used
            if (claim := text(one, "name", "claims")) in names
        ]
        if of_container:
            result[text(container, "name", "containers")] = tuple(of_container)
    return result


def claimed(pod: Any, claims: Mapping[str, Any]) -> dict[str, Claimed]:
    """The CPUs of each container of a pod; those without any are left out. `claims` are ResourceClaims by name.

    Nothing is said where one of the claims can't be read, nor of a container whose limit is below what its claims
    hold: the driver refuses such a pod, or the limit throttles it. Never raises.
    """
    try:
        result = {name: _of_container(used, claims) for name, used in references(pod).items()}
        limits = {
            text(one, "name", ""): mapping(mapping(one, "resources", ""), "limits", "").get("cpu") or 0
            for field in ("containers", "initContainers")
            for one in _objects(mapping(pod, "spec", ""), field)
        }
        return {name: one for name, one in result.items() if one and not 0 < parse(limits[name]) < one.whole_cpus}
    except (SpecError, QuantityError):
        return {}


def _of_container(used: tuple[Reference, ...], claims: Mapping[str, Any]) -> Claimed | None:
    """What these claims give a container; None for no CPUs. Raises SpecError and QuantityError."""
    taken = {}
    for one in used:
        # The driver gives all CPUs of a claim to whoever uses one of its requests for them.
        held = _of_claim(claims.get(one.name), one.request)
        if held is not None:
            taken[one.claim] = held
    whole = sum(count for count, _ in taken.values())
    if not 0 < whole <= env.MAX_EXCLUSIVE_CPUS:
        return None
    known = 0
    for _, cpus in taken.values():
        known |= cpus or 0
    source = "DRA claim " + ", ".join(taken)
    return Claimed(whole, known if cpuset.count(known) == whole else None, source[:_MAX_SOURCE])


def _of_claim(claim: Any, request: str) -> tuple[int, int | None] | None:
    """How many CPUs a claim holds, and which where it says so; None where it, or this request of it, holds none."""
    allocation = mapping(mapping(as_object(claim, "claim"), "status", ""), "allocation", "status")
    devices = mapping(allocation, "devices", "allocation")
    results = [one for one in _objects(devices, "results") if one.get("driver") == DRIVER]
    # Of a request with alternatives the result names the one that was taken: request/alternative.
    if request not in ("", *(text(one, "request", "results").partition("/")[0] for one in results)):
        return None
    count = sum(_count(one) for one in results)
    chosen = 0
    for cpus in _chosen(devices):
        chosen |= cpus
    return (count, chosen if cpuset.count(chosen) == count else None) if count else None


def _count(result: Mapping[str, Any]) -> int:
    consumed = mapping(result, "consumedCapacity", "results").get(_CAPACITY)
    if consumed is None:
        if _ONE_CPU.fullmatch(text(result, "device", "results")) is None:
            raise SpecError("results", "a CPU group does not state how many CPUs are allocated")
        return 1
    count = parse(consumed)
    if count != int(count) or not 0 < count <= Decimal(env.MAX_EXCLUSIVE_CPUS):
        raise SpecError("results", f"{_CAPACITY} is not a whole number of CPUs")
    return int(count)


def _chosen(devices: Mapping[str, Any]) -> Iterator[int]:
    """The CPUs that an allocation names. Raises SpecError for a list that is none."""
    for config in _objects(devices, "config"):
        opaque = mapping(config, "opaque", "config")
        if opaque.get("driver") != DRIVER or config.get("source") != "FromClaim":
            continue
        named = text(mapping(mapping(opaque, "parameters", ""), "cpuConfig", ""), "cpuset", "cpuConfig")
        try:
            yield cpuset.parse_list(named) if len(named) <= _MAX_LIST else 0
        except ValueError:
            raise SpecError("cpuConfig.cpuset", "is not a CPU list") from None


def _objects(parent: Mapping[str, Any], field: str) -> Iterator[Mapping[str, Any]]:
    return (as_object(one, field) for one in sequence(parent, field, ""))

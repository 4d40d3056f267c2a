"""What a pod's annotations say that its containers should run with, as far as it can be compared with what runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from raddle import env
from raddle.cpus import cpuset
from raddle.planning import wire
from raddle_operator.objects import reading

# What a budget's `because` begins with where the container's own limit is what the plan counts with.
_OWN_LIMIT: Final = "limits.cpu "


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerPlan:
    """One container's plan.

    `policy` is the policy's reference, Kind/name. `threads` is the intra-op count of one session, None where the plan
    sets none (the pod spec does); `asked`: the policy allows no fewer, however many CPUs there are. `counts` are those
    of all families that have one, by family. `limit_cpus` is the container's own limit that was planned with, None
    where that was none, or is not what the plan counts with.
    `exclusive_cpus`: how many it should have to itself, 0 for shared ones; `cpus` which, as a bitmask, 0 where that is
    not known; `pinned`: its threads are bound to them. `shim`: one should be in its processes. `runtimes` are the
    families that it is planned for; `streams` the processes x sessions that it reckons with, `workers` the processes.
    `overrides`: a shim overwrites what the code sets. `repeats`: it says again what it has said, now and then.
    """

    policy: str = ""
    threads: int | None = None
    asked: bool = False
    counts: Mapping[str, int] = field(default_factory=dict)
    limit_cpus: float | None = None
    exclusive_cpus: int = 0
    cpus: int = 0
    pinned: bool = False
    shim: bool = False
    runtimes: tuple[str, ...] = ()
    streams: int = 1
    workers: int = 1
    overrides: bool = False
    repeats: bool = False


def read(pod: Mapping[str, Any]) -> Mapping[str, ContainerPlan]:
    """The plans of a pod, as JSON, by container; empty for a pod that has none. Never raises.

    A plan that can't be read is left out: annotations are untrusted, and its container is one that nobody governs.
    """
    try:
        annotations = reading.text_map(reading.mapping(pod, "metadata", ""), "annotations", "metadata")
    except reading.SpecError:
        return {}
    result = {}
    for key, text in annotations.items():
        if key.startswith(env.PLAN_PREFIX):
            try:
                result[key.removeprefix(env.PLAN_PREFIX)] = _container_plan(wire.read_plan_text(text))
            except wire.WireError:
                continue
    return result


def _container_plan(recorded: wire.RecordedPlan) -> ContainerPlan:
    values, budget, policy = recorded.values, recorded.budget, recorded.policy
    threads = _count(values, "intraOp")
    # One pool of all sessions is as large as one of them, but for what a policy says of it.
    counts = {
        "onnxruntime": _count(values, "globalIntraOp") or threads,
        "torch": _count(values, "omp"),
        "openmp": _count(values, "omp"),
        "blas": _count(values, "blas"),
    }
    own = budget.because.startswith(_OWN_LIMIT) and policy.reserve_cpus is None
    return ContainerPlan(
        policy=recorded.governed_by,
        threads=threads,
        asked=threads is not None and threads <= (policy.intra_op or policy.min_intra_op),
        counts={family: count for family, count in counts.items() if count is not None and family in policy.runtimes},
        limit_cpus=budget.quota_cpus if own else None,
        exclusive_cpus=_count(values, "exclusiveCPUs") or 0,
        cpus=_cpus(values),
        pinned=values.get("affinity") in ("numa", "core"),
        shim=budget.shim and policy.shim != "None",
        runtimes=policy.runtimes,
        streams=_count(values, "streams") or 1,
        workers=max(1, budget.workers),
        overrides=policy.existing_values == "Override",
        repeats=policy.observe == "Runs",
    )


def _count(values: Mapping[str, Any], name: str) -> int | None:
    """A count of at least one; None for anything else."""
    result = values.get(name)
    return (
        result if isinstance(result, int) and not isinstance(result, bool) and 0 < result <= env.MAX_STREAMS else None
    )


def _cpus(values: Mapping[str, Any]) -> int:
    try:
        return cpuset.parse_list(str(values.get("cpus", "")))
    except ValueError:
        return 0

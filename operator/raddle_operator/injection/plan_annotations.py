"""What a container's plan looks like in the pod's annotations, at CREATE and at binding."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache, partial
from typing import Any, Final

from raddle import env
from raddle.cpus.topology import Machine
from raddle.planning import wire
from raddle.planning.planner import Budget, Plan, plan
from raddle.planning.policy import Policy
from raddle_operator.injection.tuning import TuningOverlay

# Variable -> (the prefix of the annotation that it reads, the plan's field), in the order in which they are injected.
COUNTS: Final[Mapping[str, tuple[str, str]]] = {
    # ONNX Runtime reads it also where no shim is; a shim knows from the plan that it is ours.
    env.ORT_INTRA: (env.THREADS_PREFIX, "intra_op_without_shim"),
    env.ORT_INTER: (env.INTER_OP_THREADS_PREFIX, "inter_op"),
    env.OMP: (env.OMP_THREADS_PREFIX, "omp"),
    env.OPENBLAS: (env.BLAS_THREADS_PREFIX, "blas"),
}
KEPT_REASON: Final = "set in the pod spec"
_RESERVED: Final[Mapping[str, int]] = {
    **{prefix: env.RESERVED_NUMBER for prefix, _ in COUNTS.values()},
    env.SHIM_PREFIX: env.RESERVED_SHIM,
    env.PLAN_PREFIX: env.RESERVED_PLAN,
}
POD_ANNOTATIONS: Final = (env.GOVERNED_BY, env.SETTINGS_HASH)


def is_ours(key: str) -> bool:
    """True for a key that only Raddle may write."""
    return key.startswith(env.CONTAINER_PREFIXES) or key in POD_ANNOTATIONS


def split(key: str) -> tuple[str, str]:
    """The prefix and the container of one of our containers' annotations; ("", "") for any other key."""
    prefix, slash, container = key.partition("/")
    return (prefix + slash, container) if prefix + slash in env.CONTAINER_PREFIXES else ("", "")


def size_of(annotations: Mapping[str, str]) -> int:
    """Bytes as the API server counts them: all keys and all values."""
    return sum(len(key.encode()) + len(value.encode()) for key, value in annotations.items())


def reserved(prefix: str) -> int:
    """Bytes that the value of such an annotation may take, now or at binding."""
    return _RESERVED[prefix]


def compose(
    machine: Machine | None,
    budget: Budget,
    policy: Policy,
    kept: tuple[str, ...] = (),
    governed_by: str = "",
    node: str | None = None,
    tuning_overlay: TuningOverlay | None = None,
    cpus_source: str = "",
) -> tuple[Plan, Mapping[str, str]]:
    """The plan of one container, without what the pod spec keeps, and its annotations' values by prefix.

    `kept` names variables that the pod spec sets and that stay. `tuning_overlay` is what the policy's tuning comes to,
    None where it names none. `cpus_source` says who has chosen the budget's CPUs, "" where nobody has.
    """
    used = policy if tuning_overlay is None else tuning_overlay.policy
    made = plan(machine, budget, used)
    if cpus_source:
        made = made._replace(because={**made.because, "intraOp": f"{made.because.get('intraOp', '')}; {cpus_source}"})
    if tuning_overlay is not None:
        made = made._replace(because={**made.because, wire.TUNED: tuning_overlay.because})
    if kept:
        dropped: dict[str, Any] = {COUNTS[name][1]: None for name in kept if name in COUNTS}
        if env.ORT_INTRA in kept:
            dropped["intra_op"] = None
        because = {**made.because, **dict.fromkeys(kept, KEPT_REASON)}
        made = made._replace(**dropped, because=because)
    if "onnxruntime" not in used.runtimes:
        # The variable is not Raddle's.
        made = made._replace(intra_op_without_shim=made.intra_op)
    values = {
        env.SHIM_PREFIX: wire.shim_text(made, used, machine),
        env.PLAN_PREFIX: wire.plan_text(
            made, budget, policy, governed_by, node, tuning_overlay.target if tuning_overlay else None, used
        ),
    }
    for prefix, field in COUNTS.values():
        count = getattr(made, field)
        if count is not None:
            values[prefix] = str(count)
    return made, values


def kept_in(because: Mapping[str, str]) -> tuple[str, ...]:
    """What was given to `compose` as `kept`, by the plan's reasons."""
    return tuple(name for name, why in because.items() if why == KEPT_REASON)


safe_values: Final = lru_cache(maxsize=1024)(partial(compose, None))
"""As `compose`, where the node is not known. It is remembered: the pods of one Deployment have the same."""

"""What a user may ask for: the part of a policy's spec that decides numbers, as one value.

Field names and defaults are those of crds/inferencethreadings.yaml; tests/contract holds the two together.
Absent means that Raddle decides.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Tuple

FAMILIES = ("onnxruntime", "torch", "openmp", "blas")

# Accepted by the schema, without effect in this version: the controller says so in the policy's status.
NOT_YET_EFFECTIVE = (
    "onnxruntime.globalThreadPool",
    "onnxruntime.sharedAllocator",
    "onnxruntime.configEntries",
    "onnxruntime.providerOptions",
    "onnxruntime.acknowledge",
    "allocator",
    "observe",
)


class PolicyError(ValueError):
    """A field that can't be used. `path` is dotted from spec, `value` what was there, `allowed` what may be."""

    def __init__(self, path: str, value: object, allowed: str) -> None:
        super().__init__(f"{path}: {value!r} is not allowed; it must be {allowed}")
        self.path = path
        self.value = value
        self.allowed = allowed


class Policy(NamedTuple):
    """The settings of one policy that decide a plan. Counts are threads; percents are of the usable cores."""

    objective: str = "Latency"
    budget_source: str = "Auto"
    workers: Optional[int] = None
    sessions: int = 1
    concurrent_runs: int = 1
    intra_op: Optional[int] = None
    intra_op_percent: Optional[int] = None
    min_intra_op: int = 1
    max_intra_op: int = 1024
    inter_op: Optional[int] = None
    inter_op_percent: Optional[int] = None
    execution_mode: str = "Auto"
    spinning: str = "Auto"
    numa: str = "Auto"
    smt: str = "Auto"
    core_type: str = "Auto"
    affinity: str = "Auto"
    runtimes: Tuple[str, ...] = FAMILIES
    graph_optimization_level: Optional[str] = None
    existing_values: str = "Respect"
    shim: str = "Auto"


# Policy's field -> (path in spec, how it is read, what is allowed). One table for parsing and for `to_spec`.
_Reader = Callable[[str, Any, Any], Any]


def _word(path: str, value: Any, allowed: Tuple[str, ...]) -> str:
    if value not in allowed:
        raise PolicyError(path, value, "one of " + ", ".join(allowed))
    return str(value)


def _count(path: str, value: Any, allowed: Tuple[int, int]) -> int:
    low, high = allowed
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise PolicyError(path, value, f"an integer from {low} to {high}")
    return value


def _words(path: str, value: Any, allowed: Tuple[str, ...]) -> Tuple[str, ...]:
    if not isinstance(value, list) or not value:
        raise PolicyError(path, value, "a list of " + ", ".join(allowed))
    chosen = {_word(path, item, allowed) for item in value}
    return tuple(item for item in allowed if item in chosen)


_FIELDS: Dict[str, Tuple[str, _Reader, Any]] = {
    "objective": ("objective", _word, ("Latency", "Throughput")),
    "budget_source": ("budget.source", _word, ("Auto", "Limit", "Request", "Node")),
    "workers": ("budget.workersPerContainer", _count, (1, 1024)),
    "sessions": ("budget.sessionsPerWorker", _count, (1, 1024)),
    "concurrent_runs": ("budget.concurrentRuns", _count, (1, 1024)),
    "intra_op": ("threads.intraOp", _count, (1, 1024)),
    "intra_op_percent": ("threads.intraOpPercent", _count, (1, 100)),
    "min_intra_op": ("threads.minIntraOp", _count, (1, 1024)),
    "max_intra_op": ("threads.maxIntraOp", _count, (1, 1024)),
    "inter_op": ("threads.interOp", _count, (1, 1024)),
    "inter_op_percent": ("threads.interOpPercent", _count, (1, 100)),
    "execution_mode": ("threads.executionMode", _word, ("Auto", "Sequential", "Parallel")),
    "spinning": ("threads.spinning", _word, ("Auto", "Always", "Bounded", "Never")),
    "numa": ("placement.numa", _word, ("Auto", "SingleNUMANode", "Any")),
    "smt": ("placement.smt", _word, ("Auto", "OneThreadPerCore", "AllThreads")),
    "core_type": ("placement.coreType", _word, ("Auto", "Performance", "Efficient", "Any")),
    "affinity": ("placement.affinity", _word, ("Auto", "PerCore", "Never")),
    "runtimes": ("runtimes", _words, FAMILIES),
    "graph_optimization_level": (
        "onnxruntime.graphOptimizationLevel",
        _word,
        ("Disable", "Basic", "Extended", "All"),
    ),
    "existing_values": ("existingValues", _word, ("Respect", "Override")),
    "shim": ("shim", _word, ("Auto", "ConfigMap", "ImageVolume", "InitContainer", "None")),
}


def parse(spec: Mapping[str, Any]) -> Policy:
    """The Policy that a spec asks for; fields that decide no number are ignored.

    Raises PolicyError for a value outside its bounds and for combinations that can't work
    (the API server refuses the same by CEL; `raddle plan` on a file has no API server).
    """
    found: Dict[str, Any] = {}
    for name, (path, read, allowed) in _FIELDS.items():
        value: Any = spec
        walked: List[str] = []
        for step in path.split("."):
            if not isinstance(value, Mapping):
                raise PolicyError(".".join(walked), value, "a mapping")
            walked.append(step)
            value = value.get(step)
            if value is None:
                break
        if value is not None:
            found[name] = read(path, value, allowed)
    policy = Policy(**found)
    _check_combinations(policy)
    return policy


def _check_combinations(policy: Policy) -> None:
    low, high = policy.min_intra_op, policy.max_intra_op
    if low > high:
        raise PolicyError("threads.minIntraOp", low, f"at most threads.maxIntraOp ({high})")
    if policy.intra_op is not None:
        if policy.intra_op_percent is not None:
            raise PolicyError("threads.intraOpPercent", policy.intra_op_percent, "absent when threads.intraOp is set")
        if not low <= policy.intra_op <= high:
            raise PolicyError("threads.intraOp", policy.intra_op, f"from {low} to {high}")
    if policy.inter_op is not None and policy.inter_op_percent is not None:
        raise PolicyError("threads.interOpPercent", policy.inter_op_percent, "absent when threads.interOp is set")
    if policy.execution_mode != "Parallel":
        if policy.inter_op is not None and policy.inter_op > 1:
            raise PolicyError("threads.interOp", policy.inter_op, "1, or set threads.executionMode: Parallel")
        if policy.inter_op_percent is not None:
            raise PolicyError(
                "threads.interOpPercent", policy.inter_op_percent, "absent without executionMode: Parallel"
            )
    if policy.numa == "SingleNUMANode" and policy.budget_source == "Node":
        raise PolicyError("placement.numa", policy.numa, "Auto or Any when budget.source is Node")


def to_settings(policy: Policy) -> Dict[str, Any]:
    """The fields that differ from the defaults, as JSON values: the short form that annotations carry."""
    defaults = Policy()._asdict()
    return {
        name: list(value) if isinstance(value, tuple) else value
        for name, value in policy._asdict().items()
        if value != defaults[name]
    }


def from_settings(settings: Mapping[str, Any]) -> Policy:
    """The reverse of `to_settings`. The mapping is untrusted: unknown names are ignored, PolicyError for bad values."""
    found = {}
    for name, value in settings.items():
        if name in _FIELDS and value is not None:
            path, read, allowed = _FIELDS[name]
            found[name] = read(path, value, allowed)
    policy = Policy(**found)
    _check_combinations(policy)
    return policy

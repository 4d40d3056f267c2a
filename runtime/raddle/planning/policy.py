"""What a user may ask for: the part of a policy's spec that decides numbers, as one value.

Field names and defaults are those of crds/inferencethreadings.yaml; tests/contract holds the two together.
Absent means that Raddle decides.
"""

from __future__ import annotations

import re
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Tuple

from raddle import env
from raddle.planning import families


class PolicyError(ValueError):
    """A field that can't be used. `path` is dotted from spec, `value` what was there, `allowed` what may be."""

    def __init__(self, path: str, value: object, allowed: str) -> None:
        super().__init__(f"{path}: {value!r} is not allowed; it must be {allowed}")
        self.path = path
        self.value = value
        self.allowed = allowed


class Policy(NamedTuple):
    """The settings of one policy that decide a plan. Counts are threads; percents are of the usable cores.

    run_time_us   one run of the model on one thread, in microseconds; None: not known.
    request_rate  requests a second of one container; None: not known.
    """

    objective: str = "Latency"
    budget_source: str = "Auto"
    workers: Optional[int] = None
    sessions: int = 1
    concurrent_runs: int = 1
    run_time_us: Optional[int] = None
    request_rate: Optional[float] = None
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
    runtimes: Tuple[str, ...] = families.DEFAULT
    graph_optimization_level: Optional[str] = None
    global_thread_pool: bool = False
    shared_allocator: bool = False
    cpu_mem_arena: Optional[bool] = None
    mem_pattern: Optional[bool] = None
    arena_shrinkage: bool = False
    config_entries: Tuple[Tuple[str, str], ...] = ()
    provider_options: Tuple[Tuple[str, Tuple[Tuple[str, str], ...]], ...] = ()
    acknowledge: Tuple[str, ...] = ()
    allocator: str = "System"
    existing_values: str = "Respect"
    observe: str = "Sessions"
    reports: bool = False
    shim: str = "Auto"
    native_shim: str = "Disabled"


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


def _duration_us(path: str, value: Any, allowed: Tuple[int, int]) -> int:
    low, high = allowed
    if isinstance(value, str) and len(value) <= _MAX_DURATION and _DURATION.fullmatch(value):
        duration_us = sum(float(number) * _UNITS_US[unit] for number, unit in _DURATION_PART.findall(value))
        if low <= duration_us <= high:
            return round(duration_us)
    raise PolicyError(path, value, "a duration from 1us to 1h, such as 33ms")


def _rate(path: str, value: Any, allowed: Tuple[int, int]) -> float:
    low, high = allowed
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not low < value <= high:
        raise PolicyError(path, value, f"a number above {low}, at most {high}")
    return float(value)


def _words(path: str, value: Any, allowed: Tuple[str, ...]) -> Tuple[str, ...]:
    if not isinstance(value, list) or not value:
        raise PolicyError(path, value, "a list of " + ", ".join(allowed))
    chosen = {_word(path, item, allowed) for item in value}
    return tuple(item for item in allowed if item in chosen)


def _names(path: str, value: Any, allowed: Tuple[str, ...]) -> Tuple[str, ...]:
    return _words(path, value, allowed) if value != [] else ()


def _flag(path: str, value: Any, allowed: Tuple[bool, bool]) -> bool:
    if value not in allowed or not isinstance(value, bool):
        raise PolicyError(path, value, "true or false")
    return value


def _entries(path: str, value: Any, allowed: Mapping[str, Tuple[Any, ...]]) -> Tuple[Tuple[str, str], ...]:
    """The entries sorted by key; `allowed` is a table of `env`: key -> (lowest, highest) or the words."""
    if not isinstance(value, Mapping):
        raise PolicyError(path, value, "a mapping of " + ", ".join(allowed))
    for key, text in value.items():
        if key not in allowed:
            raise PolicyError(path, key, "one of " + ", ".join(allowed))
        if not isinstance(text, str):
            raise PolicyError(f"{path}.{key}", text, "text: put it in quotes")
        _entry(f"{path}.{key}", text, allowed[key])
    return tuple(sorted(value.items()))


def _entry(path: str, text: str, allowed: Tuple[Any, ...]) -> None:
    if isinstance(allowed[0], str):
        _word(path, text, allowed)
        return
    low, high = allowed
    if not _WHOLE.fullmatch(text) or not low <= int(text) <= high:
        raise PolicyError(path, text, f'a whole number from "{low}" to "{high}"')


def _providers(
    path: str, value: Any, allowed: Mapping[str, Tuple[str, Mapping[str, Tuple[Any, ...]]]]
) -> Tuple[Tuple[str, Tuple[Tuple[str, str], ...]], ...]:
    if not isinstance(value, Mapping):
        raise PolicyError(path, value, "a mapping of " + ", ".join(allowed))
    for name in value:
        if name not in allowed:
            raise PolicyError(path, name, "one of " + ", ".join(allowed))
    return tuple(sorted((name, _entries(f"{path}.{name}", value[name], allowed[name][1])) for name in value))


_FLAGS = (False, True)
_MAX_DURATION = 32
# As the schema's.
_DURATION = re.compile(r"([0-9]{1,10}([.][0-9]{1,3})?(h|m|s|ms|us)){1,4}")
_DURATION_PART = re.compile(r"([0-9.]+)([a-z]+)")
_UNITS_US = {"h": 3600 * 10**6, "m": 60 * 10**6, "s": 10**6, "ms": 1000, "us": 1}
# As the schema's patterns: no sign but in -1, no leading zeros.
_WHOLE = re.compile(r"-1|0|[1-9][0-9]{0,18}")

_FIELDS: Dict[str, Tuple[str, _Reader, Any]] = {
    "objective": ("objective", _word, ("Latency", "Throughput")),
    "budget_source": ("budget.source", _word, ("Auto", "Limit", "Request", "Node")),
    "workers": ("budget.workersPerContainer", _count, (1, 1024)),
    "sessions": ("budget.sessionsPerWorker", _count, (1, 1024)),
    "concurrent_runs": ("budget.concurrentRuns", _count, (1, 1024)),
    "run_time_us": ("load.runTime", _duration_us, (1, 3600 * 10**6)),
    "request_rate": ("load.requestsPerSecond", _rate, (0, 1000000)),
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
    "runtimes": ("runtimes", _words, families.NAMES),
    "graph_optimization_level": (
        "onnxruntime.graphOptimizationLevel",
        _word,
        ("Disable", "Basic", "Extended", "All"),
    ),
    "global_thread_pool": ("onnxruntime.globalThreadPool", _flag, _FLAGS),
    "shared_allocator": ("onnxruntime.sharedAllocator", _flag, _FLAGS),
    "cpu_mem_arena": ("onnxruntime.cpuMemArena", _flag, _FLAGS),
    "mem_pattern": ("onnxruntime.memPattern", _flag, _FLAGS),
    "arena_shrinkage": ("onnxruntime.arenaShrinkage", _flag, _FLAGS),
    "config_entries": ("onnxruntime.configEntries", _entries, env.CONFIG_ENTRIES),
    "provider_options": ("onnxruntime.providerOptions", _providers, env.PROVIDERS),
    "acknowledge": ("onnxruntime.acknowledge", _names, env.ACKNOWLEDGED),
    "allocator": ("allocator", _word, ("System", "Mimalloc", "Jemalloc", "Tcmalloc")),
    "existing_values": ("existingValues", _word, ("Respect", "Override")),
    "observe": ("observe", _word, ("Sessions", "Runs", "None")),
    "reports": ("reports", _flag, _FLAGS),
    "shim": ("shim", _word, ("Auto", "ConfigMap", "ImageVolume", "InitContainer", "None")),
    "native_shim": ("nativeShim", _word, ("Disabled", "Preload")),
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
    if policy.numa == "SingleNUMANode" and policy.budget_source == "Node":
        raise PolicyError("placement.numa", policy.numa, "Auto or Any when budget.source is Node")
    _check_sequential(policy)
    for path, key in _to_acknowledge(policy):
        if key not in policy.acknowledge:
            raise PolicyError(path, key, "named in onnxruntime.acknowledge too: it changes results or needs your help")


def _check_sequential(policy: Policy) -> None:
    if policy.execution_mode != "Parallel":
        if policy.inter_op is not None and policy.inter_op > 1:
            raise PolicyError("threads.interOp", policy.inter_op, "1, or set threads.executionMode: Parallel")
        if policy.inter_op_percent is not None:
            raise PolicyError(
                "threads.interOpPercent", policy.inter_op_percent, "absent without executionMode: Parallel"
            )


def _to_acknowledge(policy: Policy) -> List[Tuple[str, str]]:
    """Path and key of each entry and option that only counts where the policy acknowledges it."""
    found = [("onnxruntime.configEntries", key) for key, _ in policy.config_entries]
    for provider, options in policy.provider_options:
        found += [("onnxruntime.providerOptions." + provider, key) for key, _ in options]
    return [(path, key) for path, key in found if key in env.ACKNOWLEDGED]


def to_settings(policy: Policy) -> Dict[str, Any]:
    """The fields that differ from the defaults, as JSON values: the short form that annotations carry."""
    defaults = Policy()._asdict()
    found = {name: value for name, value in policy._asdict().items() if value != defaults[name]}
    for name, value in found.items():
        if name == "run_time_us":
            found[name] = f"{value}us"
        elif name == "config_entries":
            found[name] = dict(value)
        elif name == "provider_options":
            found[name] = {provider: dict(options) for provider, options in value}
        elif isinstance(value, tuple):
            found[name] = list(value)
    return found


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

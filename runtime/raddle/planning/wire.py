"""What crosses between the webhook, a pod's annotations and the container, as text.

`shim_text` is RADDLE_PLAN, for machines (see `env`). `plan_text` is the plan.raddle.dev/<container> annotation:
compact JSON for people, for tools, and for the webhook at binding, which finds there all that it needs to plan
again: {"v":1, "set":{values}, "because":{value: reason}, "node":name or null, "budget":{...}, "policy":{...},
"by":"Kind/name"}, and where the policy names a tuning "tuned":{"by","image","workload","first","door"}. Annotations are
untrusted: reading checks every value and raises WireError.
"""

from __future__ import annotations

import hashlib
import json
from functools import lru_cache
from typing import Any, Callable, Dict, Mapping, NamedTuple, Optional, Tuple

from raddle import env
from raddle.cpus import cpuset, machine_part
from raddle.cpus.topology import Machine
from raddle.planning import entries
from raddle.planning.capacity import placement_policy
from raddle.planning.kinds import Field, PolicyError
from raddle.planning.layout import Layout
from raddle.planning.planner import Budget, Plan
from raddle.planning.policy import FIELDS, THREADS, Policy, from_settings, to_settings

VERSION = 1
# Budget's fields that are known before the container runs, with their type.
_BUDGET_FIELDS: Tuple[Tuple[str, type], ...] = (
    ("quota_cpus", float),
    ("request_cpus", float),
    ("whole_cpus", int),
    ("workers", int),
    ("gpu", bool),
    ("shim", bool),
    ("smallest_cores", int),
    ("reclaimed", bool),
    ("dedicated", str),
    ("claims", bool),
    ("because", str),
)
_MAX_BECAUSE = 160
# The reason that says what came of the policy's tuning; it has more to quote, and goes last where room is short.
TUNED = "tuned"
_MAX_TUNED = 480
_MAX_PROGRAM = 256
_NO_LIMIT = Budget()


class WireError(ValueError):
    """An annotation that can't be read; the message names the part."""


class TuningTarget(NamedTuple):
    """What a tuning's result is looked up by at binding, and the one that the plan was made with.

    image      the container's, as the pod names it
    workload   whose pod it is, `Deployment/ranker`; "": nobody's
    by         the InferenceTuning whose result holds for the plan; "": none does
    first      the container is the pod's first one, without those that injectors add
    door       all of its processes load the shim
    """

    image: str
    workload: str
    by: str = ""
    first: bool = True
    door: bool = False


class RecordedPlan(NamedTuple):
    """What a plan annotation says: the inputs to plan again, and the node it was made for (None: safe values).

    `tuning` is None where the policy names none. `policy` is the policy's own, without a tuning's result.
    """

    budget: Budget
    policy: Policy
    node: Optional[str]
    governed_by: str
    values: Mapping[str, Any]
    because: Mapping[str, str]
    tuning: Optional[TuningTarget] = None


def settings_hash(policy: Policy, *, names_runtimes: bool = False) -> str:
    """Ten hex digits that are equal exactly when two policies would give every container the same plan.

    `names_runtimes`: the policy says which families it means, so that a known server's do not take their place.
    """
    settings = to_settings(policy)
    if names_runtimes:
        settings["runtimes"] = list(policy.runtimes)
    text = json.dumps(settings, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:10]


class Key(NamedTuple):
    """One key of RADDLE_PLAN: what it may be, and what it is in a plan (None: left out).

    `onnxruntime`: it is ONNX Runtime's, so it is in no plan for other families.
    """

    name: str
    allowed: entries.Allowed
    value: Callable[[Plan, Policy], object]
    onnxruntime: bool = False


def _wanted(result: str) -> Optional[str]:
    return None if result == "auto" else result


def _as_policy_says(name: str, field: Field) -> Key:
    """The key of a field that the plan carries as it is, left out where it says what is so without it."""

    def value(_plan: Plan, policy: Policy) -> object:
        wanted = getattr(policy, name)
        if wanted == field.default:
            return None
        return int(wanted) if isinstance(wanted, bool) else wanted.lower()

    allowed = entries.SWITCH if field.allowed == (False, True) else tuple(word.lower() for word in field.allowed)
    return Key(name, allowed, value, onnxruntime=True)


_SAID = [_as_policy_says(name, field) for name, field in FIELDS.items() if field.in_plan]
_STREAMS = (1, env.MAX_STREAMS)
_SPINNING = ("never", "bounded", "always")

# In this order they are in the text; entries, provider options (`entries.PLAN_KEYS`) and `env.LISTS` are there too.
NUMBERS: Tuple[Key, ...] = (
    # Absent: leave the count alone.
    Key("intra_op", THREADS, lambda plan, _: plan.intra_op, onnxruntime=True),
    # Raddle's own count in ORT_INTRA; absent: intra_op.
    Key(
        "intra_op_without_shim",
        THREADS,
        lambda plan, _: plan.intra_op_without_shim if plan.intra_op_without_shim != plan.intra_op else None,
        onnxruntime=True,
    ),
    Key("inter_op", THREADS, lambda plan, _: plan.inter_op, onnxruntime=True),
    Key(
        "spin_duration_us",
        (0, 1000000),
        lambda plan, _: plan.spin_duration_us if plan.spinning == "bounded" else None,
        onnxruntime=True,
    ),
    # 1: the counts may be above the quota's CPUs.
    Key("over_quota", entries.SWITCH, lambda plan, _: 1 if plan.over_quota else None, onnxruntime=True),
    # CPUs that are expected to be exclusive; 0: shared.
    Key("exclusive_cpus", (0, env.MAX_EXCLUSIVE_CPUS), lambda plan, _: plan.exclusive_cpus),
    # 1: use all threads of a core.
    Key("smt", entries.SWITCH, lambda _, policy: int(policy.smt == "AllThreads")),
    # Workers x sessions that share the container's CPUs.
    Key("streams", _STREAMS, lambda plan, _: plan.streams),
    Key("workers", _STREAMS, lambda plan, _: plan.workers),
    # Callers that run at the same time in one process.
    Key("concurrent_runs", _STREAMS, lambda plan, _: plan.concurrent_runs),
    Key("min_intra_op", THREADS, lambda _, policy: max(policy.min_intra_op, policy.intra_op or 1)),
    Key("max_intra_op", THREADS, lambda _, policy: policy.max_intra_op),
    # A count that the policy names itself is not cut in the container either, as with `min`.
    Key("min_inter_op", THREADS, lambda _, policy: policy.inter_op, onnxruntime=True),
    # 1: throughput, a fractional quota is rounded down; 0: latency, up.
    Key("floor", entries.SWITCH, lambda _, policy: int(policy.objective == "Throughput")),
    Key("omp", THREADS, lambda plan, _: plan.omp),
    Key("blas", THREADS, lambda plan, _: plan.blas),
    # Absent: leave torch's inter-op pool alone.
    Key("torch_inter_op", THREADS, lambda plan, _: plan.torch_inter_op),
    # 1: the container has a GPU.
    Key("gpu", entries.SWITCH, lambda plan, _: int(plan.gpu)),
    # 1: one thread pool for all sessions of a process; absent and 0: each has its own.
    Key(
        "global_thread_pool",
        entries.SWITCH,
        lambda plan, _: 1 if plan.global_intra_op is not None else None,
        onnxruntime=True,
    ),
    # That pool's size; absent: intra_op.
    Key("global_intra_op", THREADS, lambda plan, _: plan.global_intra_op, onnxruntime=True),
    *(key for key in _SAID if key.allowed == entries.SWITCH),
)
WORDS: Tuple[Key, ...] = (
    Key("spinning", _SPINNING, lambda plan, _: plan.spinning, onnxruntime=True),
    # Absent: as `spinning`, also where the CPUs are the exclusive ones.
    Key("exclusive_spinning", _SPINNING, lambda plan, _: plan.exclusive_spinning, onnxruntime=True),
    Key("execution_mode", ("sequential", "parallel"), lambda plan, _: plan.execution_mode, onnxruntime=True),
    *(key for key in _SAID if key.allowed != entries.SWITCH),
    Key("affinity", ("none", "numa", "core"), lambda plan, _: plan.affinity),
    # Absent: one NUMA node where it holds enough of the CPUs.
    Key("numa", ("single", "any"), lambda _, policy: _wanted(placement_policy(policy).numa)),
    # Absent: the fastest that there are, never two kinds in one pool.
    Key(
        "core_type", ("performance", "efficient", "any"), lambda _, policy: _wanted(placement_policy(policy).core_type)
    ),
    Key("existing_values", ("respect", "override"), lambda _, policy: policy.existing_values.lower()),
    # Absent: sessions.
    Key("observe", ("none", "sessions", "runs"), lambda _, policy: policy.observe.lower()),
    # Absent: system.
    Key(
        "allocator",
        ("system", "mimalloc", "jemalloc", "tcmalloc"),
        lambda _, policy: None if policy.allocator == "System" else policy.allocator.lower(),
    ),
)
_KEYS = (*NUMBERS, *WORDS)


def shim_text(plan: Plan, policy: Policy, machine: Optional[Machine] = None) -> str:
    """RADDLE_PLAN for a plan: at most env.RESERVED_SHIM bytes.

    For exclusive CPUs as much of the machine, which the plan was made for, as has room in them.
    """
    plans_ort = "onnxruntime" in policy.runtimes
    fields = {key.name: key.value(plan, policy) for key in _KEYS if plans_ort or not key.onnxruntime}
    if plans_ort:
        fields.update(policy.config_entries)
        for provider, options in policy.provider_options:
            fields.update((entries.PROVIDERS[provider].prefix + option, value) for option, value in options)
    text = env.encode(fields)
    for part in machine_part.fields_of(machine, gpu=plan.gpu) if machine is not None and plan.exclusive_cpus else ():
        whole = ";".join([text, *(f"{key}={lists}" for key, lists in part.items())])
        if len(whole) <= env.RESERVED_SHIM:
            return whole
    return text


# Of the policy's own entries the one by which the intra-op pool's threads spin, whatever `spin_duration_us` says.
_SPIN_ENTRY = "session.intra_op.spin_duration_us"


def values(plan: Plan, policy: Policy) -> Dict[str, Any]:
    """The plan's values under the names that people read; absent ones are left out."""
    said = dict(policy.config_entries).get(_SPIN_ENTRY) if plan.spinning == "bounded" else None
    # Below zero it is the runtime's own time.
    spin_duration_us = plan.spin_duration_us or None if said is None else int(said) if int(said) >= 0 else None
    result: Dict[str, Any] = {
        "intraOp": plan.intra_op,
        "intraOpWithoutShim": plan.intra_op_without_shim if plan.intra_op_without_shim != plan.intra_op else None,
        "interOp": plan.inter_op,
        "executionMode": plan.execution_mode,
        "spinning": plan.spinning,
        "spinDurationUs": spin_duration_us,
        "exclusiveSpinning": plan.exclusive_spinning,
        "omp": plan.omp,
        "blas": plan.blas,
        "affinity": plan.affinity,
        "exclusiveCPUs": plan.exclusive_cpus or None,
        "budgetCPUs": plan.budget_cpus,
        "streams": plan.streams if plan.streams > 1 else None,
        "globalIntraOp": plan.global_intra_op,
        "torchInterOp": plan.torch_inter_op,
        "peakRunnable": plan.peak_runnable or None,
        "cpus": cpuset.format_list(plan.cpus) if plan.cpus else None,
        "affinityGroups": [cpuset.format_list(group) for group in plan.affinity_groups] or None,
        "memoryNUMANode": plan.memory_numa_node,
        "expected": _expected(plan),
        "layout": _layout(plan.layout) if plan.layout else None,
    }
    return {name: value for name, value in result.items() if value is not None}


def _layout(layout: Layout) -> Dict[str, Any]:
    result: Dict[str, Any] = {"workers": layout.workers, "threads": layout.threads}
    if layout.others:
        result["others"] = [{"workers": workers, "threads": threads} for workers, threads in layout.others]
    return result


def _expected(plan: Plan) -> Optional[Dict[str, float]]:
    """What the model says of the plan under the load that the policy states."""
    result = plan.expected
    if result is None:
        return None
    milliseconds = {"p50Ms": result.p50_s * 1000, "p99Ms": result.p99_s * 1000}
    figures = {**milliseconds, "cpus": result.cpus, "throttledPercent": result.throttled * 100}
    return {name: float(f"{value:.3g}") for name, value in figures.items()}


def plan_text(
    plan: Plan,
    budget: Budget,
    policy: Policy,
    governed_by: str,
    node: Optional[str] = None,
    tuning: Optional[TuningTarget] = None,
    overlaid: Optional[Policy] = None,
) -> str:
    """The plan annotation: at most env.RESERVED_PLAN bytes (reasons are shortened, then left out, to fit).

    `overlaid` is the policy with a tuning's result, by which the plan was made; None: it is the policy's own.
    """
    known = {name: getattr(budget, name) for name, _ in _BUDGET_FIELDS}
    known = {name: value for name, value in known.items() if value != getattr(_NO_LIMIT, name)}
    known["because"] = budget.because[:_MAX_BECAUSE]
    because = {name: text[: _MAX_TUNED if name == TUNED else _MAX_BECAUSE] for name, text in plan.because.items()}
    document = {
        "v": VERSION,
        "set": values(plan, overlaid or policy),
        "because": because,
        "node": node,
        "budget": known,
        "policy": _settings(policy),
        "by": governed_by,
    }
    if tuning is not None:
        # A name that is cut is nobody's: then no tuning fits.
        named = {"image": tuning.image[:_MAX_PROGRAM], "workload": tuning.workload[:_MAX_PROGRAM]}
        # The controller reads `by` where it is first.
        document["tuned"] = {"by": tuning.by, **named, "first": tuning.first, "door": tuning.door}
    text = _dump(document)
    while len(text) > env.RESERVED_PLAN and (because or known["because"] or "tuned" in document):
        if because:
            because.pop(max(because, key=lambda name: (name != TUNED, len(because[name]))))
        elif known["because"]:
            known["because"] = ""
        else:
            del document["tuned"]
        document["truncated"] = True
        text = _dump(document)
    return text


# Few policies make most plans; nobody changes what is remembered.
_settings = lru_cache(maxsize=256)(to_settings)
_dump = json.JSONEncoder(separators=(",", ":"), ensure_ascii=True).encode


def has_claims(text: str) -> bool:
    """Whether a plan annotation says that its container has ResourceClaims; nothing else of it is read."""
    # As `_dump` writes it. In a JSON text the quotes would be escaped.
    return '"claims":true' in text


def is_dedicated_by(text: str, who: str) -> bool:
    """Whether a plan annotation says that its container has whole CPUs of this one, as `has_claims` reads it."""
    return f'"dedicated":"{who}' in text


def read_plan_text(text: str) -> RecordedPlan:
    """What a plan annotation says. Raises WireError for anything that `plan_text` would not have written."""
    if len(text) > env.RESERVED_PLAN:
        raise WireError(f"plan annotation is {len(text)} bytes long, at most {env.RESERVED_PLAN} are allowed")
    try:
        document = json.loads(text)
    # A deep nesting raises RecursionError.
    except (ValueError, RecursionError) as error:
        raise WireError(f"plan annotation is not JSON: {error}") from None
    if not isinstance(document, dict) or document.get("v") != VERSION:
        raise WireError(f"plan annotation is not a JSON object of version {VERSION}")
    parts = {name: document.get(name, {}) for name in ("set", "because", "budget", "policy")}
    for name, part in parts.items():
        if not isinstance(part, dict):
            raise WireError(f"plan annotation: {name} must be an object")
    node, by = document.get("node"), document.get("by", "")
    if not isinstance(node, (str, type(None))) or not isinstance(by, str):
        raise WireError("plan annotation: node and by must be text")
    try:
        policy = from_settings(parts["policy"])
    except (PolicyError, TypeError) as error:
        raise WireError(f"plan annotation: policy: {error}") from None
    because = {str(name): str(reason) for name, reason in parts["because"].items()}
    tuning = _read_tuning(document["tuned"]) if "tuned" in document else None
    return RecordedPlan(_read_budget(parts["budget"]), policy, node, by, parts["set"], because, tuning)


def _read_tuning(part: Any) -> TuningTarget:
    kinds: Dict[str, type] = {**dict.fromkeys(TuningTarget._fields, str), "first": bool, "door": bool}
    if not isinstance(part, dict) or not all(isinstance(part.get(name), kind) for name, kind in kinds.items()):
        raise WireError("plan annotation: tuned must be an object of texts, first and door true or false")
    return TuningTarget(**{name: part[name] for name in TuningTarget._fields})


def _read_budget(part: Mapping[str, Any]) -> Budget:
    result: Dict[str, Any] = {}
    for name, kind in _BUDGET_FIELDS:
        if part.get(name) is None:
            continue
        value: Any = part[name]
        # bool is an int to isinstance, and JSON writes a whole float as an int.
        allowed: Tuple[type, ...] = (int, float) if kind is float else (kind,)
        if not isinstance(value, allowed) or isinstance(value, bool) != (kind is bool):
            raise WireError(f"plan annotation: budget.{name} must be of type {kind.__name__}")
        if isinstance(value, (int, float)) and not 0 <= value <= 1e6:
            raise WireError(f"plan annotation: budget.{name} must be from 0 to 1000000")
        result[name] = value
    return Budget(**result)

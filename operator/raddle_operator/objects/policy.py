"""The only reader of Raddle's own objects: a policy's JSON in, one frozen value out.

Pods are read in `pods`, whose names are offered here too, so that callers have one place to look.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from raddle.planning import wire
from raddle.planning.kinds import PolicyError
from raddle.planning.policy import OBSERVED, Policy, parse
from raddle_operator.objects import load
from raddle_operator.objects.pods import Container, EnvEntry, Mount, Pod, Volume, pod_from_object
from raddle_operator.objects.reading import SpecError, as_object, mapping, text, texts
from raddle_operator.objects.selectors import EVERYTHING, Selector, SelectorError, compile_selector

__all__ = [
    "Container",
    "EnvEntry",
    "Mount",
    "Pod",
    "PolicyObject",
    "SpecError",
    "Volume",
    "pod_from_object",
    "policy_from_object",
]

NAMESPACED: Final = "InferenceThreading"
CLUSTER: Final = "ClusterInferenceThreading"
ADMIN: Final = "Admin"
BASELINE: Final = "Baseline"
_MODES: Final = ("Observe", "Initial")
_TIERS: Final = (ADMIN, BASELINE)
_MAX_CONTAINERS: Final = 64
_MAX_NAME: Final = 63


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyObject:
    """One InferenceThreading or ClusterInferenceThreading.

    `namespace` is "" and `tier` Admin or Baseline for the cluster kind; `tier` is "" for the namespaced kind.
    `created` is metadata.creationTimestamp as written ("" sorts first). `containers` None: every regular container.
    `settings_hash` is equal for two policies exactly when they give every container the same plan, but for the load
    that was observed, which is in `policy`: pods are not stale because of it. `names_runtimes`: the policy says which
    families it means, so no preset does.
    """

    kind: str
    namespace: str
    name: str
    uid: str
    created: str
    generation: int
    priority: int
    tier: str
    pod_selector: Selector
    namespace_selector: Selector
    containers: tuple[str, ...] | None
    mode: str
    policy: Policy
    settings_hash: str
    names_runtimes: bool = False
    reference: str = field(init=False)

    def __post_init__(self) -> None:
        # The value of raddle.dev/governed-by, needed for each pod.
        object.__setattr__(self, "reference", f"{self.kind}/{self.name}")

    def __hash__(self) -> int:
        # Of all fields it would take longer than what is remembered by it.
        return hash((self.reference, self.settings_hash))


def policy_from_object(obj: Any) -> PolicyObject:
    """The policy that a JSON object is. Absent fields get the schema's defaults.

    Raises SpecError for what the API server's schema and rules would have refused too.
    """
    obj = as_object(obj, "policy")
    kind = text(obj, "kind", "")
    if kind not in (NAMESPACED, CLUSTER):
        raise SpecError("kind", f"is {kind[:64]!r}, must be {NAMESPACED} or {CLUSTER}")
    metadata = mapping(obj, "metadata", "")
    spec = mapping(obj, "spec", "")
    name = text(metadata, "name", "metadata")
    if not 0 < len(name) <= _MAX_NAME:
        raise SpecError("metadata.name", f"must have 1 to {_MAX_NAME} characters, because pods carry it as a label")
    if spec.get("podSelector") is None:
        raise SpecError("spec.podSelector", "is absent; {} selects every opted-in pod")
    try:
        policy = parse(spec)
    except PolicyError as error:
        raise SpecError(f"spec.{error.path}", f"{error.value!r} is not allowed; it must be {error.allowed}") from None
    cluster = kind == CLUSTER
    names_runtimes = spec.get("runtimes") is not None
    return PolicyObject(
        kind=kind,
        namespace="" if cluster else text(metadata, "namespace", "metadata"),
        name=name,
        uid=text(metadata, "uid", "metadata"),
        created=text(metadata, "creationTimestamp", "metadata"),
        generation=_integer(metadata, "generation", "metadata"),
        priority=_integer(spec, "priority", "spec"),
        tier=_word(spec, "tier", _TIERS, BASELINE) if cluster else "",
        pod_selector=_selector(spec, "podSelector"),
        namespace_selector=_selector(spec, "namespaceSelector") if cluster else EVERYTHING,
        containers=_containers(spec),
        mode=_word(spec, "mode", _MODES, "Initial"),
        policy=_with_observed(policy, obj),
        settings_hash=wire.settings_hash(policy, names_runtimes=names_runtimes),
        names_runtimes=names_runtimes,
    )


def _with_observed(policy: Policy, obj: Mapping[str, Any]) -> Policy:
    """The policy with the load of the object's status, where it asks for it and there is one."""
    observed = load.read(obj.get("status")) if policy.load_source == OBSERVED else None
    if observed is None:
        return policy
    return policy._replace(run_time_us=observed.run_time_us, request_rate=observed.request_rate)


def _integer(parent: Mapping[str, Any], key: str, path: str) -> int:
    value = parent.get(key)
    if value is None:
        return 0
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) >= 2**63:
        raise SpecError(f"{path}.{key}", "must be an integer")
    return value


def _word(spec: Mapping[str, Any], key: str, allowed: tuple[str, ...], default: str) -> str:
    value = text(spec, key, "spec") or default
    if value not in allowed:
        raise SpecError(f"spec.{key}", f"is {value[:64]!r}, must be one of {', '.join(allowed)}")
    return value


def _selector(spec: Mapping[str, Any], key: str) -> Selector:
    try:
        return compile_selector(spec.get(key))
    except SelectorError as error:
        path = f"spec.{key}.{error.path}" if error.path else f"spec.{key}"
        raise SpecError(path, error.message) from None


def _containers(spec: Mapping[str, Any]) -> tuple[str, ...] | None:
    if spec.get("containers") is None:
        return None
    names = texts(spec, "containers", "spec")
    if not 0 < len(names) <= _MAX_CONTAINERS:
        raise SpecError("spec.containers", f"must name 1 to {_MAX_CONTAINERS} containers, or be absent")
    return tuple(dict.fromkeys(names))

"""The only reader of InferenceTunings: their JSON in, one frozen value out for what they ask, one for what was found.

crds/inferencetunings.yaml is the source of truth for its form; tests/contract/test_crd_tuning.py holds this to it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from raddle.planning import kinds
from raddle.planning.kinds import PolicyError
from raddle_operator.objects.pods import WORKLOADS
from raddle_operator.objects.quantities import QuantityError, parse
from raddle_operator.objects.reading import SpecError, as_object, mapping, sequence, text, texts
from raddle_operator.objects.selectors import Selector, SelectorError, compile_selector
from raddle_operator.results import summary
from raddle_operator.results.summary import Summary
from raddle_operator.results.verdict import Verdict

KIND: Final = "InferenceTuning"
MAX_CLASSES: Final = 16
MAX_MINUTES: Final = 1440
_API_VERSIONS: Final = ("apps/v1",)
_RUNNERS: Final = ("Python", "Node", "C")
_OBJECTIVES: Final = ("Latency", "Throughput", "Cost")
_LOCAL: Final = ("http://localhost", "http://127.0.0.1")
_MAX_NAME: Final = 63
_P99_US: Final = (1, 3600 * 10**6)
_MAX_RATE: Final = 1000000


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """The workload whose container is measured; `container` "": its first one."""

    kind: str
    name: str
    container: str

    @property
    def reference(self) -> str:
        """`Deployment/ranker`, as `pods.workload_of` says whose a pod is."""
        return f"{self.kind}/{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """A server to be asked. `command` () is the container's own.

    The request's body is `body`, or what is under `key` in a ConfigMap where `config_map` is not "".
    """

    command: tuple[str, ...]
    url: str
    content_type: str
    body: str
    config_map: str
    key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningObject:
    """One InferenceTuning's spec.

    `workload` None: `image` is measured. `server` None: `runner` runs `model` alone. `cpus` is the limit as written,
    "" for the container's own. `rate` is requests a second, None: as many as there can be. `p99_ms` None: no bound.
    `trials` None: as many as the minutes allow. `space` (): all settings that apply.
    """

    namespace: str
    name: str
    uid: str
    generation: int
    workload: Workload | None
    image: str
    model: str
    runner: str
    server: Server | None
    nodes: Selector
    nodes_per_class: int
    cpus: str
    objective: str
    rate: float | None
    p99_ms: float | None
    minutes: int
    trials: int | None
    space: tuple[str, ...]
    parallelism: int


def tuning_from_object(obj: Any) -> TuningObject:
    """The tuning that a JSON object is. Absent fields get the schema's defaults.

    Raises SpecError for what the API server's schema and rules would have refused too.
    """
    obj = as_object(obj, "tuning")
    metadata, spec = mapping(obj, "metadata", ""), mapping(obj, "spec", "")
    name = text(metadata, "name", "metadata")
    if not 0 < len(name) <= _MAX_NAME:
        raise SpecError("metadata.name", f"must have 1 to {_MAX_NAME} characters, because pods carry it as a label")
    workload, server = _workload(spec), _server(spec)
    image, model, cpus = text(spec, "image", "spec"), text(spec, "model", "spec"), _cpus(spec)
    if (workload is None) == (not image):
        raise SpecError("spec.workload", "one of workload and image must be set, not both")
    if (server is None) == (not model):
        raise SpecError("spec.server", "one of server and model must be set, not both")
    if model and not model.startswith("/"):
        raise SpecError("spec.model", f"{model[:64]!r} is not allowed; it must be a path from / in the container")
    runner = _word(spec, "runner", "spec", _RUNNERS)
    if runner and not model:
        raise SpecError("spec.runner", "must be absent with spec.server")
    if workload is None and not cpus:
        raise SpecError("spec.resources.limits.cpu", "must be set, because an image has no limit of its own")
    objective, rate, p99_ms = _objective(spec)
    classes, budget = mapping(spec, "nodeClasses", "spec"), mapping(spec, "budget", "spec")
    return TuningObject(
        namespace=text(metadata, "namespace", "metadata"),
        name=name,
        uid=text(metadata, "uid", "metadata"),
        generation=int(metadata.get("generation") or 0),
        workload=workload,
        image=image,
        model=model,
        runner=runner or ("Python" if model else ""),
        server=server,
        nodes=_selector(classes),
        nodes_per_class=_count(classes, "nodesPerClass", "spec.nodeClasses", (1, 8), 2),
        cpus=cpus,
        objective=objective,
        rate=rate,
        p99_ms=p99_ms,
        minutes=_count(budget, "minutes", "spec.budget", (1, MAX_MINUTES), 30),
        trials=_count(budget, "trials", "spec.budget", (2, 10000), 0) or None,
        space=texts(spec, "space", "spec"),
        parallelism=_count(spec, "parallelism", "spec", (1, 64), 1),
    )


def _workload(spec: Mapping[str, Any]) -> Workload | None:
    if spec.get("workload") is None:
        return None
    result, path = mapping(spec, "workload", "spec"), "spec.workload"
    _word(result, "apiVersion", path, _API_VERSIONS)
    return Workload(
        kind=_word(result, "kind", path, WORKLOADS, required=True),
        name=_required(result, "name", path),
        container=text(result, "container", path),
    )


def _server(spec: Mapping[str, Any]) -> Server | None:
    if spec.get("server") is None:
        return None
    result, path = mapping(spec, "server", "spec"), "spec.server"
    url = _required(result, "url", path)
    host, slash, _ = url.removeprefix("http://").partition("/")
    name, colon, port = host.partition(":")
    if f"http://{name}" not in _LOCAL or not url.startswith("http://") or not slash or (colon and not port.isdecimal()):
        allowed = "http://localhost:PORT/PATH: the server answers in its own pod"
        raise SpecError(f"{path}.url", f"{url[:64]!r} is not allowed; it must be {allowed}")
    request = mapping(result, "request", path)
    place, path = request.get("configMap"), f"{path}.request"
    if (request.get("body") is None) == (place is None):
        raise SpecError(path, "one of body and configMap must be set, not both")
    named = mapping(request, "configMap", path)
    return Server(
        command=texts(result, "command", "spec.server"),
        url=url,
        content_type=text(request, "contentType", path) or "application/json",
        body=text(request, "body", path),
        config_map="" if place is None else _required(named, "name", f"{path}.configMap"),
        key="" if place is None else _required(named, "key", f"{path}.configMap"),
    )


def _cpus(spec: Mapping[str, Any]) -> str:
    path = "spec.resources"
    limits = mapping(mapping(spec, "resources", "spec"), "limits", path)
    cpus = text(limits, "cpu", f"{path}.limits")
    try:
        if cpus and not parse(cpus):
            raise QuantityError(f"{cpus!r} is not a positive number of CPUs")  # noqa: TRY301 (one way out)
    except QuantityError as error:
        raise SpecError(f"{path}.limits.cpu", f"{error}; write CPUs as in Kubernetes, for example 4 or 500m") from None
    return cpus


def _objective(spec: Mapping[str, Any]) -> tuple[str, float | None, float | None]:
    result, path = mapping(spec, "objective", "spec"), "spec.objective"
    kind = _word(result, "type", path, _OBJECTIVES, required=True)
    rate = _read(kinds.read_rate, result, "requestsPerSecond", path, (0, _MAX_RATE))
    p99_us = _read(kinds.read_duration_us, result, "p99", path, _P99_US)
    if kind != "Throughput" and rate is None:
        raise SpecError(f"{path}.requestsPerSecond", f"must be set: {kind} is measured at a given rate")
    if kind == "Throughput" and rate is not None:
        raise SpecError(f"{path}.requestsPerSecond", "must be absent: Throughput finds the rate itself")
    return kind, rate, None if p99_us is None else p99_us / 1000


def _selector(classes: Mapping[str, Any]) -> Selector:
    try:
        return compile_selector(classes.get("selector"))
    except SelectorError as error:
        raise SpecError(f"spec.nodeClasses.selector.{error.path}".rstrip("."), error.message) from None


def _count(parent: Mapping[str, Any], key: str, path: str, allowed: tuple[int, int], default: int) -> int:
    result = _read(kinds.read_count, parent, key, path, allowed)
    return default if result is None else int(result)


def _read(
    read: Callable[[str, Any, Any], float], parent: Mapping[str, Any], key: str, path: str, allowed: tuple[int, int]
) -> float | None:
    """A field as a policy's of its kind is read; None: absent."""
    if parent.get(key) is None:
        return None
    try:
        return read(f"{path}.{key}", parent[key], allowed)
    except PolicyError as error:
        raise SpecError(error.path, f"{error.value!r} is not allowed; it must be {error.allowed}") from None


def _word(parent: Mapping[str, Any], key: str, path: str, allowed: tuple[str, ...], *, required: bool = False) -> str:
    """One of the words, "" where it is absent."""
    result = _required(parent, key, path) if required else text(parent, key, path)
    if result and result not in allowed:
        raise SpecError(f"{path}.{key}", f"is {result[:64]!r}, must be one of {', '.join(allowed)}")
    return result


def _required(parent: Mapping[str, Any], key: str, path: str) -> str:
    result = text(parent, key, path)
    if not result:
        raise SpecError(f"{path}.{key}", "must be set")
    return result


# --- what was found -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassResult:
    """What was found on one class of nodes, by the node that decides for it.

    `image` is the container's as its pod names it, "" where that isn't told.
    """

    verdict: Verdict
    summary: Summary
    image: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningResults:
    """What one InferenceTuning has found until now, by class of nodes. `workload` None: it measures an image."""

    name: str
    workload: Workload | None
    classes: tuple[ClassResult, ...]


def results_from_object(obj: Any) -> TuningResults:
    """What the status of a tuning, as JSON, says. A class whose result can't be read has none.

    Raises SpecError for a shape that no tuning has.
    """
    obj = as_object(obj, "tuning")
    status, path = mapping(obj, "status", ""), "status.classes"
    result = (_class_result(as_object(one, path), path) for one in sequence(status, "classes", "status"))
    return TuningResults(
        name=text(mapping(obj, "metadata", ""), "name", "metadata"),
        workload=_workload(mapping(obj, "spec", "")),
        classes=tuple(one for one in result if one is not None),
    )


def _class_result(result: Mapping[str, Any], path: str) -> ClassResult | None:
    """None while the class is measured."""
    nodes = {node.get("name"): node for node in sequence(result, "nodes", path) if isinstance(node, dict)}
    outcome = text(nodes.get(text(result, "decidedBy", path)) or {}, "outcome", f"{path}.nodes")
    verdict = text(result, "verdict", path)
    if verdict not in list(Verdict):
        return None
    try:
        said = summary.from_text(outcome)
    except summary.DocumentError:
        return None
    image = text(mapping(result, "key", path), "image", path)
    return ClassResult(verdict=Verdict(verdict), summary=said, image=image) if isinstance(said, Summary) else None

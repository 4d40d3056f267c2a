"""Random pods, policies and machines for property tests: shapes that the API server lets through, and hostile ones."""

from __future__ import annotations

import copy
from typing import Any

from hypothesis import strategies as st
from kubernetes.utils.quantity import parse_quantity

from cluster import objects
from fuzz import podmaker
from raddle import env

# Beside what the fuzzer draws from (fuzz.podmaker): quantities and texts that the API server lets through.
CPUS = ("0", "100m", "0.5", "500m", "1", "1000m", "1500m", "2", "2.5", "3", "4", "8", "64", "1e2", "1E", "1n")
LITERALS = (
    "", "0", "1", "8", "abc", "/app", "/app:/lib", "/opt/raddle", "/opt/raddle/python:/app", "$(BASE)/x",
    "--max-old-space-size=64 ", "--require /opt/raddle/node/raddle.cjs", "--require /opt/raddle/node/raddle.cjs -r x",
    "/opt/raddle/native/x86_64/libraddle.so:/lib/a.so", "/opt/raddle/native/aarch64/libraddle.so", "/opt/raddle-report",
    "-Xmx1g -XX:ActiveProcessorCount=8", " -Xmx1g", "GOMAXPROCS=8;KMP_BLOCKTIME=1;OMP_WAIT_POLICY=abc;A=;;",
    "JAVA_TOOL_OPTIONS=-XX:ActiveProcessorCount=8;RADDLE_LITERALS=1",
)  # fmt: skip
MOUNTS = (
    *podmaker.MOUNTS, {"name": "data", "mountPath": "/opt"}, {"name": "data", "mountPath": "/etc/"},
    {"name": "raddle-report", "mountPath": "/opt/raddle-report", "subPath": "serve"},
    {"name": "raddle-report", "mountPath": "/elsewhere/report"},
)  # fmt: skip
VOLUMES = (*podmaker.VOLUMES, {"name": "raddle-shim", "emptyDir": {}})
SIDECAR = "istio-proxy"
NAMES = ("serve", "worker", "a", "model-2", SIDECAR, "x" * 63)


def _compact(draw_from: dict[str, st.SearchStrategy[Any]]) -> st.SearchStrategy[dict[str, Any]]:
    """Objects with these parts, each of which may be absent; None stands for absent too."""
    return st.fixed_dictionaries({}, optional=draw_from).map(
        lambda found: {key: value for key, value in found.items() if value is not None}
    )


@st.composite
def resources(draw: st.DrawFn) -> dict[str, Any]:
    """Requests at most the limits, absent requests as the API server defaults them."""
    limits = draw(_compact({"cpu": st.sampled_from(CPUS), "memory": st.sampled_from(podmaker.MEMORY)}))
    requests = dict(limits)
    if draw(st.booleans()):
        # A request without a limit, or one below it.
        if "cpu" not in limits:
            requests["cpu"] = draw(st.sampled_from(CPUS))
        if "memory" in limits and limits["memory"] != "0":
            requests["memory"] = "1Mi"
    if draw(st.integers(0, 9)) == 0:
        limits["nvidia.com/gpu"] = requests["nvidia.com/gpu"] = "1"
    if draw(st.integers(0, 19)) == 0:
        limits["nvidia.com/gpumem"] = requests["nvidia.com/gpumem"] = "3000"
    return {key: value for key, value in (("limits", limits), ("requests", requests)) if value}


def our_reference(prefix: str, container: str) -> dict[str, Any]:
    return {"fieldRef": {"apiVersion": "v1", "fieldPath": f"metadata.annotations['{prefix}{container}']"}}


@st.composite
def env_entry(draw: st.DrawFn) -> dict[str, Any]:
    name = draw(st.sampled_from((*podmaker.VARIABLES, "BASE")))
    kind = draw(st.integers(0, 9))
    if kind < 6:
        return {"name": name, "value": draw(st.sampled_from(LITERALS))}
    if kind < 8:
        reference = {"name": "settings", "key": "k", **draw(_compact({"optional": st.booleans()}))}
        return {"name": name, "valueFrom": {"configMapKeyRef": reference}}
    if kind == 8:
        return {"name": name, "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.name"}}}
    prefix = draw(st.sampled_from(env.CONTAINER_PREFIXES))
    return {"name": name, "valueFrom": our_reference(prefix, draw(st.sampled_from(NAMES)))}


def _unique(strategy: st.SearchStrategy[Any], key: str, most: int) -> st.SearchStrategy[list[Any]]:
    return st.lists(strategy, max_size=most, unique_by=lambda item: item[key].rstrip("/"))


@st.composite
def containers(draw: st.DrawFn, name: str, *, init: bool = False) -> dict[str, Any]:
    found = draw(
        _compact(
            {
                "command": st.none() | st.sampled_from(podmaker.COMMANDS),
                "env": st.lists(env_entry(), max_size=5),
                "envFrom": st.just([{"configMapRef": {"name": "settings"}}]) if not init else st.none(),
                "volumeMounts": _unique(st.sampled_from(MOUNTS), "mountPath", 4),
                "securityContext": st.sampled_from(({}, {"runAsUser": 1000, "privileged": True})),
            }
        )
    )
    if init and draw(st.booleans()):
        found["restartPolicy"] = "Always"
    image = draw(st.sampled_from(("example.test/serve:1", "vllm/vllm-openai:v1", "")))
    return {"name": name, "image": image, "resources": draw(resources()), **found}


LABELS = _compact(
    {
        "app": st.sampled_from(("resnet", "bert")),
        env.INJECT_LABEL: st.sampled_from(("enabled", "disabled")),
        env.POLICY_LABEL: st.sampled_from(("p0", "p1", "absent")),
        env.INJECTED_LABEL: st.just("true"),
        env.DOOR_LABEL: st.sampled_from(("closed", "open")),
    }
)
ANNOTATIONS = _compact(
    {
        "team": st.just("vision"),
        "big": st.just("x" * 245_000),
        env.GOVERNED_BY: st.just("InferenceThreading/evil"),
        env.SETTINGS_HASH: st.just("0" * 10),
        env.THREADS_PREFIX + "serve": st.sampled_from(("999", "")),
        env.PLAN_PREFIX + "gone": st.just("{}"),
        env.SHIM_PREFIX + "serve": st.just("v=1;intra=64"),
        "kubernetes.io/config.mirror": st.none(),
        "hami.io/vgpu-node": st.sampled_from((None, None, "node-1")),
    }
)


@st.composite
def pods(draw: st.DrawFn) -> dict[str, Any]:
    """A pod that the API server could show to a webhook, injected ones and odd ones among them."""
    names = draw(st.lists(st.sampled_from(NAMES), min_size=1, max_size=3, unique=True))
    init_names = draw(st.lists(st.sampled_from(("init", "proxy", "raddle-shim")), max_size=2, unique=True))
    spec: dict[str, Any] = {"containers": [draw(containers(name)) for name in names]}
    if init_names:
        spec["initContainers"] = [draw(containers(name, init=True)) for name in init_names]
    spec |= draw(
        _compact(
            {
                "volumes": _unique(st.sampled_from(VOLUMES), "name", 3),
                "nodeSelector": st.sampled_from(({}, {"kubernetes.io/arch": "arm64"}, {"kubernetes.io/arch": "s390x"})),
                "nodeName": st.sampled_from(("node-1", "unknown")),
                "schedulerName": st.sampled_from(("default-scheduler", "hami-scheduler")),
                "os": st.sampled_from(({"name": "linux"}, {"name": "windows"})),
                "resources": st.one_of(st.none(), resources()),
            }
        )
    )
    metadata = draw(_compact({"labels": LABELS, "annotations": ANNOTATIONS}))
    return {"metadata": {"name": "p", "namespace": "ns", **metadata}, "spec": spec}


@st.composite
def policies(draw: st.DrawFn, name: str = "p0") -> dict[str, Any]:
    """A policy that the schema lets through."""
    cluster = draw(st.integers(0, 3)) == 0
    fields = {key: st.sampled_from(values) for key, values in podmaker.FIELDS.items()}
    containers = st.lists(st.sampled_from((*NAMES, "init", "proxy", "nowhere")), min_size=1, unique=True)
    budget = _compact(
        {
            "source": st.sampled_from(("Auto", "Limit", "Request", "Node")),
            "workersPerContainer": st.integers(1, 8),
            "sessionsPerWorker": st.integers(1, 4),
        }
    )
    spec = draw(_compact({**fields, "priority": st.integers(-2, 2), "containers": containers, "budget": budget}))
    spec["podSelector"] = draw(st.sampled_from(({}, {}, {"matchLabels": {"app": "resnet"}})))
    created = draw(st.sampled_from(("2026-01-01T00:00:00Z", "2026-02-01T00:00:00Z")))
    if not cluster:
        return objects.policy(name, "ns", metadata={"creationTimestamp": created}, **spec)
    tier = draw(st.sampled_from(("Admin", "Baseline")))
    kind = "ClusterInferenceThreading"
    return objects.policy(name, None, kind, {"creationTimestamp": created}, **spec, tier=tier)


# Anything that JSON can hold.
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=20,
)


def _places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [path]
    if isinstance(value, dict):
        for key, inner in value.items():
            found += _places(inner, (*path, key))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            found += _places(inner, (*path, index))
    return found


@st.composite
def mutilated(draw: st.DrawFn, of: st.SearchStrategy[dict[str, Any]]) -> Any:
    """Such an object with one to three parts of it replaced by any JSON."""
    broken: Any = copy.deepcopy(draw(of))
    for _ in range(draw(st.integers(1, 3))):
        *parents, last = draw(st.sampled_from([place for place in _places(broken) if place] or [(None,)]))
        if last is None:
            return draw(JSON)
        target = broken
        for step in parents:
            target = target[step]
        target[last] = draw(JSON)
    return broken


def qos(pod: dict[str, Any]) -> str:
    """ComputePodQOS of k8s.io/kubernetes/pkg/apis/core/v1/helper/qos/qos.go, with the pod-level resources gate on."""
    requests, limits, guaranteed = {}, {}, True

    def add(total, quantities):
        seen = set()
        for name in ("cpu", "memory"):
            amount = parse_quantity(quantities.get(name, "0"))
            if amount > 0:
                total[name] = total.get(name, 0) + amount
                seen.add(name)
        return seen == {"cpu", "memory"}

    spec = pod["spec"]
    of_pod = spec.get("resources")
    units = (
        [of_pod]
        if of_pod is not None
        else [c.get("resources", {}) for c in spec["containers"] + spec.get("initContainers", [])]
    )
    for unit in units:
        add(requests, unit.get("requests", {}))
        guaranteed &= add(limits, unit.get("limits", {}))
    if not requests and not limits:
        return "BestEffort"
    return "Guaranteed" if guaranteed and requests == limits else "Burstable"

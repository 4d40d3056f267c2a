"""Random pods, policies and clusters for `support.reviews`: what users write, what they forge, and what is no pod.

Seeded and quick, unlike the strategies of the tests, which find small examples instead.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from random import Random
from typing import Any

from cluster import objects
from raddle import delivery, env
from raddle.planning import families
from raddle_operator.objects import nodetopology
from support.placement import random_machines

NAMESPACES = ("models", "picky", "plain")
# Most pods are of the first, or there would be little to answer.
USED = (*NAMESPACES[:1] * 6, *NAMESPACES)
NODES = ("node-1", "node-2", "unknown")
NAMES = ("serve", "worker", "istio-proxy", "raddle-shim", "x" * 63)
CPUS = ("0", "100m", "0.5", "1", "1500m", "2", "2.5", "8", "64", "1e2", "1E", "1n", "-1", "1e999", "x", "", "9" * 400)
MEMORY = ("0", "64Mi", "1Gi", "1073741824", "128974848000m")
VARIABLES = (
    "PATH", "PYTHONPATH", "PYTHONUSERBASE", "PYTHONNOUSERSITE", "OMP_NUM_THREADS",
    "OMP_PROC_BIND", "OMP_WAIT_POLICY", "KMP_BLOCKTIME", "OPENBLAS_NUM_THREADS", "ORT_INTRA_OP_NUM_THREADS",
    "ORT_INTER_OP_NUM_THREADS", "GOMAXPROCS", "MKL_NUM_THREADS", "JAVA_TOOL_OPTIONS",
    "NODE_OPTIONS", "LD_PRELOAD", env.PLAN, env.LITERALS, env.AGENT,
    "WEB_CONCURRENCY", "GUNICORN_CMD_ARGS", "SERVER_THREADS", "LLAMA_ARG_THREADS",
)  # fmt: skip
TEXTS = (
    "", "0", "1", "8", "abc", "/app:/lib", "/opt/raddle/python", "$(BASE)/x", "$$(X)",
    "/opt/raddle/libraddle.so:/lib/a.so", "-w 4",
    "10.96.0.12:8126/serve", "-Xmx1g -XX:ActiveProcessorCount=8", "GOMAXPROCS=8;KMP_BLOCKTIME=1;A=;;", "\x00\n\t",
    "é\u202e\U0001f600", ":" * 40,
)  # fmt: skip
COMMANDS = (
    ["python", "serve.py"], ["gunicorn", "-w", "4", "app:app"], ["sh", "-c", "exec uvicorn --workers=2 app:app"],
    ["torchrun", "serve.py"], ["ollama", "serve"], ["llama-server", "-t", "3"], ["/usr/bin/vllm", "serve"], ["node", "server.js"], ["java", "-jar", "a.jar"], [""],
)  # fmt: skip
MOUNTS = (
    {"name": "data", "mountPath": "/data"}, {"name": "data", "mountPath": "/opt/raddle/"},
    {"name": "data", "mountPath": "/"}, {"name": "raddle-shim", "mountPath": "/opt/raddle", "readOnly": True},
    {"name": "raddle-shim", "mountPath": "/etc/ld.so.preload", "subPath": "ld.so.preload", "readOnly": True},
    {"name": "data", "mountPath": "/etc/ld.so.preload", "subPath": "x"}, {"name": "data", "mountPath": "//etc/."},
    {"name": "raddle-shim", "mountPath": "/elsewhere"},
)  # fmt: skip
VOLUMES = (
    {"name": "data", "emptyDir": {}}, {"name": "raddle-shim", "hostPath": {"path": "/etc"}},
    {"name": "raddle-shim", "configMap": {"name": "raddle-shim-old", "optional": True}},
    {"name": "raddle-shim", "image": {"reference": "evil.test/x", "pullPolicy": "Always"}},
)  # fmt: skip
# Field of a policy -> values that the schema lets through.
FIELDS: dict[str, tuple[Any, ...]] = {
    "priority": (-1, 0, 1),
    "mode": ("Initial", "Initial", "Initial", "Observe"),
    "objective": ("Latency", "Throughput"),
    "existingValues": ("Respect", "Override"),
    "shim": ("Auto", "Auto", "Auto", "None"),
    "containers": (["serve", "worker"], ["serve", "worker", "nowhere"], ["raddle-shim", "serve"]),
    "runtimes": (["onnxruntime"], ["blas"], ["go", "jvm"], list(families.NAMES)),
    "allocator": ("System", "Jemalloc"),
    "budget": (
        {"source": "Request"},
        {"source": "Limit"},
        {"source": "Node"},
        {"workersPerContainer": 4},
        {"sessionsPerWorker": 2},
    ),
    "tuning": ("Auto", "ranker"),
    "variables": ({"SERVER_THREADS": "{threads}"}, {"SERVER_THREADS": "8", "LLAMA_ARG_THREADS": "{cpus}"}),
    "presets": ("Auto", "Auto", "Never"),
    "threads": ({"intraOp": 3}, {"maxIntraOp": 2}, {"spinning": "Never"}),
}
JUNK: tuple[Any, ...] = (None, True, 0, -1, 1.5, 2**70, "", "x", [], {}, [[]], {"a": None}, [None], "\ud800", 1e308)


def _some(choice: Random, values: tuple[Any, ...], most: int) -> list[Any]:
    return [copy.deepcopy(choice.choice(values)) for _ in range(choice.randint(0, most))]


def _chance(choice: Random, share: float) -> bool:
    return choice.random() < share


def pod(choice: Random) -> dict[str, Any]:
    """Return a pod as a user may send one: before the API server has looked whether it is valid."""
    spec: dict[str, Any] = {"containers": [_container(choice) for _ in range(choice.randint(1, 3))]}
    if _chance(choice, 0.3):
        spec["initContainers"] = [_container(choice, init=True) for _ in range(choice.randint(1, 2))]
    if _chance(choice, 0.5):
        spec["volumes"] = _some(choice, VOLUMES, 3)
    if _chance(choice, 0.2):
        spec["nodeName"] = choice.choice(NODES)
    if _chance(choice, 0.2):
        spec["nodeSelector"] = {"kubernetes.io/arch": choice.choice(("amd64", "arm64", "s390x"))}
    if _chance(choice, 0.05):
        spec["schedulerName"] = choice.choice(("hami-scheduler", "default-scheduler"))
    if _chance(choice, 0.1):
        spec["os"] = {"name": choice.choice(("linux", "windows"))}
    if _chance(choice, 0.1):
        spec["resources"] = _resources(choice)
    metadata: dict[str, Any] = {}
    metadata[choice.choice(("name", "generateName"))] = "p"
    if _chance(choice, 0.7):
        metadata["labels"] = _labels(choice)
    if _chance(choice, 0.6):
        metadata["annotations"] = _annotations(choice)
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def _labels(choice: Random) -> dict[str, str]:
    found = {
        "app": ("resnet", "bert"),
        env.INJECT_LABEL: (*("enabled",) * 6, "disabled"),
        env.POLICY_LABEL: (*("p0",) * 6, "p1", "absent", "other/p0"),
        env.INJECTED_LABEL: ("true", "false"),
        env.DOOR_LABEL: (*("open",) * 6, "closed", ""),
    }
    return {key: choice.choice(values) for key, values in found.items() if _chance(choice, 0.3)}


def _annotations(choice: Random) -> dict[str, str]:
    found = {choice.choice(env.CONTAINER_PREFIXES) + choice.choice(NAMES): choice.choice(TEXTS) for _ in range(3)}
    if _chance(choice, 0.2):
        found[env.GOVERNED_BY] = "InferenceThreading/evil"
    if _chance(choice, 0.05):
        found[choice.choice(("hami.io/vgpu-node", "volcano.sh/vgpu-mode"))] = "x"
    if _chance(choice, 0.02):
        found["big"] = "x" * 245_000
    return found


def _container(choice: Random, *, init: bool = False) -> dict[str, Any]:
    found: dict[str, Any] = {
        "name": choice.choice(NAMES),
        "image": choice.choice((*("example.test/serve:1",) * 4, "vllm/x", "")),
    }
    if _chance(choice, 0.8):
        found["resources"] = _resources(choice)
    if _chance(choice, 0.5):
        found["command"] = choice.choice(COMMANDS)
    if _chance(choice, 0.6):
        found["env"] = [_variable(choice) for _ in range(choice.randint(0, 6))]
    if _chance(choice, 0.1):
        found["envFrom"] = [{"configMapRef": {"name": "settings"}}]
    if _chance(choice, 0.4):
        found["volumeMounts"] = _some(choice, MOUNTS, 3)
    if init and _chance(choice, 0.5):
        found["restartPolicy"] = "Always"
    return found


def _variable(choice: Random) -> dict[str, Any]:
    name, kind = choice.choice(VARIABLES), choice.randrange(10)
    if kind < 6:
        return {"name": name, "value": choice.choice(TEXTS)}
    if kind < 8:
        reference: dict[str, Any] = {"name": "settings", "key": "k"}
        if _chance(choice, 0.5):
            reference["optional"] = _chance(choice, 0.5)
        return {"name": name, "valueFrom": {choice.choice(("configMapKeyRef", "secretKeyRef")): reference}}
    path = f"metadata.annotations['{choice.choice(env.CONTAINER_PREFIXES)}{choice.choice(NAMES)}']"
    return {"name": name, "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": path}}}


def _resources(choice: Random) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for part in ("limits", "requests"):
        if _chance(choice, 0.7):
            cpus = choice.choice(CPUS if _chance(choice, 0.1) else CPUS[1:10])
            found[part] = {"cpu": cpus, "memory": choice.choice(MEMORY)}
    return found


def mutilated(obj: Any, choice: Random) -> Any:
    """Return a copy with one to three parts of it replaced by any JSON."""
    broken = copy.deepcopy(obj)
    for _ in range(choice.randint(1, 3)):
        places = list(_places(broken))
        if not places:
            break
        target, key = choice.choice(places)
        target[key] = copy.deepcopy(choice.choice(JUNK))
    return broken


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    members = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in list(members):
        yield value, key
        yield from _places(inner)


def policies(choice: Random) -> Iterator[dict[str, Any]]:
    """Some policies of a cluster."""
    for name in ("p0", "p1"):
        if name == "p0" or _chance(choice, 0.5):
            yield policy(choice, name, choice.choice(USED[:-1]))
    if _chance(choice, 0.4):
        yield policy(choice, "cluster", None)


def policy(choice: Random, name: str, namespace: str | None = "") -> dict[str, Any]:
    """A policy that the schema lets through; in namespace None it is of the cluster, by default in any or none."""
    if namespace == "":
        namespace = choice.choice((None, "ns", "ns", "ns"))
    spec = {key: choice.choice(values) for key, values in FIELDS.items() if _chance(choice, 0.4)}
    spec["podSelector"] = choice.choice(({}, {}, {}, {"matchLabels": {"app": "resnet"}}))
    created = {"creationTimestamp": choice.choice(("2026-01-01T00:00:00Z", "2026-02-01T00:00:00Z"))}
    if namespace is not None:
        return objects.policy(name, namespace, metadata=created, **spec)
    tier = choice.choice(("Admin", "Baseline"))
    return objects.policy(name, None, "ClusterInferenceThreading", created, **spec, tier=tier)


def namespaces() -> Iterator[dict[str, Any]]:
    """All of NAMESPACES, of which the last one never asked for Raddle."""
    for name, label in zip(NAMESPACES, ("enabled", "labelled", ""), strict=True):
        yield {"metadata": {"name": name, "labels": {env.INJECT_LABEL: label} if label else {}}}


def topologies(choice: Random) -> Iterator[dict[str, Any]]:
    """Topologies of all but the last of NODES."""
    for name in NODES[:-1]:
        if _chance(choice, 0.8):
            yield {"metadata": {"name": name}, "spec": nodetopology.to_spec(random_machines.node(choice))}


def shims(choice: Random) -> Iterator[dict[str, Any]]:
    """The shim's ConfigMap, in some namespaces."""
    content = delivery.content_hash()
    for namespace in NAMESPACES:
        if _chance(choice, 0.6):
            labels = {"raddle.dev/shim": content}
            yield {"metadata": {"name": f"raddle-shim-{content}", "namespace": namespace, "labels": labels}}

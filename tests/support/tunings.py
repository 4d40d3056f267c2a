"""InferenceTunings as users write them, and what is refused of them: by the reader and by a real API server alike."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

Object = dict[str, Any]
WORKLOAD = {"kind": "Deployment", "name": "ranker"}
SERVER = {"url": "http://localhost:8080/v2/models/ranker/infer", "request": {"body": '{"inputs": []}'}}
LATENCY = {"type": "Latency", "requestsPerSecond": 50, "p99": "20ms"}
IMAGE = {"workload": None, "image": "registry.example/ranker:1", "resources": {"limits": {"cpu": "4"}}}


def tuning(name: str = "ranker", namespace: str | None = None, **spec: Any) -> Object:
    """A tuning of a Deployment's server for Latency, but for what is given of its spec; None leaves a field out."""
    given = {"workload": WORKLOAD, "server": SERVER, "objective": LATENCY, **spec}
    metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
    spec = copy.deepcopy({field: value for field, value in given.items() if value is not None})
    return {"apiVersion": "raddle.dev/v1alpha1", "kind": "InferenceTuning", "metadata": metadata, "spec": spec}


ACCEPTED: Mapping[str, Object] = {
    "a server of a Deployment": {},
    "one of its containers": {"workload": {**WORKLOAD, "apiVersion": "apps/v1", "container": "serve"}},
    "a model in its image": {"server": None, "model": "/models/ranker.onnx"},
    "a model in onnxruntime-node": {"server": None, "model": "/models/ranker.onnx", "runner": "Node"},
    "an image alone": IMAGE,
    "a command of its own": {"server": {**SERVER, "command": ["python", "serve.py", ""]}},
    "a request in a ConfigMap": {"server": {**SERVER, "request": {"configMap": {"name": "requests", "key": "one"}}}},
    "throughput without a bound": {"objective": {"type": "Throughput"}},
    "throughput within a bound": {"objective": {"type": "Throughput", "p99": "1s"}},
    "cost": {"objective": {"type": "Cost", "requestsPerSecond": 0.5, "p99": "1m30s"}},
    "one class of nodes": {"nodeClasses": {"selector": {"matchLabels": {"pool": "cpu"}}, "nodesPerClass": 3}},
    "another limit": {"resources": {"limits": {"cpu": "2500m"}}},
    "a budget": {"budget": {"minutes": 5, "trials": 20}, "parallelism": 4},
    "part of the space": {"space": ["threads.intraOp", "program.ioBinding"]},
}

# What is refused -> (the field that is named, the spec). Most of it by rules, which only an API server reads in the CRD.
REFUSED: Mapping[str, tuple[str, Object]] = {
    "neither workload nor image": ("spec.workload", {"workload": None}),
    "workload and image": ("spec.workload", {"image": "registry.example/ranker:1"}),
    "neither server nor model": ("spec.server", {"server": None}),
    "server and model": ("spec.server", {"model": "/models/ranker.onnx"}),
    "a runner of a server": ("spec.runner", {"runner": "C"}),
    "an unknown runner": ("spec.runner", {"server": None, "model": "/m.onnx", "runner": "Perl"}),
    "a model that is no path": ("spec.model", {"server": None, "model": "ranker.onnx"}),
    "an image without a limit": ("spec.resources", {**IMAGE, "resources": None}),
    "no CPU": ("spec.resources.limits.cpu", {"resources": {"limits": {"cpu": "0"}}}),
    "CPUs that are no quantity": ("spec.resources.limits.cpu", {"resources": {"limits": {"cpu": "four"}}}),
    "an unknown kind of workload": ("spec.workload.kind", {"workload": {**WORKLOAD, "kind": "Pod"}}),
    "another group's workload": ("spec.workload.apiVersion", {"workload": {**WORKLOAD, "apiVersion": "batch/v1"}}),
    "a workload without a name": ("spec.workload.name", {"workload": {"kind": "Deployment"}}),
    "a server elsewhere": ("spec.server.url", {"server": {**SERVER, "url": "http://metadata.example/latest/"}}),
    "a server whose name begins alike": ("spec.server.url", {"server": {**SERVER, "url": "http://localhost.example/"}}),
    "a server behind a login": ("spec.server.url", {"server": {**SERVER, "url": "http://localhost:1@a.example/"}}),
    "no request": ("spec.server.request", {"server": {**SERVER, "request": {}}}),
    "two requests": (
        "spec.server.request",
        {"server": {**SERVER, "request": {"body": "", "configMap": {"name": "a", "key": "b"}}}},
    ),
    "an unknown objective": ("spec.objective.type", {"objective": {"type": "Fastest"}}),
    "no objective": ("spec.objective", {"objective": None}),
    "latency without a rate": ("spec.objective.requestsPerSecond", {"objective": {"type": "Latency"}}),
    "cost without a rate": ("spec.objective.requestsPerSecond", {"objective": {"type": "Cost", "p99": "1s"}}),
    "throughput at a rate": (
        "spec.objective.requestsPerSecond",
        {"objective": {"type": "Throughput", "requestsPerSecond": 1}},
    ),
    "no requests": ("spec.objective.requestsPerSecond", {"objective": {**LATENCY, "requestsPerSecond": 0}}),
    "a bound without a unit": ("spec.objective.p99", {"objective": {**LATENCY, "p99": "20"}}),
    "a bound of two hours": ("spec.objective.p99", {"objective": {**LATENCY, "p99": "2h"}}),
    "an operator that selectors lack": (
        "spec.nodeClasses.selector",
        {"nodeClasses": {"selector": {"matchExpressions": [{"key": "pool", "operator": "Like", "values": ["a"]}]}}},
    ),
    "no node": ("spec.nodeClasses.nodesPerClass", {"nodeClasses": {"nodesPerClass": 0}}),
    "no time": ("spec.budget.minutes", {"budget": {"minutes": 0}}),
    "one trial": ("spec.budget.trials", {"budget": {"trials": 1}}),
    "nothing at once": ("spec.parallelism", {"parallelism": 0}),
}

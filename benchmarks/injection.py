"""How long one decision takes, on a pod of about 6 kB: `python -m injection` (from benchmarks/), no cluster needed.

Prints CPU time in microseconds for each step: the least of the repetitions, and the median. Of a review, bytes to
bytes, the pods are all different: in name and in one variable's value, so that a plan is often remembered; or in their
limit too, so that none is. The webhook adds TLS and HTTP to it.
"""

from __future__ import annotations

import itertools
import json
import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import orjson

from assembling import regular
from cluster import objects
from raddle import env
from raddle.cpus.topology import Machine
from raddle_operator.injection import binding, shipped
from raddle_operator.injection.decide import Facts, Settings, decide_object
from raddle_operator.injection.matching import Policies, govern
from raddle_operator.objects.policy import pod_from_object, policy_from_object
from raddle_operator.webhook import review as reviews
from raddle_operator.webhook import verdict

REPETITIONS = 15
CALLS = 1000


def pod(containers: int = 3, variables: int = 12) -> dict[str, Any]:
    """A Deployment's pod as the API server shows it to a webhook: one server, two sidecars, a token volume."""
    token = {"name": "kube-api-access-x7k2p", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"}
    probe = {"httpGet": {"path": "/healthz", "port": 8080, "scheme": "HTTP"}, "periodSeconds": 10, "timeoutSeconds": 1}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "generateName": "resnet-7d4b9c6f5-",
            "namespace": "vision",
            "labels": {"app": "resnet", "pod-template-hash": "7d4b9c6f5", "team": "vision"},
            "annotations": {"prometheus.io/scrape": "true", "checksum/config": "0123456789abcdef" * 4},
            "ownerReferences": [
                {
                    "apiVersion": "apps/v1",
                    "kind": "ReplicaSet",
                    "name": "resnet-7d4b9c6f5",
                    "uid": "u",
                    "controller": True,
                }
            ],
            "managedFields": [
                {"manager": "kube-controller-manager", "fieldsV1": {f"f:field-{n}": {} for n in range(40)}}
            ],
        },
        "spec": {
            "containers": [
                {
                    "name": "serve" if n == 0 else f"helper-{n}",
                    "image": "example.test/vision/resnet:2026.11",
                    "command": ["gunicorn", "-w", "2", "app:app"] if n == 0 else ["helper"],
                    "env": [{"name": f"SETTING_{i}", "value": f"value-{i}" * 3} for i in range(variables)],
                    "resources": {
                        "limits": {"cpu": "3500m", "memory": "2Gi"},
                        "requests": {"cpu": "2", "memory": "2Gi"},
                    },
                    "volumeMounts": [{**token, "readOnly": True}],
                    "livenessProbe": probe,
                    "readinessProbe": probe,
                    "terminationMessagePath": "/dev/termination-log",
                }
                for n in range(containers)
            ],
            "volumes": [{"name": "kube-api-access-x7k2p", "projected": {"defaultMode": 420, "sources": []}}],
            "serviceAccountName": "default",
            "schedulerName": "default-scheduler",
        },
    }


def policies(count: int = 200) -> Policies:
    """So many policies, of which the last of the pod's namespace governs."""
    result = [
        objects.policy(
            f"policy-{n}",
            "vision" if n % 4 == 0 else f"other-{n}",
            podSelector={"matchLabels": {"app": f"app-{n}"}},
        )
        for n in range(count - 1)
    ]
    result.append(
        objects.policy("resnet", "vision", podSelector={"matchLabels": {"app": "resnet"}}, containers=["serve"])
    )
    return Policies(map(policy_from_object, result))


def machine(cores: int = 64) -> Machine:
    """Two sockets of so many cores together, two threads per core."""
    return regular(cores, 2, sockets=2, numa_nodes=2, l3_domains=0)


def different_pods(count: int, *, own_limits: bool = False) -> list[dict[str, Any]]:
    """Pods with names of their own, as StatefulSets and Jobs make them; `own_limits`: and limits."""
    result = []
    for number in range(count):
        obj = pod()
        obj["metadata"]["name"] = f"resnet-{number}"
        serve = obj["spec"]["containers"][0]
        serve["env"][0]["value"] = f"value-{number}"
        if own_limits:
            serve["resources"]["limits"]["cpu"] = f"{3000 + number}m"
        result.append(obj)
    return result


def _review(obj: dict[str, Any]) -> bytes:
    resource = {"group": "", "version": "v1", "resource": "pods"}
    request = {"uid": "7d1c2f2e-6f3a-4f57-9d8c-000000000000", "namespace": "vision", "operation": "CREATE"}
    review = {"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1"}
    return orjson.dumps({**review, "request": {**request, "resource": resource, "object": obj}})


def _time(name: str, call: Callable[[], Any]) -> None:
    figures = []
    for _ in range(REPETITIONS):
        start = time.thread_time()
        for _ in range(CALLS):
            call()
        figures.append((time.thread_time() - start) / CALLS * 1e6)
    print(f"{name:52} {min(figures):8.1f} us   (median {statistics.median(figures):.1f})")


def main() -> None:
    """Measure and print."""
    obj = pod()
    read = pod_from_object(obj)
    labels = {env.INJECT_LABEL: "enabled"}
    known = policies()
    settings, facts = Settings(shim=shipped.shim()), Facts(smallest_cores=16, architectures=frozenset({"x86_64"}))
    decision = decide_object(obj, "vision", labels, known, facts, settings)
    size, patch = (len(json.dumps(part, separators=(",", ":"))) for part in (obj, decision.operations))
    print(f"pod {size} bytes, patch {patch} bytes in {len(decision.operations)} operations, 200 policies")
    _time("read the pod", lambda: pod_from_object(obj))
    _time("choose the policy", lambda: govern(read, "vision", labels, known))
    _time("read and decide", lambda: decide_object(obj, "vision", labels, known, facts, settings))

    def answered(bodies: Iterator[bytes]) -> None:
        review = reviews.read(next(bodies), reviews.POD)
        made = decide_object(review.obj, "vision", labels, known, facts, settings)
        verdict.answer(review.uid, verdict.of_pod(made))

    # More pods than plans are remembered.
    for what, own_limits in (("name and a value", False), ("name, a value and the limit", True)):
        bodies = itertools.cycle([_review(one) for one in different_pods(2000, own_limits=own_limits)])
        _time(f"review: pods differ in {what}", partial(answered, bodies))
    values: dict[str, str] = {}
    for operation in decision.operations:
        if operation["path"].startswith("/metadata/annotations/"):
            values[operation["path"].rpartition("/")[2].replace("~1", "/")] = operation["value"]
    node = machine()
    _time("rebind to a node of 128 CPUs", lambda: binding.rebind(values, "node-1", node))
    print(binding.rebind(values, "node-1", node).outcome)


if __name__ == "__main__":
    main()

"""Random pods, policies and machines for property tests: shapes that the API server lets through, and hostile ones."""

from __future__ import annotations

from random import Random
from typing import Any

from hypothesis import strategies as st
from kubernetes.utils.quantity import parse_quantity

from support import podmaker

# Beside what the fuzzer draws from (support.podmaker): quantities and texts that the API server lets through.
CPUS = ("0", "100m", "0.5", "500m", "1", "1000m", "1500m", "2", "2.5", "3", "4", "8", "64", "1e2", "1E", "1n")
LITERALS = (
    *podmaker.TEXTS, "/app", "/opt/raddle", " -Xmx1g", "GOMAXPROCS=8;KMP_BLOCKTIME=1;OMP_WAIT_POLICY=abc;A=;;",
    "JAVA_TOOL_OPTIONS=-XX:ActiveProcessorCount=8;RADDLE_LITERALS=1",
)  # fmt: skip
GPUS = ("nvidia.com/gpu", "nvidia.com/gpumem", "", "", "", "")


def pods():
    """A pod that the API server could show to a webhook, injected ones and odd ones among them."""
    return st.randoms(use_true_random=False).map(_Sparse).map(lambda choice: valid(podmaker.pod(choice), choice))


class _Sparse(Random):
    """Choices of which the simplest, to which examples shrink, leave out what may be absent."""

    def __init__(self, choice: Random) -> None:
        super().__init__(0)
        self.choice, self.randint, self.randrange = choice.choice, choice.randint, choice.randrange
        self.random = lambda: 1 - choice.random()


def valid(pod: dict[str, Any], choice: Random) -> dict[str, Any]:
    """The pod with names and paths that occur once, quantities that are some, and requests within the limits."""
    spec = pod["spec"]
    spec["containers"] = _once(spec["containers"], "name")
    names = {container["name"] for container in spec["containers"]}
    spec["initContainers"] = [c for c in _once(spec.get("initContainers", []), "name") if c["name"] not in names]
    spec["volumes"] = _once(spec.get("volumes", []), "name")
    for container in spec["containers"] + spec["initContainers"]:
        container["volumeMounts"] = _once(container.get("volumeMounts", []), "mountPath")
        for entry in container.get("env", []):
            if "value" in entry:
                entry["value"] = choice.choice(LITERALS)
    for unit in (spec, *spec["containers"], *spec["initContainers"]):
        if "resources" in unit:
            unit["resources"] = _resources(unit["resources"], choice)
    return pod


def _once(items: list[dict[str, Any]], key: str) -> list[dict[str, Any]]:
    return list({item[key].rstrip("/"): item for item in items}.values())


def _resources(found: dict[str, Any], choice: Random) -> dict[str, Any]:
    """Requests at most the limits, absent requests as the API server defaults them."""
    limits = {key: choice.choice(CPUS) if key == "cpu" else text for key, text in found.get("limits", {}).items()}
    gpu = choice.choice(GPUS)
    limits |= {gpu: "1"} if gpu else {}
    requests = dict(limits)
    if "requests" in found and "cpu" not in limits:
        requests["cpu"] = choice.choice(CPUS)
    if "requests" in found and limits.get("memory", "0") != "0":
        requests["memory"] = "1Mi"
    return {key: value for key, value in (("limits", limits), ("requests", requests)) if value}


def policies(name: str = "p0") -> st.SearchStrategy[dict[str, Any]]:
    """A policy that the schema lets through."""
    return st.randoms(use_true_random=False).map(lambda choice: podmaker.policy(choice, name))


def mutilated(of: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[Any]:
    """Such an object with one to three parts of it replaced by any JSON."""
    return st.builds(podmaker.mutilated, of, st.randoms(use_true_random=False))


# Anything that JSON can hold.
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=20,
)


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

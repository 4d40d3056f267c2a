"""What a pod's containers show against what its scenario says: pure functions of what was read."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from cluster import objects
from e2e.scenarios import Container, Scenario
from raddle import delivery
from raddle.cpus import cpuset
from raddle_operator.injection.volumes import SHIM_VOLUME

# An application's or its runtime's error, in a log. ONNX Runtime marks severity by a letter.
ERRORS = ("pthread_setaffinity_np failed", "[E:onnxruntime", "[F:onnxruntime", "Traceback")
_COUNT = re.compile(r"intra_op=(\d+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """One container, read from outside: its log, and the exit status and output of Raddle's commands in it.

    `show` is `python -m raddle`, None where the container has no Python, `live` `raddle explain --live -o json` of its
    pod.
    """

    log: str
    show: tuple[int, str] | None
    live: tuple[int, str]

    @property
    def sample(self) -> Mapping[str, Any] | None:
        """What the application printed; None where it has not come so far."""
        return sample(self.log)


def sample(log: str) -> Mapping[str, Any] | None:
    """The last line of a log that is a JSON object, or None."""
    for line in reversed(log.splitlines()):
        if line.startswith("{"):
            try:
                result = json.loads(line)
            except ValueError:
                continue
            return result if isinstance(result, dict) else None
    return None


def error_lines(log: str) -> list[str]:
    """The lines of a log that tell of an error."""
    return [line for line in log.splitlines() if any(mark in line for mark in ERRORS)]


def judge(scenario: Scenario, container: Container, pod: Mapping[str, Any], observed: Observation) -> list[str]:
    """What is not as it must be in a container of the pod, in sentences."""
    qos = pod["status"]["qosClass"]
    return [
        *([] if qos == scenario.qos else [f"class of service {qos}, expected {scenario.qos}"]),
        *_delivered(container, pod),
        *_inside(container, observed.sample),
        *_of_commands(container, objects.threads(pod, container.name), observed),
        *(f"in the log: {line}" for line in error_lines(observed.log)),
    ]


def summary(
    container: Container, pod: Mapping[str, Any], observed: Observation, stock: Mapping[str, Any] | None
) -> str:
    """A line to read: what the container was given, what really ran, and what a load costs, without Raddle -> with it.

    `stock` is what it showed without Raddle; None: it was not looked at.
    """
    result, compared = observed.sample or {}, stock or {}
    quota, plan = result.get("quota_cpus"), objects.threads(pod, container.name)
    parts = [
        f"{pod['status']['qosClass']}, CPUs {result.get('cpus')}, quota {'none' if quota is None else f'{quota:g}'}",
        f"threads: stock {compared.get('threads', '-')}, planned {plan}, effective {result.get('threads')}",
    ]
    loads = [one["load"] for one in (compared, result) if one.get("load")]
    if loads:
        parts.append("CPU " + " -> ".join(f"{one['cpu_ms']:.1f} ms" for one in loads) + " a request")
    if any(one["throttled_percent"] is not None for one in loads):
        shares = ("-" if one["throttled_percent"] is None else f"{one['throttled_percent']:.0f} %" for one in loads)
        parts.append("throttled " + " -> ".join(shares))
    return "; ".join(parts)


def _delivered(container: Container, pod: Mapping[str, Any]) -> Iterator[str]:
    """Whether the shim came to a container."""
    spec = pod.get("spec", {})
    kinds = [kind for one in spec.get("volumes", []) if one["name"] == SHIM_VOLUME for kind in one if kind != "name"]
    if kinds != ["configMap"]:
        yield f"the shim's volume is of kind {' '.join(kinds) or 'none'}, expected configMap"
    for one in [*spec.get("initContainers", []), *spec.get("containers", [])]:
        mounted = any(mount["mountPath"] == delivery.PRELOAD_FILE for mount in one.get("volumeMounts", []))
        if one["name"] == container.name and not mounted:
            yield f"{delivery.PRELOAD_FILE} is not mounted"


def _inside(container: Container, result: Mapping[str, Any] | None) -> Iterator[str]:
    """Between what must be and what the kernel says inside."""
    if result is None:
        yield "the application said nothing"
        return
    for name, expected in (("threads", container.threads), ("quota_cpus", container.quota_cpus)):
        if result[name] != expected:
            yield f"{name} {result[name]}, expected {expected}"
    yield from _places(container, result)
    # On CPUs of its own a spinning worker takes nothing from anybody.
    spinning = container.threads - 1 if container.exclusive else 0
    if result["spinning"] != spinning:
        yield f"{result['spinning']} workers burn CPU time half a second after the answer, expected {spinning}"


def _places(container: Container, result: Mapping[str, Any]) -> Iterator[str]:
    """Where the container may run, and where its threads may."""
    cpus = result["cpus"]
    own = cpuset.parse_list(cpus)
    if container.cpus not in (None, cpus):
        yield f"CPUs {cpus}, expected {container.cpus}"
    if container.cpu_count not in (None, cpuset.count(own)):
        yield f"CPUs {cpus} are {cpuset.count(own)}, expected {container.cpu_count}"
    if container.within and all(own & ~cpuset.parse_list(one) for one in container.within):
        yield f"CPUs {cpus} lie in none of {' '.join(container.within)}"
    threads = [result["caller"], *result["workers"]]
    if container.exclusive:
        outside = [one for one in threads if cpuset.parse_list(one) & ~own]
        if outside:
            yield f"threads may run on {' '.join(outside)}, outside the container's {cpus}"
    elif any(one != cpus for one in threads):
        yield f"threads are tied to {' '.join(threads)} on shared CPUs {cpus}"


def _of_commands(container: Container, plan: int | None, observed: Observation) -> Iterator[str]:
    """What Raddle says: its plan outside, its commands inside."""
    if plan is None:
        yield "the pod has no plan"
    elif plan != container.threads:
        yield f"the plan is {plan} threads, expected {container.threads}"
    status, text = observed.live
    if status or not all(one["withRuntime"] for one in json.loads(text)["live"]["containers"]):
        yield f"`raddle explain --live` ended with {status}: {text[-600:]}"
    elif (marked := _marked(text, container.name)) != {container.threads}:
        yield f"`raddle explain --live` says {sorted(marked)} threads, expected {container.threads}"
    if observed.show is None:
        return
    status, text = observed.show
    if status:
        yield f"`python -m raddle` ended with {status}: {text[-600:]}"
        return
    effective = (json.loads(text).get("effective") or {}).get("intraOp")
    if effective != container.threads:
        yield f"`python -m raddle` says {effective} threads, expected {container.threads}"


def _marked(text: str, name: str) -> set[int]:
    """The thread counts in the marks of a container's processes, by the document of `raddle explain --live`."""
    containers = json.loads(text)["live"]["containers"]
    processes = [process for one in containers if one["container"] == name for process in one["processes"]]
    return {int(count) for process in processes for mark in process["marks"] for count in _COUNT.findall(mark)}

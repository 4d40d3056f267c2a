"""What a pod's containers show against what its scenario says: pure functions of what was read."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from e2e.scenarios import Container, Scenario
from raddle import delivery
from raddle.cpus import cpuset

PLAN_ANNOTATION = "plan.raddle.dev/"
SHIM_VOLUME = "raddle-shim"
# What a policy asks for -> the kind of volume that a pod then has.
VOLUMES = {"Auto": "configMap", "ImageVolume": "image", "InitContainer": "emptyDir"}
# An application's or its runtime's error, in a log. ONNX Runtime marks severity by a letter.
ERRORS = ("pthread_setaffinity_np failed", "[E:onnxruntime", "[F:onnxruntime", "Traceback")


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """One container, read from outside: its log, and the exit status and output of Raddle's commands in it.

    `report` is `python -m raddle report -o json`, `show` None where the container has no Python, `live`
    `raddle explain --live -o json` of its pod, None where the door is closed.
    """

    log: str
    report: tuple[int, str]
    show: tuple[int, str] | None
    live: tuple[int, str] | None

    @property
    def look(self) -> Mapping[str, Any] | None:
        """What the application printed; None where it has not come so far."""
        return look(self.log)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """One container; `wrong` is what is not as it must be, in sentences. `stock_threads` None: not looked at.

    The loads are what inside/app.py says of them, {} where it has not. `tries`: how often the scenario was run.
    """

    scenario: str
    node: str
    container: str
    qos: str
    cpus: str
    quota_cpus: float | None
    stock_threads: int | None
    planned: int | None
    threads: int | None
    spinning: int | None
    stock_load: Mapping[str, Any]
    load: Mapping[str, Any]
    errors: int
    wrong: tuple[str, ...]
    tries: int = 1


def look(log: str) -> Mapping[str, Any] | None:
    """The last line of a log that is a JSON object, or None."""
    for line in reversed(log.splitlines()):
        if line.startswith("{"):
            try:
                found = json.loads(line)
            except ValueError:
                continue
            return found if isinstance(found, dict) else None
    return None


def error_lines(log: str) -> list[str]:
    """The lines of a log that tell of an error."""
    return [line for line in log.splitlines() if any(mark in line for mark in ERRORS)]


def planned(pod: Mapping[str, Any], container: str) -> int | None:
    """The thread count that the pod's annotation has for a container; None where there is no plan."""
    text = pod["metadata"].get("annotations", {}).get(PLAN_ANNOTATION + container)
    if text is None:
        return None
    count = json.loads(text).get("set", {}).get("intraOp")
    return None if count is None else int(count)


def judge(
    scenario: Scenario,
    node: str,
    pod: Mapping[str, Any],
    seen: Mapping[str, Seen],
    stock: Mapping[str, Mapping[str, Any] | None],
) -> list[Verdict]:
    """A verdict per container. `pod` is that on this node as it is, `stock` what each showed without Raddle."""
    return [_judge(scenario, node, one, pod, seen[one.name], stock.get(one.name)) for one in scenario.expected(node)]


def failed(scenario: Scenario, reason: str) -> list[Verdict]:
    """The verdicts where a pod did not come so far."""
    return [
        _judge(scenario, node, one, {}, None, None, reason)
        for node in scenario.nodes
        for one in scenario.expected(node)
    ]


def _judge(
    scenario: Scenario,
    node: str,
    container: Container,
    pod: Mapping[str, Any],
    seen: Seen | None,
    stock: Mapping[str, Any] | None,
    reason: str = "",
) -> Verdict:
    inside = seen.look if seen is not None else None
    plan = planned(pod, container.name) if pod else None
    qos = str(pod.get("status", {}).get("qosClass", ""))
    errors = error_lines(seen.log) if seen is not None else []
    wrong = [reason] if reason else []
    if seen is not None:
        if qos != scenario.qos:
            wrong.append(f"class of service {qos}, expected {scenario.qos}")
        wrong += _delivered(scenario, container, pod)
        wrong += _inside(container, inside)
        wrong += _said(container, plan, seen)
        wrong += [f"in the log: {line}" for line in errors]
    found = inside or {}
    return Verdict(
        scenario=scenario.name,
        node=node,
        container=container.name,
        qos=qos,
        cpus=str(found.get("cpus", "")),
        quota_cpus=found.get("quota_cpus"),
        stock_threads=None if stock is None else stock["threads"],
        planned=plan,
        threads=found.get("threads"),
        spinning=found.get("spinning"),
        stock_load=(stock or {}).get("load", {}),
        load=found.get("load", {}),
        errors=len(errors),
        wrong=tuple(wrong),
    )


def wished(scenario: Scenario) -> str:
    """How the scenario's policy has the shim delivered; "Auto" is by the door."""
    return str((scenario.policy_spec or {}).get("shim", "Auto"))


def _delivered(scenario: Scenario, container: Container, pod: Mapping[str, Any]) -> Iterator[str]:
    """Whether the shim came to a container in the way that the scenario's policy asks for."""
    wish = wished(scenario)
    expected = VOLUMES[wish]
    volumes = [one for one in pod.get("spec", {}).get("volumes", []) if one["name"] == SHIM_VOLUME]
    kinds = [kind for one in volumes for kind in one if kind != "name"]
    if kinds != [expected]:
        yield f"the shim's volume is of kind {' '.join(kinds) or 'none'}, expected {expected} for shim {wish}"
    spec = pod.get("spec", {})
    for one in [*spec.get("initContainers", []), *spec.get("containers", [])]:
        by_door = any(mount["mountPath"] == delivery.PRELOAD_FILE for mount in one.get("volumeMounts", []))
        if one["name"] == container.name and by_door != (wish == "Auto"):
            yield f"{delivery.PRELOAD_FILE} is {'' if by_door else 'not '}mounted, for shim {wish}"


def _inside(container: Container, found: Mapping[str, Any] | None) -> Iterator[str]:
    """Between what must be and what the kernel says inside."""
    if found is None:
        yield "the application said nothing"
        return
    for name, expected in (("threads", container.threads), ("quota_cpus", container.quota_cpus)):
        if found[name] != expected:
            yield f"{name} {found[name]}, expected {expected}"
    yield from _places(container, found)
    # On CPUs of its own a spinning worker takes nothing from anybody.
    spinning = container.threads - 1 if container.exclusive else 0
    if found["spinning"] != spinning:
        yield f"{found['spinning']} workers burn CPU time half a second after the answer, expected {spinning}"


def _places(container: Container, found: Mapping[str, Any]) -> Iterator[str]:
    """Where the container may run, and where its threads may."""
    cpus = found["cpus"]
    own = cpuset.parse_list(cpus)
    if container.cpus not in (None, cpus):
        yield f"CPUs {cpus}, expected {container.cpus}"
    if container.cpu_count not in (None, cpuset.count(own)):
        yield f"CPUs {cpus} are {cpuset.count(own)}, expected {container.cpu_count}"
    if container.within and all(own & ~cpuset.parse_list(one) for one in container.within):
        yield f"CPUs {cpus} lie in none of {' '.join(container.within)}"
    threads = [found["caller"], *found["workers"]]
    if container.exclusive:
        outside = [one for one in threads if cpuset.parse_list(one) & ~own]
        if outside:
            yield f"threads may run on {' '.join(outside)}, outside the container's {cpus}"
    elif any(one != cpus for one in threads):
        yield f"threads are tied to {' '.join(threads)} on shared CPUs {cpus}"


def _said(container: Container, plan: int | None, seen: Seen) -> Iterator[str]:
    """What Raddle says: its plan outside, its commands inside."""
    if plan is None:
        yield "the pod has no plan"
    elif plan != container.threads:
        yield f"the plan is {plan} threads, expected {container.threads}"
    status, text = seen.report
    if status:
        yield f"`raddle report` ended with {status}: {text[-600:]}"
    elif (reported := _reported(text)) != {container.threads}:
        yield f"`raddle report` says {sorted(reported)} threads, expected {container.threads}"
    if seen.live is not None:
        status, text = seen.live
        if status or not all(one["withRuntime"] for one in json.loads(text)["live"]["containers"]):
            yield f"`raddle explain --live` ended with {status}: {text[-600:]}"
    if seen.show is None:
        return
    status, text = seen.show
    if status:
        yield f"`raddle show` ended with {status}: {text[-600:]}"
        return
    effective = (json.loads(text).get("effective") or {}).get("intraOp")
    if effective != container.threads:
        yield f"`raddle show` says {effective} threads, expected {container.threads}"


def _reported(text: str) -> set[int]:
    """The thread counts that sessions came to, by the document of `raddle report -o json`."""
    sessions = [session for process in json.loads(text)["processes"] for session in process["sessions"]]
    values = [value for session in sessions for value in session["values"] if value["name"] == "intra"]
    return {int(value["effective"]) for value in values if value["effective"] is not None}


HEADINGS = (
    *("SCENARIO", "NODE", "CONTAINER", "QOS", "CPUS", "QUOTA", "STOCK", "PLANNED", "EFFECTIVE"),
    *("CPU MS", "THROTTLED", "ERRORS", "AS EXPECTED"),
)
LEGEND = """\
CPUS and QUOTA are the kernel's, read inside. STOCK, PLANNED and EFFECTIVE are threads of a session of default options:
without Raddle, by the pod's annotation, and counted inside. CPU MS and THROTTLED are of a load of 200 requests a second
that the application makes itself, without Raddle -> with it: CPU time a request, and the share of the quota's periods
with work in which the container was stopped. ERRORS are lines of the log that tell of one."""


def table(verdicts: Sequence[Verdict]) -> str:
    """A row per container, and beneath it what is wrong."""
    rows = [HEADINGS, *(_row(one) for one in verdicts)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEADINGS))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    found = [lines[0]]
    for line, one in zip(lines[1:], verdicts, strict=True):
        found += [line, *(f"! {text}" for text in one.wrong)]
    return "\n".join(found)


def _row(one: Verdict) -> tuple[str, ...]:
    return (
        one.scenario,
        one.node,
        one.container,
        one.qos or "-",
        one.cpus or "-",
        "none" if one.quota_cpus is None else f"{one.quota_cpus:g}",
        _count(one.stock_threads),
        _count(one.planned),
        _count(one.threads),
        _both(one, "cpu_ms", "{:.1f}"),
        _both(one, "throttled_percent", "{:.0f}%"),
        str(one.errors),
        ("NO" if one.wrong else "yes") + (f" (try {one.tries})" if one.tries > 1 else ""),
    )


def _both(one: Verdict, figure: str, form: str) -> str:
    found = [load.get(figure) for load in (one.stock_load, one.load)]
    if found == [None, None]:
        return "-"
    return " -> ".join("-" if number is None else form.format(number) for number in found)


def _count(number: int | None) -> str:
    return "-" if number is None else str(number)

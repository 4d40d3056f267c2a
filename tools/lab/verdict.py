"""What a guest has told, against the specification: pure functions from the guest's lines to verdicts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lab.plans import Bound
from lab.scenarios import PYTHON, Expected, Limits, Scenario, alike
from raddle.cpus import cpuset
from vm import model

RADDLE, STOCK = "raddle", "stock"
# Of what a session has allocated: the weights, nine tenths of it, lie there. The rest is where the thread that read the
# file happened to run: all on another node in one run of some ten (472 of 4553 pages).
MEMORY_SHARE = 0.85
PAGE_BYTES = 4096
# What the shim's line and mark call them.
SPINNING_IN_LINE = {"never": "spinning off", "bounded": "spinning 50 us", "always": "spinning default"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """One session of a scenario: what was expected, what was seen with Raddle and without, and what is wrong."""

    scenario: str
    shape: str
    session: int
    why: str
    limits: Limits
    planned: int | None
    expected: Expected
    raddle: Mapping[str, Any] | None
    stock: Mapping[str, Any] | None
    wrong: tuple[str, ...]


def judge(scenario: Scenario, bound: Bound, results: Sequence[Mapping[str, Any]]) -> list[Verdict]:
    """One verdict per session of the scenario; `bound` is Raddle's container."""
    by_id = {result.get("id"): result for result in results}
    sides = {RADDLE: by_id.get(f"{scenario.name}-{RADDLE}"), STOCK: by_id.get(f"{alike(scenario)}-{STOCK}")}
    planned = bound.planned().get("intra_op")
    outcome = []
    for number, (limits, expected) in enumerate(scenario.sessions):
        raddle, stock = (_session(sides[side], number) for side in (RADDLE, STOCK))
        wrong = [*_ended(sides[RADDLE], RADDLE), *_ended(sides[STOCK], STOCK)] if number == 0 else []
        if raddle is None:
            wrong.append("Raddle's session did not come")
        else:
            wrong += _differences(limits, expected, raddle)
            facts = _facts(limits, expected, raddle)
            wrong += facts if scenario.program == PYTHON else _native(expected, sides[RADDLE])
        wrong += _decided(limits, expected, bound, planned)
        outcome.append(
            Verdict(
                scenario=scenario.name,
                shape=scenario.shape,
                session=number,
                why=scenario.why,
                limits=limits,
                planned=planned,
                expected=expected,
                raddle=raddle,
                stock=stock,
                wrong=tuple(wrong),
            )
        )
    return outcome


def _session(result: Mapping[str, Any] | None, number: int) -> dict[str, Any] | None:
    """A look with what holds for the whole container; None where the container did not come so far."""
    looks = (result or {}).get("looks", [])
    if result is None or number >= len(looks):
        return None
    whole = {key: result[key] for key in ("affinity_errors", "throttled_periods")}
    return {**looks[number], **whole}


def _ended(result: Mapping[str, Any] | None, side: str) -> Iterator[str]:
    if result is None:
        yield f"{side}: the guest said nothing of it"
    elif "failed" in result:
        yield f"{side}: {result['failed']}"
    elif result["code"]:
        yield f"{side}: ended with {result['code']}: {result['stderr'][-600:]}"


def _differences(limits: Limits, expected: Expected, observed: Mapping[str, Any]) -> Iterator[str]:
    """Between what was expected and what the kernel says of the threads and the memory."""
    if observed["threads"] != expected.threads:
        yield f"{observed['threads']} threads, expected {expected.threads}"
    if tuple(observed["workers"]) != expected.workers:
        yield f"workers on {' '.join(observed['workers'])}, expected {' '.join(expected.workers)}"
    if observed["caller"] != limits.cpuset:
        yield f"the caller is tied to {observed['caller']}, the container has {limits.cpuset}"
    burning = observed["spinning"]
    if burning is not None and (burning > 0) != (expected.spinning == "always"):
        yield f"{burning} workers burn CPU time half a second after the answer, expected spinning {expected.spinning}"
    if observed["affinity_errors"]:
        yield f"{observed['affinity_errors']} lines 'pthread_setaffinity_np failed'"
    yield from _memory(expected, observed["memory"])


def _memory(expected: Expected, pages: Mapping[str, int]) -> Iterator[str]:
    total = sum(pages.values())
    if total * PAGE_BYTES < model.WEIGHTS_MIB * 2**20:
        yield f"{total} pages are less than the model's weights: {dict(pages)}"
    if expected.memory:
        there = sum(pages.get(str(node), 0) for node in expected.memory)
        if there < MEMORY_SHARE * total:
            yield f"{there} of {total} pages on NUMA nodes {expected.memory}: {dict(pages)}"


def _facts(limits: Limits, expected: Expected, observed: Mapping[str, Any]) -> Iterator[str]:
    """What Raddle's readers and commands say in the container, against the kernel."""
    kernel, raddle = observed["kernel"], observed["raddle"]
    if kernel["cpuset"] != limits.cpuset or kernel["quota_cpus"] != limits.quota_cpus:
        yield f"the guest's cgroup is not as it was asked for: {kernel}"
    if raddle is None:
        yield "Raddle is not in the process"
        return
    for name in ("cpuset", "quota_cpus"):
        if raddle[name] != kernel[name]:
            yield f"Raddle reads {name} {raddle[name]}, the kernel says {kernel[name]}"
    yield from _spinning(expected, "mark", raddle["marks"])
    yield from _shown(limits, expected, raddle["show"])


def _shown(limits: Limits, expected: Expected, shown: Any) -> Iterator[str]:
    if not isinstance(shown, dict):
        yield f"`python -m raddle` failed: {shown}"
        return
    if shown["budget"]["cpus"] != limits.cpuset:
        yield f"`python -m raddle` says CPUs {shown['budget']['cpus']}"
    if shown["effective"]["intraOp"] != expected.threads:
        yield f"`python -m raddle` says {shown['effective']['intraOp']} threads"


def _native(expected: Expected, result: Mapping[str, Any] | None) -> Iterator[str]:
    """A C program can't be asked, but the library writes a line."""
    stderr = (result or {}).get("stderr", "")
    return _spinning(expected, "line", [line for line in stderr.splitlines() if "raddle: onnxruntime" in line])


def _spinning(expected: Expected, what: str, lines: Sequence[str]) -> Iterator[str]:
    if not lines:
        yield f"the shim left no {what}"
    elif not all(SPINNING_IN_LINE[expected.spinning] in line for line in lines):
        yield f"the shim's {what} is {lines}, expected spinning {expected.spinning}"


def _decided(limits: Limits, expected: Expected, bound: Bound, planned: int | None) -> Iterator[str]:
    """What was planned at binding, and what the same function says once the container's CPUs are known."""
    if planned is None or planned < expected.threads:
        yield f"{planned} threads were planned, expected are {expected.threads}"
        return
    within = bound.within(limits.cpuset, limits.quota_cpus)
    if within.intra_op is None or min(planned, within.intra_op) != expected.threads:
        yield f"the planner says {within.intra_op} threads here, expected {expected.threads}"
    workers = tuple(cpuset.format_list(group) for group in within.affinity_groups)
    if workers and within.intra_op == expected.threads and workers != expected.workers:
        yield f"the planner puts workers on {' '.join(workers)}, expected {' '.join(expected.workers)}"


def marked(observed: Mapping[str, Any]) -> list[str]:
    """What the marks of a look say of spinning, in the plan's words."""
    marks = (observed.get("raddle") or {}).get("marks", ())
    return [word for word, text in SPINNING_IN_LINE.items() if any(text in mark for mark in marks)]


def formatted(places: Sequence[str]) -> str:
    """Workers' places in few characters: "8-15 x3"."""
    counted: dict[str, int] = {}
    for place in places:
        counted[place] = counted.get(place, 0) + 1
    return " ".join(place if times == 1 else f"{place} x{times}" for place, times in counted.items()) or "-"

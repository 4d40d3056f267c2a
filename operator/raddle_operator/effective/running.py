"""From reports, one after the other, to the summary that a node's agent writes: it changes only when something has.

Threads come and go with the load, so three things keep a summary still. A finding is told once two reports in a row
have had it, and until three in a row have not. Its sentence stays while the numbers in it are about the same. And so
does the load that was observed.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from typing import Final, NamedTuple

from raddle_operator.effective.load import Loads
from raddle_operator.objects.load import ObservedLoad
from raddle_operator.objects.nodereport import Cause, Container, NodeReport
from raddle_operator.objects.running import BY_HARM, MOST_WORST, Counts, Drift, PolicyKey, Running, by_harm, policy_key

_TOLD_AFTER: Final = 2
_FORGOTTEN_AFTER: Final = 3
# A number that is this many times another, and this much more, is not about the same.
_ANOTHER_TIMES: Final = 1.5
_ANOTHER: Final = 2
_PROCESS: Final = re.compile(r"\bprocess \d+")
_NUMBER: Final = re.compile(r"\d+(?:\.\d+)?")


class _Observation(NamedTuple):
    """A finding: in how many reports it was since it came, how many ago that was, and what is said of it."""

    reports: int
    missing: int
    detail: str


class _Key(NamedTuple):
    uid: str
    container: str
    cause: Cause


class Summary:
    """What is remembered from report to report: the containers' load, and of each of their findings one line."""

    def __init__(self) -> None:
        self._seen: Mapping[_Key, _Observation] = {}
        self._loads = Loads()
        self._taken = 0

    def take(self, report: NodeReport) -> Running | None:
        """Takes the next report, with its findings; returns what the node says of it. Never raises.

        None while too few were taken to tell of any finding: an agent that begins again does not say that all is well.
        """
        self._taken += 1
        self._seen = _remembered(report, self._seen)
        told = {key: seen.detail for key, seen in self._seen.items() if seen.reports >= _TOLD_AFTER}
        loads = self._loads.take(report)
        return _summed(report, told, loads) if self._taken >= _TOLD_AFTER else None


def _remembered(report: NodeReport, before: Mapping[_Key, _Observation]) -> dict[_Key, _Observation]:
    result: dict[_Key, _Observation] = {}
    for one in report.containers:
        now = {finding.cause: finding.detail for finding in reversed(one.findings)}
        for cause in Cause:
            key = _Key(one.uid, one.name, cause)
            old = before.get(key)
            if cause in now:
                detail = old.detail if old is not None and _about_same(old.detail, now[cause]) else now[cause]
                result[key] = _Observation(min(_TOLD_AFTER, (old.reports if old else 0) + 1), 0, detail)
            # One that has not been told yet is forgotten at once.
            elif old is not None and old.reports >= _TOLD_AFTER and old.missing + 1 < _FORGOTTEN_AFTER:
                result[key] = old._replace(missing=old.missing + 1)
    return result


def _about_same(one: str, other: str) -> bool:
    # Which of a container's equal processes is the worst changes from look to look.
    one, other = (_PROCESS.sub("process", text) for text in (one, other))
    # Not with a mark in the place of a number: a thread may have any mark in its name.
    if _NUMBER.split(one) != _NUMBER.split(other):
        return False
    pairs = zip(map(float, _NUMBER.findall(one)), map(float, _NUMBER.findall(other)), strict=True)
    return all(max(pair) <= _ANOTHER_TIMES * min(pair) + _ANOTHER for pair in pairs)


def _summed(report: NodeReport, told: Mapping[_Key, str], loads: Mapping[PolicyKey, ObservedLoad]) -> Running:
    containers: Counter[PolicyKey] = Counter()
    drifted: Counter[PolicyKey] = Counter()
    causes: dict[PolicyKey, Counter[Cause]] = {}
    worst: list[Drift] = []
    by_container: dict[tuple[str, str], list[_Key]] = {}
    for key in told:
        by_container.setdefault((key.uid, key.container), []).append(key)
    for one in report.containers:
        policy = policy_key(one.policy, one.namespace)
        if policy is None:
            continue
        containers[policy] += 1
        result = by_container.get((one.uid, one.name), [])
        causes.setdefault(policy, Counter()).update(key.cause for key in result)
        drifted[policy] += bool(result)
        # One line for each container: the others are in the report.
        if result:
            key = min(result, key=lambda key: BY_HARM.index(key.cause))
            worst.append(_drift(one, policy, key, told[key]))
    counts = {
        key: Counts(
            containers=containers[key],
            drifted=drifted[key],
            causes=tuple((cause, causes[key][cause]) for cause in BY_HARM if causes[key][cause]),
            load=loads.get(key),
        )
        for key in containers
    }
    return Running(policies=counts, worst=tuple(sorted(worst, key=by_harm)[:MOST_WORST]))


def _drift(one: Container, policy: PolicyKey, key: _Key, detail: str) -> Drift:
    return Drift(
        policy=policy, namespace=one.namespace, pod=one.pod, container=one.name, cause=key.cause, detail=detail
    )

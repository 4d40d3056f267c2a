"""What all agents say runs, by policy: each node's summary is added when it comes and taken away when it goes."""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from raddle_operator.kube import Object
from raddle_operator.objects import load, reading
from raddle_operator.objects.load import ObservedLoad
from raddle_operator.objects.nodereport import Cause
from raddle_operator.objects.reading import SpecError
from raddle_operator.objects.running import BY_HARM, Counts, Drift, PolicyKey, Running, by_harm, from_document

T = TypeVar("T")

WORST_SHOWN: Final = 5


@dataclass(slots=True, kw_only=True)
class Total:
    """One policy's containers on all nodes, as objects.running.Counts has them of one. It changes with them."""

    containers: int = 0
    drifted: int = 0
    causes: Counter[Cause] = field(default_factory=Counter)
    worst: tuple[tuple[str, Drift], ...] = ()
    """Some, each with its node, by harm."""
    load: ObservedLoad | None = None
    """Of the median container; None where no agent has observed one."""

    @property
    def cause(self) -> Cause | None:
        """The one that costs most as a rule; None where all is as planned."""
        return next((cause for cause in BY_HARM if self.causes[cause] > 0), None)


class Reader:
    """Reads summaries, one object for equal counts: nodes of one kind have the same of most policies."""

    def __init__(self) -> None:
        self._counts: dict[Counts, Counts] = {}
        self._keys: dict[PolicyKey, PolicyKey] = {}

    def read(self, obj: Object) -> Running | None:
        """The summary in a NodeCPUTopology; None where its agent doesn't look, and for what is none."""
        try:
            document = (obj.get("status") or {}).get("running")
            if document is None:
                return None
            result = from_document(reading.as_object(document, "running"))
        except SpecError:
            return None
        shared = {
            self._keys.setdefault(key, key): self._counts.setdefault(counts, counts)
            for key, counts in result.policies.items()
        }
        return Running(policies=shared, worst=result.worst)

    def forget(self) -> None:
        """Drops the pool (what is in use stays); called now and then."""
        self._counts.clear()
        self._keys.clear()


class RunningTotals:
    """The totals of all policies. A change of one node costs what that node says, however many there are."""

    def __init__(self) -> None:
        self._totals: dict[PolicyKey, Total] = {}
        self._worst: defaultdict[PolicyKey, dict[str, tuple[Drift, ...]]] = defaultdict(dict)
        self._loads: defaultdict[PolicyKey, dict[str, ObservedLoad]] = defaultdict(dict)
        self._looking = 0

    @property
    def is_known(self) -> bool:
        """Whether any agent looks."""
        return self._looking > 0

    def put(self, node: str, old: Running | None, new: Running | None) -> set[PolicyKey]:
        """Takes what a node says now in place of what it said; returns the policies of which that changes anything."""
        self._looking += (new is not None) - (old is not None)
        before, after = old or Running(), new or Running()
        keys = before.policies.keys() | after.policies.keys()
        changed = {key for key in keys if before.policies.get(key) != after.policies.get(key)}
        for key in changed:
            self._add(key, before.policies.get(key), -1)
            self._add(key, after.policies.get(key), 1)
            _put(self._loads, key, node, after.policies[key].load if key in after.policies else None)
        if before.worst != after.worst:
            was, now = _by_policy(before.worst), _by_policy(after.worst)
            for key in was.keys() | now.keys():
                if was.get(key) != now.get(key):
                    changed.add(key)
                    _put(self._worst, key, node, now.get(key))
        return changed

    def _add(self, key: PolicyKey, counts: Counts | None, sign: int) -> None:
        if counts is None:
            return
        total = self._totals.setdefault(key, Total())
        total.containers += sign * counts.containers
        total.drifted += sign * counts.drifted
        for cause, containers in counts.causes:
            total.causes[cause] += sign * containers
        if not (total.containers or total.drifted or any(total.causes.values())):
            del self._totals[key]

    def of(self, key: PolicyKey) -> Total | None:
        """A policy's total; None where no agent looks, so that nothing is known of any."""
        if not self.is_known:
            return None
        total = self._totals.get(key, Total())
        named = ((node, one) for node, item in self._worst.get(key, {}).items() for one in item)
        worst = heapq.nsmallest(WORST_SHOWN, named, key=lambda pair: (*by_harm(pair[1]), pair[0]))
        return Total(
            containers=total.containers,
            drifted=total.drifted,
            causes=Counter(+total.causes),
            worst=tuple(worst),
            load=load.middle(self._loads.get(key, {}).values()),
        )

    def items(self) -> Iterator[tuple[PolicyKey, Total]]:
        """Yields the policies that have containers, without the worst of these and their load."""
        yield from self._totals.items()


def _put(known: defaultdict[PolicyKey, dict[str, T]], key: PolicyKey, node: str, value: T | None) -> None:
    """Takes what a node says of a policy, None for nothing."""
    if value is not None:
        known[key][node] = value
        return
    known[key].pop(node, None)
    if not known[key]:
        del known[key]


def _by_policy(worst: tuple[Drift, ...]) -> Mapping[PolicyKey, tuple[Drift, ...]]:
    result: defaultdict[PolicyKey, tuple[Drift, ...]] = defaultdict(tuple)
    for one in worst:
        result[one.policy] += (one,)
    return result


def document(total: Total) -> dict[str, Any]:
    """The total as a policy's status has it."""
    return {
        "containers": total.containers,
        "drifted": total.drifted,
        "worst": [
            {
                "namespace": one.namespace,
                "pod": one.pod,
                "container": one.container,
                "node": node,
                "cause": str(one.cause),
                "detail": one.detail,
            }
            for node, one in total.worst
        ],
    }

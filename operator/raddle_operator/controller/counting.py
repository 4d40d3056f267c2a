"""The pods' counts, namespace by namespace, and why pods without values have none.

Only marked namespaces are counted, all of them in one pass over the pods. A verdict on a kind of pod stays in force
while it is examined again, so that a status does not waver.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from raddle_operator.controller.facts import NamespaceFacts, PodFacts
from raddle_operator.controller.status import Case, NamespaceTally, Tally, tally
from raddle_operator.injection.matching import Policies
from raddle_operator.kube.informer import Key
from raddle_operator.objects.reasons import SkipReason
from raddle_operator.objects.running import PolicyKey

_EMPTY = NamespaceTally()


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """What a count found: policies whose numbers are others now, and pods to examine."""

    policies: frozenset[PolicyKey] = frozenset()
    examine: tuple[Key, ...] = ()


class PodCounts:
    """The tallies of all namespaces that have one."""

    def __init__(self, unlabelled: str) -> None:
        """``unlabelled``: what a namespace without the inject label counts as."""
        self.tallies: dict[str, NamespaceTally] = {}
        self._unlabelled = unlabelled
        self._marked: set[str] = set()
        self._verdicts: dict[Case, SkipReason] = {}
        self._invalid: set[Case] = set()

    @property
    def is_current(self) -> bool:
        """Whether nothing is marked."""
        return not self._marked

    def mark(self, namespaces: Iterable[str]) -> None:
        """Counts these namespaces at the next chance."""
        self._marked.update(namespaces)

    def count(
        self,
        namespaces: Mapping[str, NamespaceFacts],
        pods: Mapping[Key, PodFacts],
        policies: Policies,
        changed_s: Mapping[PolicyKey, int],
    ) -> Changes:
        """Counts the marked namespaces. ``namespaces`` are those of them in which pods can be opted in."""
        marked, self._marked = self._marked, set()
        grouped: defaultdict[str, list[tuple[str, PodFacts]]] = defaultdict(list)
        for (namespace, name), pod in pods.items():
            if namespace in marked:
                grouped[namespace].append((name, pod))
        changed: set[PolicyKey] = set()
        examine: list[Key] = []
        for namespace in marked:
            facts, new = namespaces.get(namespace), _EMPTY
            if facts is not None:
                result = grouped[namespace]
                new = tally(namespace, facts, result, policies, changed_s, self._verdicts, unlabelled=self._unlabelled)
            old = self.tallies.pop(namespace, _EMPTY)
            if new != _EMPTY:
                self.tallies[namespace] = new
            keys = old.policies.keys() | new.policies.keys()
            changed.update(key for key in keys if old.policies.get(key) != new.policies.get(key))
            wanted = (case for case in new.valueless if case in self._invalid or case not in self._verdicts)
            examine += [(namespace, new.valueless[case]) for case in wanted]
        return Changes(policies=frozenset(changed), examine=tuple(examine))

    def of(self, namespace: str) -> NamespaceTally:
        """One namespace's tally, empty where nothing is counted."""
        return self.tallies.get(namespace, _EMPTY)

    def total(self, key: PolicyKey, forbidden: Collection[str]) -> tuple[Tally, list[str]]:
        """A policy's counts over all namespaces, and in which of the ``forbidden`` ones it has pods."""
        total, there = Tally(), []
        for namespace in (key[1],) if key[1] else sorted(self.tallies):
            result = self.of(namespace).policies.get(key)
            if result is not None:
                total += result
                if result.matched and namespace in forbidden:
                    there.append(namespace)
        return total, there

    def record(self, case: Case, reason: SkipReason) -> None:
        """Takes a verdict on one kind of pod."""
        self._invalid.discard(case)
        if self._verdicts.get(case) is not reason:
            self._verdicts[case] = reason
            self.mark((case[0],))

    def invalidate(self) -> None:
        """Has every verdict examined again (it rests on more than its key says); forgets those without such pods."""
        needed = {case for item in self.tallies.values() for case in item.valueless}
        self._verdicts = {case: reason for case, reason in self._verdicts.items() if case in needed}
        self._invalid = set(self._verdicts)

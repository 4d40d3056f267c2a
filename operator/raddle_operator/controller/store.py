"""Objects that come from two sources: a stream of changes, and now and then a full list that corrects it.

The newer resource version wins, whichever of the two brings it, so a list that was read before a change arrived does
not undo that change, and a deletion that the stream missed is found by the list. (Resource versions of one kind are
comparable integers: Kubernetes says so since 1.35, and etcd has always made them so.)
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")


class VersionedStore(Mapping[K, T], Generic[K, T]):
    """Key to value; ``on_change(key, old, new)`` is called for each difference, None for what is not there."""

    def __init__(self, on_change: Callable[[K, T | None, T | None], None]) -> None:
        self._values: dict[K, tuple[int, T]] = {}
        self._deleted: dict[K, int] = {}
        self._on_change = on_change

    def __getitem__(self, key: K) -> T:
        return self._values[key][1]

    def __iter__(self) -> Iterator[K]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def put_newer(self, key: K, version: int, value: T | None) -> None:
        """Takes one change (None: deleted) unless something newer is known of that key."""
        known, old = self._values.get(key, (self._deleted.get(key, -1), None))
        if version <= known:
            return
        if value is None:
            self._values.pop(key, None)
            self._deleted[key] = version
        else:
            self._values[key] = (version, value)
            self._deleted.pop(key, None)
        if old != value:
            self._on_change(key, old, value)

    def retain(self, keys: AbstractSet[K], version: int) -> None:
        """Takes the keys of a full list that is true at ``version``: what it lacks and is not newer is gone."""
        for key, (known, _) in list(self._values.items()):
            if key not in keys and known <= version:
                self.put_newer(key, max(version, known + 1), None)
        # What was deleted up to then can't be in a later list.
        self._deleted = {key: deleted for key, deleted in self._deleted.items() if deleted > version}

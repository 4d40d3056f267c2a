"""Reads JSON objects from elsewhere: every field's type and bounds are checked, and an error names the field.

The machine's document and the NodeCPUTopology object hold the same facts in two forms; both are read with this.
"""

from __future__ import annotations

from typing import Any, Callable, Iterable, List, Mapping, Optional, Tuple, TypeVar

from raddle.cpus import cpuset

# The bounds of crds/nodecputopologies.yaml: a document from elsewhere must not cost more than one from there.
MAX_TEXT = 256
MAX_CPUS_TEXT = 8192
MAX_ITEMS = 8192
MAX_OPTIONS = 32
MAX_NUMBER = 2**63 - 1

_Fact = TypeVar("_Fact")
_NUMBER = "an integer that is not negative"
_CPUS = "a CPU list such as 0-3,8"


class DocumentError(ValueError):
    """A document that is no machine: `path` of the field, the `value` there (shortened), what is `allowed`."""

    def __init__(self, path: str, value: object, allowed: str) -> None:
        self.path = path
        self.value = repr(value)[:80]
        self.allowed = allowed
        super().__init__(f"{path}: {self.value} is not {allowed}")


class Fields:
    """One JSON object at `path`, its fields read with their type checked; absent and null are the default.

    Every method raises DocumentError, naming the field, for a value of another type or beyond the bounds.
    """

    __slots__ = ("_object", "path")

    def __init__(self, value: Any, path: str = "") -> None:
        if not isinstance(value, Mapping):
            raise DocumentError(path or "document", value, "an object")
        self._object = value
        self.path = path

    def at(self, key: str) -> str:
        """The path of a field of this object."""
        return self.path + "." + key if self.path else key

    def _get(self, key: str, default: _Fact, check: Callable[[Any], bool], allowed: str) -> _Fact:
        value = self._object.get(key)
        if value is None:
            return default
        if not check(value):
            raise DocumentError(self.at(key), value, allowed)
        return value  # type: ignore[no-any-return]

    def has(self, key: str) -> bool:
        """Whether the field is there and not null."""
        return self._object.get(key) is not None

    def text(self, key: str) -> str:
        """A text; "" where it is absent."""
        allowed = f"a text of at most {MAX_TEXT} characters"
        return self._get(key, "", lambda value: isinstance(value, str) and len(value) <= MAX_TEXT, allowed)

    def word(self, key: str, allowed: Tuple[str, ...]) -> str:
        """One of the allowed words; the first of them where it is absent or empty."""
        word = self.text(key) or allowed[0]
        if word not in allowed:
            raise DocumentError(self.at(key), word, "one of " + ", ".join(filter(None, allowed)))
        return word

    def number(self, key: str, default: Optional[int] = None) -> Optional[int]:
        """An integer from 0 to MAX_NUMBER."""
        return self._get(key, default, _is_number, _NUMBER)

    def id(self, key: str) -> int:
        """An integer that has to be there."""
        value = self.number(key)
        if value is None:
            raise DocumentError(self.at(key), None, _NUMBER)
        return value

    def numbers(self, key: str) -> Tuple[int, ...]:
        """A list of integers; () where it is absent."""
        result = self.items(key)
        for index, value in enumerate(result):
            if not _is_number(value):
                raise DocumentError(f"{self.at(key)}[{index}]", value, _NUMBER)
        return tuple(result)

    def cpus(self, key: str) -> int:
        """A set of CPUs; the empty set where it is absent."""
        return parse_cpus(self._object.get(key) or "", self.at(key))

    def items(self, key: str) -> List[Any]:
        """A list of anything; [] where it is absent."""
        empty: List[Any] = []
        allowed = f"a list of at most {MAX_ITEMS}"
        return self._get(key, empty, lambda value: isinstance(value, list) and len(value) <= MAX_ITEMS, allowed)

    def texts(self, key: str) -> "List[Tuple[str, Any]]":
        """(path, value) of each item of a list, the values unchecked."""
        return [(f"{self.at(key)}[{index}]", item) for index, item in enumerate(self.items(key))]

    def child(self, key: str) -> "Fields":
        """The object in a field; an empty one where it is absent."""
        value = self._object.get(key)
        return Fields({} if value is None else value, self.at(key))

    def children(self, key: str) -> "List[Fields]":
        """The objects in a list."""
        return [Fields(item, path) for path, item in self.texts(key)]

    def names(self, most: int = MAX_OPTIONS) -> List[str]:
        """The keys of a map, sorted; at most `most`."""
        if len(self._object) > most or not all(isinstance(key, str) and len(key) <= MAX_TEXT for key in self._object):
            raise DocumentError(self.path, self._object, f"a map of at most {most} texts")
        return sorted(self._object)


class CPUGroupReader:
    """Reads the groups of one machine: every CPU in them is online, and in one group of a kind only."""

    __slots__ = ("_online",)

    def __init__(self, online: int) -> None:
        self._online = online

    def disjoint(self, sets: "Iterable[Tuple[str, int]]", empty: bool = False) -> List[int]:
        """The sets, given with their paths. Raises DocumentError for one that is empty unless that is allowed."""
        rest = self._online
        result = []
        for path, cpus in sets:
            if not cpus and not empty:
                raise DocumentError(path, "", "a CPU list with at least one CPU")
            if cpus & ~self._online:
                raise DocumentError(path, cpuset.format_list(cpus & ~self._online), "online")
            if cpus & ~rest:
                raise DocumentError(path, cpuset.format_list(cpus & ~rest), "in this group only")
            rest &= ~cpus
            result.append(cpus)
        return result

    def lists(self, fields: Fields, key: str) -> List[int]:
        """The sets of a field that is a list of CPU lists."""
        return self.disjoint((path, parse_cpus(text, path)) for path, text in fields.texts(key))

    def objects(self, objects: List[Fields]) -> List[Tuple[Fields, int]]:
        """Each object with the set in its field `cpus`, which may be empty."""
        sets = self.disjoint([(one.at("cpus"), one.cpus("cpus")) for one in objects], empty=True)
        return list(zip(objects, sets))


def parse_cpus(value: Any, path: str) -> int:
    """The set that a value at this path names. Raises DocumentError for what is not a CPU list of the kernel's form."""
    if not isinstance(value, str) or len(value) > MAX_CPUS_TEXT:
        raise DocumentError(path, value, _CPUS)
    try:
        return cpuset.parse_list(value)
    except ValueError:
        raise DocumentError(path, value, _CPUS) from None


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_NUMBER

"""The entries of a container's environment as Raddle writes them, and how it extends lists in one text."""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from raddle import delivery
from raddle_operator.objects.pods import (
    JAVA_OPTIONS,
    NODE_OPTIONS,
    ORIGINAL,
    PRELOAD,
    PYTHON_PATH,
    Container,
    EnvEntry,
)
from raddle_operator.objects.reasons import Skip, SkipReason

Entry = Mapping[str, Any]

USER_BASE: Final = "PYTHONUSERBASE"


class Extension(NamedTuple):
    """What Raddle writes between its part of a variable and the rest, what readers take for such, and the parts."""

    separator: str
    separators: re.Pattern[str]
    parts: tuple[str, ...]


EXTENSIONS: Final[Mapping[str, Extension]] = {
    PYTHON_PATH: Extension(":", re.compile("(:)"), (delivery.PYTHON_PATH,)),
    # Pods of Raddle 0.1 have it.
    NODE_OPTIONS: Extension(" ", re.compile("( )"), ("--require /opt/raddle/node/raddle.cjs",)),
    # ld.so(8): spaces or colons.
    PRELOAD: Extension(":", re.compile("([ :])"), tuple(map(delivery.native_library, delivery.ARCHITECTURES))),
}


def literal(name: str, value: str) -> Entry:
    """A variable whose value is in the pod spec."""
    return {"name": name, "value": value}


class Edits(NamedTuple):
    """Changes of a list of entries: `replaced` puts none or more in the place of one, `appended` follow the last."""

    replaced: Mapping[int, Sequence[Entry]] = MappingProxyType({})
    appended: Sequence[Entry] = ()


def checksum(text: str) -> str:
    """What RADDLE_LITERALS says of a list that Raddle added whole."""
    return f"{zlib.crc32(text.encode(errors='surrogatepass')):08x}"


def extend(container: Container, name: str, part: str, image_env: Mapping[str, str]) -> Edits | Skip | None:
    """The changes that put `part` in front of a variable, for a container without ours; or why they can't be.

    None where neither the pod spec nor the policy's imageEnv says what the variable is.
    """
    separator = EXTENSIONS[name].separator
    entry = container.effective(name)
    if entry is None:
        stated = image_env.get(name)
        if stated is None:
            return None
        # Kubernetes would expand what it reads here, and the image's value is meant as it is.
        return Edits(appended=(literal(name, joined(part, separator, stated.replace("$", "$$"))),))
    if entry.value is not None:
        raw = container.entries[entry.place]
        return Edits({entry.place: ({**raw, "value": joined(part, separator, entry.value)},)})
    problem = not_renamed(container, entry)
    if problem is not None:
        return problem
    return renamed(container, entry, joined(part, separator, by_original(name)))


def joined(part: str, separator: str, rest: str) -> str:
    """Both texts, or the first alone where the other is empty."""
    return part + separator + rest if rest else part


def not_renamed(container: Container, entry: EnvEntry) -> Skip | None:
    """Why a reference can't be kept under another name, None where it can.

    An optional one may resolve to nothing, and $(X) of a variable that is not there stays as it is written.
    """
    if entry.optional:
        return unknown(f"{entry.name} comes from an optional reference, which may be absent")
    if container.effective(ORIGINAL + entry.name) is not None:
        return unknown(f"{entry.name} comes from a reference, and {ORIGINAL}{entry.name} is taken")
    return None


def renamed(container: Container, entry: EnvEntry, value: str) -> Edits:
    """The changes that keep a reference as ORIGINAL_<name>, for a `value` that contains $(ORIGINAL_<name>)."""
    raw = container.entries[entry.place]
    # Kubernetes expands $(X) only from earlier entries, so the renamed one comes first.
    return Edits({entry.place: ({**raw, "name": ORIGINAL + entry.name}, literal(entry.name, value))})


def by_original(name: str) -> str:
    """What refers to the entry that was renamed."""
    return f"$({ORIGINAL}{name})"


def java_options(container: Container) -> tuple[dict[str, str | None], EnvEntry | None]:
    """What stands for Java's options where they come from a reference, and that entry; ({}, None) elsewhere."""
    entry = container.effective(JAVA_OPTIONS)
    if entry is None or entry.value is not None or not_renamed(container, entry) is not None:
        return {}, None
    return {JAVA_OPTIONS: by_original(JAVA_OPTIONS)}, entry


def unknown(detail: str) -> Skip:
    """The reason why a variable that Raddle can't see is left alone."""
    return Skip(reason=SkipReason.IMAGE_ENV_UNKNOWN, detail=detail)

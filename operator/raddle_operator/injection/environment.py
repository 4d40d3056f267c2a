"""The environment of one container: what Raddle takes back, and how it writes what it sets.

An entry is ours if its fieldRef names our annotation, or if RADDLE_LITERALS lists exactly this name and value. That
list stands in the environment itself, so that it goes wherever its entries are copied; an entry that somebody has
changed since is no longer the one that it lists, and is the user's. Of a variable that is a list, our part is ours
wherever it stands, since other webhooks extend the same variables before and behind it; the rest is the user's, unless
RADDLE_LITERALS has the checksum of the whole text. `without_ours` gives the container as if Raddle had never seen it;
everything is decided on that, so that a second call, and a copied pod, come to the same end. The user's entries keep
their order.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any, Final, NamedTuple

from raddle import delivery, env
from raddle_operator.injection import families
from raddle_operator.objects.pods import (
    EXTENDED,
    JAVA_OPTIONS,
    NODE_OPTIONS,
    ORIGINAL,
    PRELOAD,
    PYTHON_PATH,
    Container,
    EnvEntry,
    pod_from_object,
    with_env,
)
from raddle_operator.objects.reading import SpecError
from raddle_operator.objects.reasons import Skip, SkipReason

Entry = Mapping[str, Any]

USER_BASE: Final = "PYTHONUSERBASE"


class _Extension(NamedTuple):
    """What Raddle writes between its part of a variable and the rest, what readers take for such, and the parts."""

    separator: str
    separators: re.Pattern[str]
    parts: tuple[str, ...]


_EXTENSIONS: Final[Mapping[str, _Extension]] = {
    PYTHON_PATH: _Extension(":", re.compile("(:)"), (delivery.PYTHON_PATH,)),
    # Pods of Raddle 0.1 have it.
    NODE_OPTIONS: _Extension(" ", re.compile("( )"), ("--require /opt/raddle/node/raddle.cjs",)),
    # ld.so(8): spaces or colons.
    PRELOAD: _Extension(":", re.compile("([ :])"), tuple(map(delivery.native_library, delivery.ARCHITECTURES))),
}
# What Raddle writes is far below; a longer one is forged.
_MAX_LISTING: Final = 16384
_JAVA_SEPARATORS: Final = re.compile(r"(\s)")


def reference(name: str, annotation: str) -> Entry:
    """A variable whose value is one of the pod's own annotations, as the API server would write it."""
    source = {"fieldRef": {"apiVersion": "v1", "fieldPath": f"metadata.annotations['{annotation}']"}}
    return {"name": name, "valueFrom": source}


def literal(name: str, value: str) -> Entry:
    """A variable whose value is in the pod spec."""
    return {"name": name, "value": value}


@dataclass(frozen=True, slots=True)
class Edits:
    """Changes of a list of entries: `replaced` puts none or more in the place of one, `appended` follow the last."""

    replaced: Mapping[int, Sequence[Entry]] = field(default_factory=dict)
    appended: Sequence[Entry] = ()

    def apply(self, entries: Sequence[Entry]) -> list[Entry]:
        """The list with the changes."""
        changed: list[Entry] = []
        for place, entry in enumerate(entries):
            changed.extend(self.replaced.get(place, (entry,)))
        changed.extend(self.appended)
        return changed


# --- what is ours ---------------------------------------------------------------------------------------------------


class _Listed(NamedTuple):
    """What RADDLE_LITERALS says: `values` that Raddle set, and `checksums` of lists that it added whole, by name.

    The checksum is "" for a variable that stood there empty before.
    """

    values: Mapping[str, str]
    checksums: Mapping[str, str]


def listing(
    container: Container, literals: Mapping[str, str], completed: Mapping[str, str], edits: Iterable[Edits]
) -> list[Entry]:
    """The entry that says which of the others are Raddle's, for a container `without_ours`; [] where none has to.

    It has the literals, of Java's options, which are added to others, the last word; what the shim completes where that
    is absent; and a checksum of each list that the container has only from Raddle: as long as it agrees, nobody has
    added anything.
    """
    found = [f"{name}={value.rpartition(' ')[2]}" for name, value in (*literals.items(), *completed.items())]
    before = {name: container.effective(name) for name in literals if name not in EXTENDED} if container.env else {}
    found.extend(f"{name}#" for name, entry in before.items() if entry is not None and entry.value == "")
    added = [entry for edit in edits for entry in edit.appended if entry["name"] in EXTENDED]
    if JAVA_OPTIONS in literals and container.effective(JAVA_OPTIONS) is None:
        added.append(literal(JAVA_OPTIONS, literals[JAVA_OPTIONS]))
    found.extend(f"{entry['name']}#{_checksum(entry['value'])}" for entry in added)
    return [literal(env.LITERALS, ";".join(found))] if found else []


def _checksum(text: str) -> str:
    return f"{zlib.crc32(text.encode(errors='surrogatepass')):08x}"


def without_ours(container: Container) -> Container:
    """The container as it would be had Raddle never changed its environment; itself where it has not."""
    if not container.env:
        return container
    listed, java = _listed(container), container.effective(JAVA_OPTIONS)
    # What is left of each entry that has a part of ours: None where it is ours altogether.
    rests = {
        entry.place: rest
        for entry in container.env
        for is_ours, rest in (_part_of_ours(entry, listed, java),)
        if is_ours
    }
    if not rests:
        return container
    renamed: dict[str, int] = {}
    kept: list[Entry] = []
    for place, raw in enumerate(container.raw["env"]):
        name = raw["name"]
        if place not in rests:
            if name.startswith(ORIGINAL) and raw.get("valueFrom") is not None:
                renamed[name[len(ORIGINAL) :]] = len(kept)
            kept.append(raw)
            continue
        rest = rests[place]
        if rest is None:
            continue
        if rest == _by_original(name) and name in renamed:
            kept[renamed[name]] = {**kept[renamed[name]], "name": name}
        else:
            # The user's own value, which was extended where it stood, and what others have added to ours.
            kept.append({**raw, "value": rest})
    return with_env(container, kept)


def literals_of(pod: Any) -> dict[str, dict[str, str]]:
    """The texts that Raddle has set or extended in a pod, given as JSON: container to name to value as it stands.

    What the shim completes at a process's start is there too, where the pod spec does not set it.

    Never raises: {} for what is no pod.
    """
    try:
        containers = pod_from_object(pod).all_containers
    except SpecError:
        return {}
    return {container.name: _own_literals(container) for container in containers}


def _own_literals(container: Container) -> dict[str, str]:
    listed, java = _listed(container), container.effective(JAVA_OPTIONS)
    present = {entry.name for entry in container.env}
    absent = families.VARIABLES - present
    found: dict[str, str | None] = {name: value for name, value in listed.values.items() if name in absent}
    found |= {entry.name: entry.value for entry in container.env if _part_of_ours(entry, listed, java)[0]}
    return {name: value for name, value in found.items() if value is not None and name != env.LITERALS}


def _listed(container: Container) -> _Listed:
    entry = container.effective(env.LITERALS)
    if entry is None or not entry.value or len(entry.value) > _MAX_LISTING:
        return _Listed({}, {})
    parts = entry.value.split(";")
    pairs = (part.partition("=") for part in parts)
    sums = (part.partition("#") for part in parts if "=" not in part)
    return _Listed({name: value for name, _, value in pairs if value}, {name: value for name, _, value in sums})


def _part_of_ours(entry: EnvEntry, listed: _Listed, java: EnvEntry | None) -> tuple[bool, str | None]:
    """Whether an entry is Raddle's, or has a part that is; and what it is without, None where nothing is left.

    ``java`` is the effective entry of Java's options.
    """
    if entry.ours is not None:
        return True, None
    name, value = entry.name, entry.value
    if value is None:
        return False, None
    if name == JAVA_OPTIONS and entry is not java:
        return False, None  # an option of Java's could be anybody's, and only the last entry of a name is ever extended
    if name in EXTENDED:
        rest = _rest(name, value, listed)
        if rest is not None and listed.checksums.get(name) == _checksum(value):
            return True, None
        return rest is not None, rest
    if listed.values.get(name) == value and listed.checksums.get(name) == "":
        return True, ""
    own = name == env.LITERALS or listed.values.get(name) == value
    own = own or (name == USER_BASE and value == delivery.PYTHON_USER_BASE)
    return own or (name == env.REPORT and value == delivery.REPORT_PATH), None


def _rest(name: str, value: str, listed: _Listed) -> str | None:
    """What is left of such a list without our part; None where it has none."""
    if name == JAVA_OPTIONS:
        option = listed.values.get(name)
        return None if option is None else _without(value, (option,), _JAVA_SEPARATORS)
    extension = _EXTENSIONS[name]
    return _without(value, extension.parts, extension.separators)


def _without(value: str, parts: Sequence[str], separators: re.Pattern[str]) -> str | None:
    """The list without each of the parts that stands in it between separators; None where none does.

    With a part goes the separator after it, at the end the one before it. One pass, since a pod may hold any text: what
    a removal brings together is seen too.
    """
    if not any(part in value for part in parts):
        return None
    wanted = [separators.split(part)[::2] for part in parts]
    pieces = separators.split(value)
    words, after = pieces[::2], pieces[1::2]
    kept: list[str] = []
    behind: list[str] = []
    for word, separator in zip_longest(words, after, fillvalue=""):
        kept.append(word)
        behind.append(separator)
        for part in wanted:
            if kept[-len(part) :] == part:
                del kept[-len(part) :], behind[-len(part) :]
                last_went = True
                break
        else:
            last_went = False
    if len(kept) == len(words):
        return None
    if last_went and behind:
        behind[-1] = ""
    return "".join(word + separator for word, separator in zip(kept, behind, strict=True))


# --- extending ------------------------------------------------------------------------------------------------------


def extend(container: Container, name: str, part: str, image_env: Mapping[str, str]) -> Edits | Skip | None:
    """The changes that put `part` in front of a variable, for a container `without_ours`; or why they can't be.

    None where neither the pod spec nor the policy's imageEnv says what the variable is.
    """
    separator = _EXTENSIONS[name].separator
    entry = container.effective(name)
    if entry is None:
        stated = image_env.get(name)
        if stated is None:
            return None
        # Kubernetes would expand what it reads here, and the image's value is meant as it is.
        return Edits(appended=(literal(name, joined(part, separator, stated.replace("$", "$$"))),))
    if entry.value is not None:
        raw = container.raw["env"][entry.place]
        return Edits({entry.place: ({**raw, "value": joined(part, separator, entry.value)},)})
    problem = not_renamed(container, entry)
    if problem is not None:
        return problem
    return renamed(container, entry, joined(part, separator, _by_original(name)))


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
    raw = container.raw["env"][entry.place]
    # Kubernetes expands $(X) only from earlier entries, so the renamed one comes first.
    return Edits({entry.place: ({**raw, "name": ORIGINAL + entry.name}, literal(entry.name, value))})


def _by_original(name: str) -> str:
    return f"$({ORIGINAL}{name})"


def java_options(container: Container) -> tuple[Mapping[str, str], EnvEntry | None]:
    """What stands for Java's options where they come from a reference, and that entry; ({}, None) elsewhere."""
    entry = container.effective(JAVA_OPTIONS)
    if entry is None or entry.value is not None or not_renamed(container, entry) is not None:
        return {}, None
    return {JAVA_OPTIONS: _by_original(JAVA_OPTIONS)}, entry


def unknown(detail: str) -> Skip:
    """The reason why a variable that Raddle can't see is left alone."""
    return Skip(reason=SkipReason.IMAGE_ENV_UNKNOWN, detail=detail)


# --- writing --------------------------------------------------------------------------------------------------------


def combine(container: Container, entries: Sequence[Entry], edits: Sequence[Edits]) -> Edits:
    """All changes of a container `without_ours`: `entries` are to be set, `edits` are made beside them.

    A variable that the container has already is replaced where it stands; of several the last decides, and the others
    go, but for those of lists, where only the last is extended.
    """
    replaced: dict[int, Sequence[Entry]] = {}
    appended: list[Entry] = []
    if not container.env:
        appended.extend(entries)
        entries = ()
    for entry in entries:
        name = entry["name"]
        places = [present.place for present in container.env if present.name == name]
        if name not in EXTENDED:
            replaced.update(dict.fromkeys(places, ()))
        if places:
            replaced[places[-1]] = (entry,)
        else:
            appended.append(entry)
    for edit in edits:
        replaced.update(edit.replaced)
        appended.extend(edit.appended)
    return Edits(replaced, appended)


def _are_the_same(wanted: Sequence[Entry], present: Sequence[Entry]) -> bool:
    """Whether both lists have the same entries, in any order."""
    if len(wanted) != len(present):
        return False
    if wanted == present:
        return True
    # By text: comparing each with each takes minutes for the longest list that a pod may have.
    texts = {_text(entry) for entry in present}
    return all(_text(entry) in texts for entry in wanted)


def _text(entry: Entry) -> str:
    return json.dumps(entry, sort_keys=True)


def operations(container: Container, clean: Container, edits: Edits) -> list[dict[str, Any]]:
    """JSON-patch operations from the container as it is to `clean` with `edits`; [] where nothing changes.

    A container that Raddle has not touched gets one operation an entry; one that it has gets its list anew.
    """
    pointer = container.pointer + "/env"
    if container is not clean:
        present = container.raw["env"]
        wanted = edits.apply(clean.raw["env"])
        # Ours may stand anywhere: another webhook may have added variables behind them.
        if _are_the_same(wanted, present):
            return []
        return [{"op": "replace", "path": pointer, "value": wanted} if wanted else {"op": "remove", "path": pointer}]
    if not edits.replaced and not edits.appended:
        return []
    if not container.env_count:
        return [{"op": "add", "path": pointer, "value": list(edits.appended)}]
    found: list[dict[str, Any]] = []
    # From the back, so that an insertion moves no place that is still to be changed.
    for place in sorted(edits.replaced, reverse=True):
        if not edits.replaced[place]:
            found.append({"op": "remove", "path": f"{pointer}/{place}"})
            continue
        first, *others = edits.replaced[place]
        found.append({"op": "replace", "path": f"{pointer}/{place}", "value": first})
        found.extend({"op": "add", "path": f"{pointer}/{place + 1}", "value": entry} for entry in others)
    found.extend({"op": "add", "path": pointer + "/-", "value": entry} for entry in edits.appended)
    return found

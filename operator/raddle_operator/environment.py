"""The environment of one container: what Raddle takes back, what it sets, and how Python finds the shim.

An entry is ours if its fieldRef names our annotation. Literals are ours where they name our mount path, which only
Raddle writes. `without_ours` gives the container as if Raddle had never seen it; everything is decided on that, so
that a second call, and a copied pod, come to the same end. The user's entries keep their order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from raddle import delivery, env
from raddle_operator.pods import ORIGINAL_PYTHONPATH, Container, EnvEntry, with_env
from raddle_operator.reasons import Skip, SkipReason

Entry = Mapping[str, Any]

_USER_BASE: Final = "PYTHONUSERBASE"
_PATH: Final = "PYTHONPATH"
_NO_USER_SITE: Final = "PYTHONNOUSERSITE"
_EXTENDED: Final = delivery.PYTHON_PATH + ":"
_RENAMED: Final = f"{delivery.PYTHON_PATH}:$({ORIGINAL_PYTHONPATH})"
_HOW_TO_CHANGE: Final = "set imageEnv.PYTHONPATH in the policy to what the image sets (empty: nothing)"


def reference(name: str, annotation: str) -> Entry:
    """A variable whose value is one of the pod's own annotations, as the API server would write it."""
    source = {"fieldRef": {"apiVersion": "v1", "fieldPath": f"metadata.annotations['{annotation}']"}}
    return {"name": name, "valueFrom": source}


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


def without_ours(container: Container) -> Container:
    """The container as it would be had Raddle never changed its environment; itself where it has not."""
    if not any(_is_ours(entry) for entry in container.env):
        return container
    entries = container.raw["env"]
    ours = {entry.place: entry for entry in container.env if _is_ours(entry)}
    plan_place = min((place for place, entry in ours.items() if entry.name == env.PLAN and entry.ours), default=None)
    renamed = None
    kept: list[Entry] = []
    for place, raw in enumerate(entries):
        entry = ours.get(place)
        if entry is None:
            if raw["name"] == ORIGINAL_PYTHONPATH and raw.get("valueFrom") is not None:
                renamed = len(kept)
            kept.append(raw)
        elif entry.name != _PATH or entry.ours is not None:
            continue
        elif entry.value == _RENAMED and renamed is not None:
            kept[renamed] = {**kept[renamed], "name": _PATH}
        elif plan_place is None or place < plan_place:
            # The user's own value, which was extended where it stood.
            kept.append({**raw, "value": _without_shim(entry.value or "")})
    return with_env(container, kept)


def _is_ours(entry: EnvEntry) -> bool:
    if entry.ours is not None:
        return True
    value = entry.value
    if value is None:
        return False
    if entry.name == _USER_BASE:
        return value == delivery.PYTHON_USER_BASE
    return entry.name == _PATH and (value == delivery.PYTHON_PATH or value.startswith(_EXTENDED))


def _without_shim(value: str) -> str:
    return value[len(_EXTENDED) :] if value.startswith(_EXTENDED) else ""


# --- how Python finds the shim --------------------------------------------------------------------------------------


def python_loading(container: Container, image_env: Mapping[str, str]) -> Edits | Skip:
    """The changes that let Python find the shim, for a container `without_ours`; or why there is no safe way.

    PYTHONPATH is extended where the pod spec or the policy's imageEnv says what it is; else the user site is ours.
    """
    path = container.effective(_PATH)
    if path is not None:
        return _extended(container, path)
    stated = image_env.get(_PATH)
    if stated is not None:
        value = _EXTENDED + stated if stated else delivery.PYTHON_PATH
        return Edits(appended=({"name": _PATH, "value": value},))
    if container.env:
        for name in (_USER_BASE, _NO_USER_SITE):
            entry = container.effective(name)
            if entry is not None and entry.value != "":
                return _unknown(f"the pod spec sets {name}; {_HOW_TO_CHANGE}")
    if image_env.get(_USER_BASE):
        return _unknown(f"the image sets {_USER_BASE}; {_HOW_TO_CHANGE}")
    return Edits(appended=({"name": _USER_BASE, "value": delivery.PYTHON_USER_BASE},))


def _extended(container: Container, path: EnvEntry) -> Edits | Skip:
    raw = container.raw["env"][path.place]
    if path.value is not None:
        value = _EXTENDED + path.value if path.value else delivery.PYTHON_PATH
        return Edits({path.place: ({**raw, "value": value},)})
    if path.optional:
        return _unknown("PYTHONPATH comes from an optional reference, which may be absent")
    if container.effective(ORIGINAL_PYTHONPATH) is not None:
        return _unknown(f"PYTHONPATH comes from a reference, and {ORIGINAL_PYTHONPATH} is taken")
    # Kubernetes expands $(X) only from earlier entries, so the renamed one comes first.
    renamed = {**raw, "name": ORIGINAL_PYTHONPATH}
    return Edits({path.place: (renamed, {"name": _PATH, "value": _RENAMED})})


def _unknown(detail: str) -> Skip:
    return Skip(reason=SkipReason.IMAGE_ENV_UNKNOWN, detail=detail)


# --- writing --------------------------------------------------------------------------------------------------------


def combine(container: Container, references: Mapping[str, str], python: Edits | None) -> Edits:
    """All changes of a container `without_ours`: `references` are variables and the annotations that they read.

    A variable that the container has already is replaced where it stands; of several the last decides, and the others
    go.
    """
    replaced: dict[int, Sequence[Entry]] = dict(python.replaced) if python is not None else {}
    appended: list[Entry] = []
    for name, annotation in references.items():
        places = [entry.place for entry in container.env if entry.name == name]
        if not places:
            appended.append(reference(name, annotation))
            continue
        replaced.update(dict.fromkeys(places, ()))
        replaced[places[-1]] = (reference(name, annotation),)
    if python is not None:
        appended.extend(python.appended)
    return Edits(replaced, appended)


def operations(container: Container, clean: Container, edits: Edits) -> list[dict[str, Any]]:
    """JSON-patch operations from the container as it is to `clean` with `edits`; [] where nothing changes.

    A container that Raddle has not touched gets one operation an entry; one that it has gets its list anew.
    """
    pointer = container.pointer + "/env"
    if container is not clean:
        present = container.raw["env"]
        wanted = edits.apply(clean.raw["env"])
        # Ours may stand anywhere: another webhook may have added variables behind them.
        if len(wanted) == len(present) and all(entry in present for entry in wanted):
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

"""What of a pod Raddle has put there: `strip_injected` gives the pod as if Raddle had never seen it.

Everything is decided on that, so that a second call, and a copied pod, come to the same end. A variable is ours if its
fieldRef names our annotation, or if RADDLE_LITERALS lists exactly this name and value. That list stands in the
environment itself, so that it goes wherever its entries are copied; an entry that somebody has changed since is no
longer the one that it lists, and is the user's. Of a variable that is a list, our part is ours wherever it stands,
since other webhooks extend the same variables before and behind it; the rest is the user's, unless RADDLE_LITERALS has
the checksum of the whole text.

A volume is ours if it has our name and one of our shapes, and is mounted nowhere else; so are its mounts, and an init
container that has our name and mounts one. A user's own of that name is left alone.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from itertools import zip_longest
from typing import Any, Final, NamedTuple

from raddle import delivery, env
from raddle.planning import templates
from raddle_operator.injection.environment import EXTENSIONS, USER_BASE, Entry, by_original, checksum
from raddle_operator.injection.literals import VARIABLES
from raddle_operator.injection.volumes import (
    CONFIG_MAP_PREFIX,
    OUR_VOLUMES,
    SHIM_INIT_CONTAINER,
    SHIM_VOLUME,
    SIZE_LIMIT,
    STAGING,
)
from raddle_operator.objects.pods import (
    EXTENDED,
    JAVA_OPTIONS,
    ORIGINAL,
    Container,
    EnvEntry,
    Pod,
    Volume,
    env_entry,
    pod_from_object,
    with_entries,
)
from raddle_operator.objects.reading import SpecError

# Only a container that has one of them, or reads an annotation of ours, can have a variable of ours.
_TRACES: Final = frozenset((env.LITERALS, USER_BASE, *EXTENDED))
# What Raddle writes is far below; a longer one is forged.
_MAX_LISTING: Final = 16384
_JAVA_SEPARATORS: Final = re.compile(r"(\s)")


def strip_injected(pod: Pod) -> Pod:
    """The pod as it would be had Raddle never changed its containers and volumes; labels and annotations are left.

    It is the pod itself where nothing of it can be ours.
    """
    if not _has_traces(pod):
        return pod
    volumes = _their_volumes(pod)
    owned = OUR_VOLUMES.difference(volume.name for volume in volumes)
    copier = _our_init_container(pod, volumes)
    return pod._replace(
        volumes=volumes,
        containers=tuple(_strip(container, owned) for container in pod.containers),
        init_containers=tuple(_strip(container, owned) for container in pod.init_containers if container is not copier),
    )


def _has_traces(pod: Pod) -> bool:
    """Whether a container or a volume may have something of ours."""
    return not OUR_VOLUMES.isdisjoint([volume.name for volume in pod.volumes]) or any(
        _may_have_variables(container) or _mounts_any(container, OUR_VOLUMES)
        for container in pod.containers + pod.init_containers
    )


def _may_have_variables(container: Container) -> bool:
    return container.annotated or not container.env.keys().isdisjoint(_TRACES)


def _mounts_any(container: Container, volumes: frozenset[str]) -> bool:
    return not volumes.isdisjoint([mount.volume for mount in container.mounts + container.devices])


def literals_of(pod: Any) -> dict[str, dict[str, str]]:
    """The texts that Raddle has set or extended in a pod, given as JSON: container to name to value as it stands.

    What the shim completes at a process's start is there too, where the pod spec does not set it.

    Never raises: {} for what is no pod.
    """
    try:
        read = pod_from_object(pod)
    except SpecError:
        return {}
    return {container.name: _own_literals(container) for container in read.containers + read.init_containers}


def _own_literals(container: Container) -> dict[str, str]:
    listed = _listed(container)
    found: dict[str, str | None] = {
        name: value
        for name, value in listed.values.items()
        if name not in container.env and (name in VARIABLES or templates.is_name(name))
    }
    entries = (env_entry(place, raw) for place, raw in enumerate(container.entries))
    found |= {entry.name: entry.value for entry in entries if _part_of_ours(entry, listed, container)[0]}
    return {name: value for name, value in found.items() if value is not None and name != env.LITERALS}


def _strip(container: Container, owned: frozenset[str]) -> Container:
    if _may_have_variables(container):
        container = _strip_variables(container)
    if _mounts_any(container, owned):
        mounts, devices = (
            tuple(mount for mount in found if mount.volume not in owned)
            for found in (container.mounts, container.devices)
        )
        container = container._replace(mounts=mounts, devices=devices)
    return container


# --- variables ------------------------------------------------------------------------------------------------------


class _Listed(NamedTuple):
    """What RADDLE_LITERALS says: `values` that Raddle set, and `checksums` of lists that it added whole, by name.

    The checksum is "" for a variable that stood there empty before.
    """

    values: Mapping[str, str]
    checksums: Mapping[str, str]


def _strip_variables(container: Container) -> Container:
    """The container without our variables, the user's entries in their order; itself where it has none."""
    listed = _listed(container)
    # What is left of each entry that has a part of ours: None where it is ours altogether.
    rests: dict[int, str | None] = {}
    for place, raw in enumerate(container.entries):
        is_ours, rest = _part_of_ours(env_entry(place, raw), listed, container)
        if is_ours:
            rests[place] = rest
    if not rests:
        return container
    renamed: dict[str, int] = {}
    kept: list[Entry] = []
    for place, raw in enumerate(container.entries):
        name = raw["name"]
        if place not in rests:
            if name.startswith(ORIGINAL) and raw.get("valueFrom") is not None:
                renamed[name[len(ORIGINAL) :]] = len(kept)
            kept.append(raw)
            continue
        rest = rests[place]
        if rest is None:
            continue
        if rest == by_original(name) and name in renamed:
            kept[renamed[name]] = {**kept[renamed[name]], "name": name}
        else:
            # The user's own value, which was extended where it stood, and what others have added to ours.
            kept.append({**raw, "value": rest})
    return with_entries(container, kept)


def _listed(container: Container) -> _Listed:
    entry = container.effective(env.LITERALS)
    if entry is None or not entry.value or len(entry.value) > _MAX_LISTING:
        return _Listed({}, {})
    parts = entry.value.split(";")
    pairs = (part.partition("=") for part in parts)
    sums = (part.partition("#") for part in parts if "=" not in part)
    return _Listed({name: value for name, _, value in pairs if value}, {name: value for name, _, value in sums})


def _part_of_ours(entry: EnvEntry, listed: _Listed, container: Container) -> tuple[bool, str | None]:
    """Whether an entry is Raddle's, or has a part that is; and what it is without, None where nothing is left."""
    if entry.ours is not None:
        return True, None
    name, value = entry.name, entry.value
    if value is None:
        return False, None
    if name == JAVA_OPTIONS and entry.place != container.env[name]:
        return False, None  # an option of Java's could be anybody's, and only the last entry of a name is ever extended
    if name in EXTENDED:
        rest = _rest(name, value, listed)
        if rest is not None and listed.checksums.get(name) == checksum(value):
            return True, None
        return rest is not None, rest
    if listed.values.get(name) == value and listed.checksums.get(name) == "":
        return True, ""
    own = name == env.LITERALS or listed.values.get(name) == value
    return own or (name == USER_BASE and value == delivery.PYTHON_USER_BASE), None


def _rest(name: str, value: str, listed: _Listed) -> str | None:
    """What is left of such a list without our part; None where it has none."""
    if name == JAVA_OPTIONS:
        option = listed.values.get(name)
        return None if option is None else _without(value, (option,), _JAVA_SEPARATORS)
    extension = EXTENSIONS[name]
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


# --- volumes --------------------------------------------------------------------------------------------------------


def _their_volumes(pod: Pod) -> tuple[Volume, ...]:
    """The volumes that are not ours. Several may have one name, before the API server has refused such a pod."""
    if all(volume.name not in OUR_VOLUMES for volume in pod.volumes):
        return pod.volumes
    elsewhere = _mounted_elsewhere(pod)
    return tuple(
        volume
        for volume in pod.volumes
        if volume.name not in OUR_VOLUMES or volume.name in elsewhere or not _has_shape(volume)
    )


def _our_init_container(pod: Pod, theirs: Sequence[Volume]) -> Container | None:
    """The init container that copies the shim's files to a volume of ours; None where there is no such volume."""
    of_shim = [volume.place for volume in pod.volumes if volume.name == SHIM_VOLUME]
    if not of_shim or len(of_shim) == sum(volume.name == SHIM_VOLUME for volume in theirs):
        return None
    for container in pod.init_containers:
        if container.name == SHIM_INIT_CONTAINER and any(mount.volume == SHIM_VOLUME for mount in container.mounts):
            return container
    return None


def _mounted_elsewhere(pod: Pod) -> Collection[str]:
    """Those of our names that some container has mounted where we would not.

    One walk over the mounts, however many volumes of a name a hostile pod has.
    """
    return {
        mount.volume
        for container in pod.containers + pod.init_containers
        for mount in container.mounts
        if mount.volume in OUR_VOLUMES and mount.path not in _paths(container)
    }


def _has_shape(volume: Volume) -> bool:
    """Whether a volume with one of our names has one of our shapes."""
    source = {key: value for key, value in volume.raw.items() if key != "name"}
    if len(source) != 1:
        return False
    config_map, image = source.get("configMap"), source.get("image")
    if isinstance(config_map, dict):
        # Its items are those of the version that wrote it.
        return config_map.get("optional") is True and str(config_map.get("name")).startswith(CONFIG_MAP_PREFIX)
    if isinstance(image, dict):
        return image.keys() == {"reference", "pullPolicy"}
    return source == {"emptyDir": {"sizeLimit": SIZE_LIMIT}}


def _paths(container: Container) -> tuple[str, ...]:
    if container.field == "initContainers" and container.name == SHIM_INIT_CONTAINER:
        return (delivery.MOUNT_PATH, STAGING)
    return (delivery.MOUNT_PATH, delivery.PRELOAD_FILE)

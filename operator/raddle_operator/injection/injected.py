"""What of a pod Raddle has put there: `strip_injected` gives the pod as if Raddle had never seen it.

Everything is decided on that, so that a second call, and a copied pod, come to the same end. A variable is ours if its
fieldRef names our annotation, or if RADDLE_LITERALS lists exactly this name and value. That list stands in the
environment itself, so that it goes wherever its entries are copied; an entry that somebody has changed since is no
longer the one that it lists, and is the user's.

A volume is ours if it has our name and one of our shapes, and is mounted nowhere else; so are its mounts. A user's own
of that name is left alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from raddle import delivery, env
from raddle.planning import templates
from raddle.planning.families import JAVA_OPTIONS
from raddle_operator.injection.literals import VARIABLES
from raddle_operator.injection.variables import Entry
from raddle_operator.injection.volumes import CONFIG_MAP_PREFIX, SHIM_VOLUME
from raddle_operator.objects.pods import Container, EnvEntry, Pod, Volume, env_entry, pod_from_object, with_entries
from raddle_operator.objects.reading import SpecError

# Only a container that has one of them, or reads an annotation of ours, can have a variable of ours.
_TRACES: Final = frozenset((env.LITERALS,))
# What Raddle writes is far below; a longer one is forged.
_MAX_LISTING: Final = 16384
_PATHS: Final = (delivery.MOUNT_PATH, delivery.PRELOAD_FILE)


def strip_injected(pod: Pod) -> Pod:
    """The pod as it would be had Raddle never changed its containers and volumes; labels and annotations are left.

    It is the pod itself where nothing of it can be ours.
    """
    if not _has_traces(pod):
        return pod
    volumes = _their_volumes(pod)
    owned = all(volume.name != SHIM_VOLUME for volume in volumes)
    return pod._replace(
        volumes=volumes,
        containers=tuple(_strip(container, owned=owned) for container in pod.containers),
        init_containers=tuple(_strip(container, owned=owned) for container in pod.init_containers),
    )


def _has_traces(pod: Pod) -> bool:
    """Whether a container or a volume may have something of ours."""
    return any(volume.name == SHIM_VOLUME for volume in pod.volumes) or any(
        _may_have_variables(container) or _mounts_ours(container) for container in pod.containers + pod.init_containers
    )


def _may_have_variables(container: Container) -> bool:
    return container.annotated or not container.env.keys().isdisjoint(_TRACES)


def _mounts_ours(container: Container) -> bool:
    return any(mount.volume == SHIM_VOLUME for mount in container.mounts + container.devices)


def literals_of(pod: Any) -> dict[str, dict[str, str]]:
    """The texts that Raddle has set in a pod, given as JSON: container to name to value as it stands.

    What the shim completes at a process's start is there too, where the pod spec does not set it, and what it adds to
    Java's options.

    Never raises: {} for what is no pod.
    """
    try:
        read = pod_from_object(pod)
    except SpecError:
        return {}
    return {container.name: _own_literals(container) for container in read.containers + read.init_containers}


def _own_literals(container: Container) -> dict[str, str]:
    listed = _listed(container)
    result: dict[str, str | None] = {
        name: value
        for name, value in listed.values.items()
        if (name not in container.env or name == JAVA_OPTIONS) and (name in VARIABLES or templates.is_name(name))
    }
    entries = (env_entry(place, raw) for place, raw in enumerate(container.entries))
    result |= {entry.name: entry.value for entry in entries if _is_ours(entry, listed)}
    return {name: value for name, value in result.items() if value is not None and name != env.LITERALS}


def _strip(container: Container, *, owned: bool) -> Container:
    if _may_have_variables(container):
        container = _strip_variables(container)
    if owned and _mounts_ours(container):
        mounts, devices = (
            tuple(mount for mount in item if mount.volume != SHIM_VOLUME)
            for item in (container.mounts, container.devices)
        )
        container = container._replace(mounts=mounts, devices=devices)
    return container


# --- variables ------------------------------------------------------------------------------------------------------


class _Listed(NamedTuple):
    """What RADDLE_LITERALS says: `values` that Raddle set, by name, and `emptied`, which stood there empty before."""

    values: Mapping[str, str]
    emptied: frozenset[str]


def _strip_variables(container: Container) -> Container:
    """The container without our variables, the user's entries in their order; itself where it has none."""
    listed = _listed(container)
    kept: list[Entry] = []
    result = False
    for place, raw in enumerate(container.entries):
        entry = env_entry(place, raw)
        if not _is_ours(entry, listed):
            kept.append(raw)
            continue
        result = True
        if entry.ours is None and entry.name in listed.emptied:
            kept.append({**raw, "value": ""})
    return with_entries(container, kept) if result else container


def _listed(container: Container) -> _Listed:
    entry = container.effective(env.LITERALS)
    if entry is None or not entry.value or len(entry.value) > _MAX_LISTING:
        return _Listed({}, frozenset())
    parts = entry.value.split(";")
    pairs = (part.partition("=") for part in parts)
    return _Listed(
        {name: value for name, _, value in pairs if value}, frozenset(part[:-1] for part in parts if part.endswith("#"))
    )


def _is_ours(entry: EnvEntry, listed: _Listed) -> bool:
    if entry.ours is not None:
        return True
    name, value = entry.name, entry.value
    # Java's options are listed for the shim, which adds them in the process.
    own = value is not None and name != JAVA_OPTIONS and listed.values.get(name) == value
    return own or (value is not None and name == env.LITERALS)


# --- volumes --------------------------------------------------------------------------------------------------------


def _their_volumes(pod: Pod) -> tuple[Volume, ...]:
    """The volumes that are not ours. Several may have one name, before the API server has refused such a pod."""
    if all(volume.name != SHIM_VOLUME for volume in pod.volumes):
        return pod.volumes
    elsewhere = _mounted_elsewhere(pod)
    return tuple(volume for volume in pod.volumes if volume.name != SHIM_VOLUME or elsewhere or not _has_shape(volume))


def _mounted_elsewhere(pod: Pod) -> bool:
    """Whether some container has mounted a volume with our name where we would not.

    One walk over the mounts, however many volumes of the name a hostile pod has.
    """
    return any(
        mount.volume == SHIM_VOLUME and mount.path not in _PATHS
        for container in pod.containers + pod.init_containers
        for mount in container.mounts
    )


def _has_shape(volume: Volume) -> bool:
    """Whether a volume with our name has our shape."""
    source = {key: value for key, value in volume.raw.items() if key != "name"}
    config_map = source.get("configMap")
    if len(source) != 1 or not isinstance(config_map, dict):
        return False
    # Its items are those of the version that wrote it.
    return config_map.get("optional") is True and str(config_map.get("name")).startswith(CONFIG_MAP_PREFIX)

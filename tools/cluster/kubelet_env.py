"""What a pod's container would start with: the environment and files that a kubelet would make of the pod.

There is no kubelet in the local cluster, so this resolves the same fields by the same rules
(pkg/kubelet/kubelet_pods.go: makeEnvironmentVariables): values in order, `$(VAR)` of earlier entries expanded,
a fieldRef to an annotation read from the pod, a ConfigMap volume's items written as files.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cluster import ApiError, Client

_ANNOTATION = re.compile(r"metadata\.annotations\['(?P<key>[^']+)'\]")
_PRELOAD = "/etc/ld.so.preload"
_REFERENCE = re.compile(r"\$\$|\$\((?P<name>[A-Za-z_.-][A-Za-z0-9_.-]*)\)")


def variables(pod: Mapping[str, Any], container: str, client: Client | None = None) -> dict[str, str]:
    """The environment of a container. Without a client no entry may be of a ConfigMap."""
    result: dict[str, str] = {}
    for entry in _container(pod, container).get("env", []):
        value = _value(client, pod, entry, result)
        if value is not None:
            result[entry["name"]] = value
    return result


def environment(client: Client, pod: Mapping[str, Any], container: str, root: Path) -> dict[str, str]:
    """The environment of a container for a process that anyone may start: its paths point into `volumes` below `root`.

    What a file over /etc/ld.so.preload lists is preloaded by the variable. Where root starts it, a local_container has
    the mounts themselves.
    """
    folders = mounts(_container(pod, container), volumes(client, pod, root))
    result = variables(pod, container, client)
    listed = folders.get(_PRELOAD)
    if listed is not None and listed.is_file():
        result["LD_PRELOAD"] = " ".join(filter(None, (result.get("LD_PRELOAD"), listed.read_text().strip())))
    return {name: _relocated(value, folders) for name, value in result.items()}


def _container(pod: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    spec = pod["spec"]
    for container in [*spec["containers"], *spec.get("initContainers", [])]:
        if container["name"] == name:
            assert isinstance(container, dict)
            return container
    raise KeyError(name)


def _value(
    client: Client | None, pod: Mapping[str, Any], entry: Mapping[str, Any], earlier: Mapping[str, str]
) -> str | None:
    if "valueFrom" not in entry:
        return expand(entry.get("value", ""), earlier)
    source = entry["valueFrom"]
    if "fieldRef" in source:
        match = _ANNOTATION.fullmatch(source["fieldRef"]["fieldPath"])
        if match is None:
            raise NotImplementedError(f"fieldRef {source['fieldRef']['fieldPath']}")
        # A missing key gives an empty string.
        return str(pod["metadata"].get("annotations", {}).get(match["key"], ""))
    if "configMapKeyRef" in source and client is not None:
        reference = source["configMapKeyRef"]
        try:
            data = _config_map(client, pod, reference["name"]).get("data", {})
        except ApiError:
            data = {}
        if reference["key"] not in data and not reference.get("optional"):
            raise KeyError(f"ConfigMap {reference['name']}, key {reference['key']}")
        result = data.get(reference["key"])
        return None if result is None else str(result)
    raise NotImplementedError(f"valueFrom {sorted(source)}")


def expand(text: str, earlier: Mapping[str, str]) -> str:
    """The text of a variable's value, a command or an argument, with what these variables are for `$(NAME)`."""

    def replace(match: re.Match[str]) -> str:
        if match[0] == "$$":
            return "$"
        return earlier.get(match["name"], match[0])

    return _REFERENCE.sub(replace, text)


def volumes(client: Client, pod: Mapping[str, Any], root: Path) -> dict[str, Path]:
    """The pod's volumes by their names, made as folders of `root`: empty ones, and ConfigMaps with their files.

    A missing optional ConfigMap makes an empty one, as the kubelet does; one that is needed raises ApiError. Without
    those that are projected: no process here asks with the ServiceAccount's token.
    """
    result = {}
    for volume in pod["spec"].get("volumes", []):
        if "projected" in volume:
            continue
        if not volume.keys() & {"configMap", "emptyDir"}:
            raise NotImplementedError(f"volume {volume['name']}: {sorted(volume)}")
        folder = result[volume["name"]] = root / volume["name"]
        folder.mkdir(parents=True, exist_ok=True)
        if "configMap" in volume:
            _write_config_map(client, pod, volume["configMap"], folder)
        else:
            folder.chmod(0o777)
    return result


def mounts(container: Mapping[str, Any], made: Mapping[str, Path]) -> dict[str, Path]:
    """What a container's spec mounts of the volumes that were made, by where the container has it.

    A subPath that is not there becomes a folder that anyone may write to, as the kubelet makes it.
    """
    result = {}
    for mount in container.get("volumeMounts", []):
        if mount["name"] in made:
            source = result[mount["mountPath"]] = made[mount["name"]] / mount.get("subPath", "")
            if not source.exists():
                source.mkdir(parents=True)
                source.chmod(0o777)
    return result


def _write_config_map(client: Client, pod: Mapping[str, Any], source: Mapping[str, Any], folder: Path) -> None:
    try:
        config_map = _config_map(client, pod, source["name"])
    except ApiError:
        if source.get("optional"):
            return
        raise
    files = {name: text.encode() for name, text in config_map.get("data", {}).items()}
    files |= {name: base64.b64decode(text) for name, text in config_map.get("binaryData", {}).items()}
    items = source.get("items") or [{"key": name, "path": name} for name in files]
    for item in items:
        path = folder / item["path"]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(files[item["key"]])
        path.chmod(item.get("mode", 0o644))


def _config_map(client: Client, pod: Mapping[str, Any], name: str) -> dict[str, Any]:
    return client.get(f"/api/v1/namespaces/{pod['metadata']['namespace']}/configmaps/{name}")


def _relocated(value: str, folders: Mapping[str, Path]) -> str:
    for mounted, folder in folders.items():
        value = re.sub(rf"(?<![^:= ]){re.escape(mounted)}(?=[/: ]|$)", str(folder), value)
    return value

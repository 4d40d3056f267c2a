"""How the shim's files reach a container: a volume and its mounts.

Nothing here comes from a policy or a pod: the ConfigMap's name is the operator's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from raddle import delivery

SHIM_VOLUME: Final = "raddle-shim"
CONFIG_MAP_PREFIX: Final = "raddle-shim-"
# On the ConfigMap; its value is the content's hash.
SHIM_LABEL: Final = "raddle.dev/shim"

_MOUNT: Final[Mapping[str, Any]] = {"name": SHIM_VOLUME, "mountPath": delivery.MOUNT_PATH, "readOnly": True}
SHIM_MOUNTS: Final = (_MOUNT, {**_MOUNT, "mountPath": delivery.PRELOAD_FILE, "subPath": delivery.PRELOAD_KEY})


def config_map_name(content_hash: str) -> str:
    """The name of the shim's ConfigMap with this content: the controller writes it, the webhook mounts it."""
    return CONFIG_MAP_PREFIX + content_hash


@dataclass(frozen=True, slots=True, kw_only=True)
class ShimDelivery:
    """What the operator was started with. `config_map` is the shim ConfigMap's name, None: there is none.

    `items` are raddle.delivery.items, for each architecture that there is a native library for.
    """

    config_map: str | None = None
    items: Mapping[str, Sequence[Mapping[str, Any]]] = field(default_factory=dict)


def shim_volume(config_map: str, items: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """The volume with the shim's files, for SHIM_MOUNTS."""
    # Optional: no pod waits for one that was removed since. What is mounted then is an empty folder, for the file too.
    return {
        "name": SHIM_VOLUME,
        "configMap": {"name": config_map, "items": list(items), "defaultMode": 0o444, "optional": True},
    }

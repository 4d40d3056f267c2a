"""Keeps the shims' ConfigMap in every opted-in namespace, so that pods can mount it.

The ConfigMap ``raddle-shim-<hash>`` is immutable and named after its content. A missing one is created, a deleted one
comes back; an older one goes only when every injected pod of the namespace is an hour younger than the present one,
because pods name it in their spec, which is not watched. A namespace that is opted out keeps its own: pods still run.
"""

from __future__ import annotations

import base64
import contextlib
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from raddle import delivery
from raddle_operator.controller import metrics
from raddle_operator.injection import shipped
from raddle_operator.injection.volumes import SHIM_LABEL, ShimDelivery, config_map_name
from raddle_operator.kube import CONFIG_MAPS, AlreadyExists, Forbidden, Kube, NotFound, Object
from raddle_operator.kube.informer import Informer, Key
from raddle_operator.objects.times import epoch_s

log = logging.getLogger(__name__)

MANAGED_BY: Final = "app.kubernetes.io/managed-by"
REMOVE_AFTER_S: Final = 3600


@dataclass(frozen=True, slots=True)
class ShimConfigMap:
    """A shim ConfigMap that is there."""

    hash: str
    created_s: int


def config_map(namespace: str, content_hash: str) -> Object:
    """The ConfigMap as it is created. Raises OSError where the installation lacks the shim's files."""
    return {
        "metadata": {
            "name": config_map_name(content_hash),
            "namespace": namespace,
            "labels": {SHIM_LABEL: content_hash, MANAGED_BY: "raddle"},
        },
        "immutable": True,
        "data": delivery.files(),
        "binaryData": {key: base64.b64encode(content).decode() for key, content in delivery.binaries().items()},
    }


def outdated(
    kept: Mapping[Key, ShimConfigMap], namespace: str, content_hash: str, oldest_injected_s: int | None
) -> list[str]:
    """The names of ConfigMaps in ``namespace`` that no pod can need any more.

    ``oldest_injected_s`` is the creation of the oldest injected pod there, None where there is none.
    """
    present = kept.get((namespace, config_map_name(content_hash)))
    if present is None:
        return []
    if oldest_injected_s is not None and oldest_injected_s < present.created_s + REMOVE_AFTER_S:
        return []
    return [name for (where, name), other in kept.items() if where == namespace and other.hash != content_hash]


class ShimReconciler:
    """Creates and removes the ConfigMaps; ``on_change(namespace)`` says where one appeared or vanished.

    ``namespaces``: where it may; empty for everywhere. Where lists are refused, each is looked for by its name.
    """

    def __init__(self, kube: Kube, on_change: Callable[[str], None], namespaces: Sequence[str] = ()) -> None:
        self.content_hash: Final = delivery.content_hash()
        self.forbidden: set[str] = set()
        """Namespaces where the API server does not let us write ConfigMaps."""
        self.informers: Final = tuple(
            Informer(
                kube,
                CONFIG_MAPS,
                _kept,
                namespace=namespace,
                label_selector=f"{SHIM_LABEL},{MANAGED_BY}=raddle",
                metadata_only=True,
                on_change=lambda key, _old, _new: on_change(key[0]),
            )
            for namespace in namespaces or ("",)
        )
        self._namespaces = frozenset(namespaces)
        self._kube = kube

    def delivery_in(self, namespace: str) -> ShimDelivery:
        """What pods of a namespace can mount: nothing where we may not write."""
        allowed = namespace not in self.forbidden and (not self._namespaces or namespace in self._namespaces)
        return shipped.shim() if allowed else ShimDelivery()

    async def reconcile(self, namespace: str, oldest_injected_s: int | None) -> None:
        """Makes one opted-in namespace have the present ConfigMap and no outdated one. Raises for what may pass."""
        if self._namespaces and namespace not in self._namespaces:
            return
        kept = {key: item for informer in self.informers for key, item in informer.store.items()}
        if (namespace, config_map_name(self.content_hash)) not in kept and not await self._is_there(namespace):
            await self._create(namespace)
        for name in outdated(kept, namespace, self.content_hash, oldest_injected_s):
            await self._remove(namespace, name)

    async def _is_there(self, namespace: str) -> bool:
        """Asks for it, where the lists are not there to tell: a create would send its whole content."""
        if all(informer.synced.is_set() for informer in self.informers):
            return False
        name = config_map_name(self.content_hash)
        with contextlib.suppress(NotFound, Forbidden):
            await self._kube.get(CONFIG_MAPS, name, namespace, metadata_only=True)
            return True
        return False

    async def _create(self, namespace: str) -> None:
        try:
            await self._kube.create(CONFIG_MAPS, config_map(namespace, self.content_hash))
        except AlreadyExists:
            outcome = "there"
        except NotFound:
            outcome = "namespace_gone"
        except Forbidden as error:
            outcome = "forbidden"
            if namespace not in self.forbidden:
                log.warning("namespace %s: the shim's ConfigMap can't be created: %s", namespace, error)
            self.forbidden.add(namespace)
        else:
            outcome = "created"
            log.info("namespace %s: created %s", namespace, config_map_name(self.content_hash))
        if outcome != "forbidden":
            self.forbidden.discard(namespace)
        metrics.SHIM_WRITES.labels(outcome).inc()

    async def _remove(self, namespace: str, name: str) -> None:
        try:
            await self._kube.delete(CONFIG_MAPS, name, namespace)
        except NotFound:
            return
        except Forbidden as error:
            log.warning("namespace %s keeps the outdated %s: %s", namespace, name, error)
            metrics.SHIM_WRITES.labels("forbidden").inc()
        else:
            log.info("namespace %s: removed the outdated %s", namespace, name)
            metrics.SHIM_WRITES.labels("removed").inc()


def _kept(obj: Object) -> ShimConfigMap:
    metadata = obj["metadata"]
    return ShimConfigMap((metadata.get("labels") or {}).get(SHIM_LABEL, ""), epoch_s(metadata["creationTimestamp"]))

"""Ties what the controller makes in its own namespace to its ServiceAccount, so that it goes when Raddle is removed.

Helm and kubectl remove what their manifests hold. The Lease and the certificate's Secret are in none; they name the
ServiceAccount, which is in all, as their owner, and the cluster's garbage collector removes them after it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from raddle_operator.kube import SERVICE_ACCOUNTS, Forbidden, Kube, NotFound, Object

Owners = Callable[[], Awaitable[list[Object]]]
"""`metadata.ownerReferences` for a new object, empty where nobody owns it."""


async def nobody() -> list[Object]:
    """No owner."""
    return []


def account(kube: Kube, namespace: str, name: str) -> Owners:
    """A function that asks for a ServiceAccount; it raises KubeError for what may pass.

    An account that is not there or may not be read owns nothing: a controller outside a cluster works all the same.
    """

    async def owners() -> list[Object]:
        try:
            result = await kube.get(SERVICE_ACCOUNTS, name, namespace)
        except (NotFound, Forbidden):
            return []
        return [{"apiVersion": "v1", "kind": "ServiceAccount", "name": name, "uid": result["metadata"]["uid"]}]

    return owners

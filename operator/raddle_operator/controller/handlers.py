"""kopf's handlers: what the process does when it starts, to log in, when an object changes, and when it ends.

``kopf.operator`` is the process's frame. It handles signals, waits for the CRDs and follows them when they change, and
keeps the watches alive; when it ends, the process does. Its startup lasts until this process leads: a standby, which
answers probes, watches nothing.

Of objects only ``on.event``: handlers of creations, updates and deletions, timers and daemons would write annotations
and finalizers into users' objects. kopf drops the error of an event's handler, so this one notes the change, and the
controller's queue tries again. What was deleted while kopf had no watch is found by the controller's resync, for which
kopf's next list calls.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterable, Mapping
from typing import Any

import kopf

from raddle_operator.controller.controller import Controller
from raddle_operator.kube import Resource

# It writes a line for every event of every object.
logging.getLogger("kopf.objects").setLevel(logging.WARNING)


class NoDiffBase(kopf.DiffBaseStorage):  # type: ignore[misc]
    """Keeps nothing: handlers of events do not ask what has changed, and a deep copy per event is slow."""

    def build(self, **_: Any) -> Any:
        """Nothing to compare."""
        return {}

    def fetch(self, **_: Any) -> Any:
        """Nothing stored."""
        return None

    def store(self, **_: Any) -> None:
        """Writes nothing into the user's object."""


async def configure(settings: kopf.OperatorSettings, **_: Any) -> None:
    """Has kopf write nothing, keep little, and not give up on a refusal before a day."""
    settings.persistence.diffbase_storage = NoDiffBase()
    settings.persistence.finalizer = "raddle.dev/finalizer"  # never used; never kopf's own name in users' objects
    settings.posting.enabled = False
    settings.queueing.idle_timeout = 0.5
    settings.watching.chunk_size = 200
    # By default it ends after 54 s of 5xx or 403: one missing right would take all other work with it.
    settings.networking.error_backoffs = (1, 2, 4, 8, 15, *itertools.repeat(30, 2880))


async def start(memo: Controller, **_: Any) -> None:
    """Answers probes and waits until this process leads. What fails here ends the process: Kubernetes restarts it."""
    try:
        await memo.start()
    except BaseException:
        await memo.stop()  # after half a startup kopf runs no cleanup
        raise


async def login(memo: Controller, **_: Any) -> kopf.ConnectionInfo:
    """The credentials of now. Where they can't be read kopf tries again in 5 s."""
    connection = await memo.credentials()
    scheme, _space, token = (connection.authorization or "").partition(" ")
    return kopf.ConnectionInfo(
        server=connection.server,
        ca_path=connection.ca_path,
        insecure=not connection.verify_tls,
        scheme=scheme or None,
        token=token or None,
        certificate_path=connection.certificate_path,
        private_key_path=connection.private_key_path,
        proxy_url=connection.proxy,
        trust_env=True,
    )


async def changed(
    memo: Controller, param: Resource, event: Mapping[str, Any], namespace: str | None, name: str, **_: Any
) -> None:
    """Notes an object of a kind that is watched: it was listed, created, changed or deleted."""
    memo.notify(param, (namespace or "", name), dict(event["object"]), event["type"])


async def stop(memo: Controller, **_: Any) -> None:
    """Ends the work when kopf has ended its watches."""
    await memo.stop()


def registry(watched: Iterable[Resource]) -> kopf.OperatorRegistry:
    """All of these, for kopf. Our own registry: kopf's global one belongs to everyone who imports kopf."""
    made = kopf.OperatorRegistry()
    kopf.on.startup(registry=made)(configure)
    kopf.on.startup(registry=made, errors=kopf.ErrorsMode.PERMANENT)(start)
    kopf.on.login(registry=made, backoff=5)(login)
    for one in watched:
        kopf.on.event(one.group, one.version, one.plural, param=one, registry=made)(changed)
    kopf.on.cleanup(registry=made)(stop)
    return made

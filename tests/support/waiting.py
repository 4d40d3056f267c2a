"""Waits of asynchronous tests; those of the others are `cluster.waiting`."""

import asyncio
import inspect
import time

from cluster.waiting import WAIT_SECONDS, NotInTimeError

POLL_SECONDS = 0.02


async def until(check, what="the condition", seconds=WAIT_SECONDS, *, refusals=()):
    """What `check` returns (or its awaitable), as soon as that is true; what it raises of `refusals` means not yet."""
    deadline = time.monotonic() + seconds
    while True:
        refused = ""
        try:
            found = check()
            if inspect.isawaitable(found):
                found = await found
            if found:
                return found
        except refusals as error:
            refused = f": {error!r}"
        if time.monotonic() > deadline:
            raise NotInTimeError(f"{what}: not so in {seconds:g} s{refused}")
        await asyncio.sleep(POLL_SECONDS)

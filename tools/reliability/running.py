"""Runs checks one after the other and turns whatever happens to each into its outcome."""

from __future__ import annotations

import http.client
import subprocess
import time
from collections.abc import Sequence
from typing import Final

import psutil

from cluster import ApiError, DevclusterError
from cluster.waiting import NotInTimeError
from reliability.model import BrokenError, Check, Outcome, Result
from reliability.world import World
from unavailable import UnavailableError

_AROUND_IT: Final = (
    *(ApiError, DevclusterError, OSError, http.client.HTTPException),
    *(subprocess.SubprocessError, psutil.Error),
)
"""What the cluster, its processes and this machine's commands raise; anything else is a mistake of the check's."""


def run(checks: Sequence[Check], world: World) -> list[Outcome]:
    """Run them in this order; what one of them raises is its own outcome. Ctrl-C goes through."""
    found = []
    for number, check in enumerate(checks, 1):
        world.progress.say(f"{number}/{len(checks)} {check.name}: {check.what}")
        outcome = _run(check, world)
        found.append(outcome)
        told = "; ".join(f"{what} {figure}" for what, figure in outcome.result.figures.items())
        reason = f" ({outcome.unavailable})" if outcome.unavailable else ""
        world.progress.say(f"  {outcome.verdict}{reason} in {outcome.seconds:.0f} s: {told or '-'}")
        for sentence in outcome.result.broken:
            world.progress.say(f"  ! {sentence}")
    return found


def _run(check: Check, world: World) -> Outcome:
    began_s = time.monotonic()
    unavailable = ""
    try:
        result = check.run(world)
    except UnavailableError as error:
        unavailable, result = str(error), Result({})
    except (BrokenError, NotInTimeError) as error:
        result = Result({}, (str(error),))
    except _AROUND_IT as error:
        result = Result({}, (f"the check ended early: {str(error) or repr(error)}",))
    return Outcome(check, result, time.monotonic() - began_s, unavailable)

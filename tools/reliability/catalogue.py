"""All checks, in the order in which they run and are shown."""

from __future__ import annotations

from typing import Final

from reliability import (
    agents,
    attacks,
    availability,
    clock,
    controlplane,
    controlplane_leader,
    controlplane_restart,
    disk,
    lifecycle,
    network,
    webhook,
)
from reliability.model import Check, Section

CHECKS: Final[tuple[Check, ...]] = (
    *webhook.CHECKS,
    *network.CHECKS,
    *agents.CHECKS,
    *disk.CHECKS,
    # From here on each has a cluster of its own.
    *availability.CHECKS,
    *clock.CHECKS,
    *controlplane.CHECKS,
    *controlplane_leader.CHECKS,
    *controlplane_restart.CHECKS,
    *lifecycle.CHECKS,
    *attacks.CHECKS,
)
SECTIONS: Final[dict[str, Section]] = {"failures": "failure", "attacks": "attack"}


def chosen(names: list[str]) -> list[Check]:
    """Return the checks of these names, of which `failures` and `attacks` mean a whole section; all for no name.

    Raises ValueError for a name that there is not.
    """
    known = {one.name: (one,) for one in CHECKS} | {
        word: tuple(one for one in CHECKS if one.section == section) for word, section in SECTIONS.items()
    }
    unknown = [name for name in names if name not in known]
    if unknown:
        raise ValueError(f"no check is called {', '.join(unknown)}; there are {', '.join(known)}")
    wanted = {one.name for name in names for one in known[name]}
    return [one for one in CHECKS if not names or one.name in wanted]

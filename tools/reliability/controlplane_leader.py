"""The leading controller is killed: who takes over, when, and whether two have ever written."""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from typing import Final, Self

from cluster.background import Background
from cluster.namespaces import TestNamespace
from cluster.waiting import wait
from reliability import audit, truth
from reliability.clock import leads
from reliability.model import Check, Result, broken_unless
from reliability.world import World

HAND_OVER_S: Final = 20.0
KILLS: Final = 2
POLICIES: Final = 10
CHANGES_PER_S: Final = 5.0


class Changes(Background):
    """A user who changes one policy after the other, from `with` to the end of the block; each calls for a status."""

    def __init__(self, space: TestNamespace) -> None:
        """Describe the thread; entering makes the policies and starts it."""
        self._space = space
        super().__init__()
        self.count = 0

    def __enter__(self) -> Self:
        """Make the policies, and begin."""
        self._space.store(*(truth.capped(f"app-{number}", 1) for number in range(POLICIES)))
        return super().__enter__()

    def run(self) -> None:
        """Go on until the end."""
        with self._space.cluster.new_client() as client:
            for number in itertools.count():
                changed = truth.capped(f"app-{number % POLICIES}", 2 + number // POLICIES % 7)
                changed["metadata"]["namespace"] = self._space.name
                client.apply(changed)
                self.count += 1
                if self.end.wait(1 / CHANGES_PER_S):
                    return


def leader_killed(world: World) -> Result:
    """Kill the leader under changes, and when it is back as the standby, the other one."""
    with (
        world.fresh_cluster(audit_policy=audit.POLICY) as cluster,
        world.raddle_on(cluster) as raddle,
        world.namespace(raddle) as space,
    ):
        leader, standby = raddle.controller, raddle.controller_process("second").start().wait_ready()
        killed_at: list[float] = []
        with Changes(space) as changes:
            for _ in range(KILLS):
                wait(lambda one=leader: leads(one), "it leads")  # type: ignore[misc]
                time.sleep(1)  # some statuses
                killed_at.append(time.time())
                leader.kill()
                wait(lambda one=standby: leads(one), "the standby leads", 2 * HAND_OVER_S)  # type: ignore[misc]
                leader.start().wait_ready()
                leader, standby = standby, leader
            wait(lambda: [one for one in _work(audit.writes(cluster)) if one.at_s > killed_at[-1]], "it writes")
        truth.settle(space)
        written = audit.writes(cluster)
    work = _work(written)
    hand_overs_s = [min(one.at_s for one in work if one.at_s > at_s) - at_s for at_s in killed_at]
    writers = [one.writer for one in work]
    turns = [writer for writer, _ in itertools.groupby(writers)]
    leaseless, again = without_lease(written), unchanged(work)
    return Result(
        {
            "policy changes": str(changes.count),
            "status writes": " + ".join(str(len(list(one))) for _, one in itertools.groupby(writers)),
            "killed until the next write": ", ".join(f"{one:.1f} s" for one in hand_overs_s),
            "writes without the Lease": str(len(leaseless)),
            "writes that changed nothing": str(len(again)),
        },
        broken_unless(
            each_hand_over_took_20_s_at_most=max(hand_overs_s) <= HAND_OVER_S,
            one_wrote_after_the_other_and_never_two_in_turns=len(turns) == KILLS + 1,
            no_write_was_made_without_the_lease=not leaseless,
            nothing_was_written_twice=not again,
        ),
    )


def _work(written: Sequence[audit.Write]) -> list[audit.Write]:
    """What the leader alone may write: status."""
    return [one for one in written if one.resource.endswith("/status")]


def without_lease(written: Sequence[audit.Write]) -> list[audit.Write]:
    """Writes whose writer was not who had written the Lease last, or so long ago that it had run out."""
    found, holder, until_s = [], "", 0.0
    for one in written:
        if one.resource == "leases":
            spec = one.sent["spec"]
            holder, until_s = one.writer, one.at_s + float(spec["leaseDurationSeconds"])
        elif one.account == "raddle-controller" and (one.writer != holder or one.at_s > until_s):
            found.append(one)
    return found


def unchanged(work: Sequence[audit.Write]) -> list[audit.Write]:
    """Writes after which an object had the version that it had before."""
    seen: set[tuple[str, str]] = set()
    found = []
    for one in work:
        key = one.name, one.version
        found += [one] if key in seen else []
        seen.add(key)
    return found


CHECKS: Final = (
    Check(
        "leader-killed",
        "The leading controller is killed (SIGKILL) while policies change; then the one that took over.",
        f"The standby writes within {HAND_OVER_S:g} s; nobody writes without the Lease; nothing is written twice.",
        leader_killed,
    ),
)

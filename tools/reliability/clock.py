"""The leader's clock jumps: a day back, then months ahead, so far that it renews a certificate, then right again.

libfaketime gives the process another time of day; its monotonic clock goes on, as a machine's does when its clock is
set. The webhooks, the API server and the second controller keep the right time.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from cluster.background import Background
from cluster.local_raddle import NAMESPACE, Process
from cluster.waiting import wait
from raddle_operator import certificates
from reliability.certs import Handshakes, secret
from reliability.load import Load, refused, without_values
from reliability.model import Check, Result, broken_unless
from reliability.replicas import replicated
from reliability.world import World, count_missed
from unavailable import UnavailableError

LEASE_PATH: Final = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/raddle-controller"
LEASE_SECONDS: Final = 15
BACK_DAYS, AHEAD_DAYS = -1, 70
"""So far ahead the leaf, which lives for 90 days, is to be renewed (30 days before its end)."""
INSTALLED: Final = dt.timedelta(days=10)
"""So long ago: then a day back the certificates were valid too."""
CALLS: Final = 20
GOOD: Final = 20
"""Verified connections in a row after which the certificate counts as good again: both replicas, ten times."""


def jumped(world: World) -> Result:
    """The leader's clock jumps while pods are created and a second controller waits."""
    installed = dt.datetime.now(dt.UTC) - INSTALLED
    authority = certificates.new_authority(installed)
    with (
        tempfile.TemporaryDirectory(prefix="raddle-reliability-") as folder,
        replicated(
            world, rotating=True, secret=secret(authority, installed), prefixes={"controller": _faked(Path(folder))}
        ) as (raddle, replicas),
        world.governed_namespace(raddle) as space,
    ):
        second = raddle.controller_process("second").start().wait_ready()
        transitions = _transitions(space.client.get(LEASE_PATH))
        with (
            Load(space, connections=1) as load,
            Handshakes(raddle, replicas) as handshakes,
            LeaderWatch([raddle.controller, second]) as leaders,
        ):
            _set_clock(Path(folder), BACK_DAYS)
            time.sleep(LEASE_SECONDS + 2)
            back = len(handshakes.failed), len(without_values(load.calls))
            _set_clock(Path(folder), AHEAD_DAYS)
            wait(lambda: len(handshakes.failed) > back[0], "a certificate of the future is served", 120)
            load.go_on(CALLS)
            _set_clock(Path(folder), 0)
            right_s = time.monotonic()
            handshakes.good_in_a_row = 0
            wait(lambda: handshakes.good_in_a_row >= GOOD, "new connections are good again", 120)
            mended_s = time.monotonic() - right_s
            load.go_on(CALLS, with_values=True)
        missed = without_values(load.calls)
        counted = count_missed(space, len(missed))
        changes = _transitions(space.client.get(LEASE_PATH)) - transitions
    figures = {
        "jumps of the leader's clock": f"{BACK_DAYS} day, +{AHEAD_DAYS} days, right",
        "pods created": str(len(load.calls)),
        "creates refused": str(len(refused(load.calls))),
        "looks at both controllers": str(leaders.looks),
        "changes of the leader": str(changes),
        "new connections that failed, a day back": str(back[0]),
        "... while the certificate was of the future": str(len(handshakes.failed) - back[0]),
        "pods without values, all counted": f"{len(missed)}, {counted}",
        "good again after the clock was right": f"{mended_s:.0f} s",
    }
    broken = broken_unless(
        no_create_was_refused=not refused(load.calls),
        the_same_controller_leads_throughout=changes == 0,
        there_were_never_two_leaders=not leaders.both and leaders.looks > 0,
        a_day_back_changes_nothing=back == (0, 0),
        every_missed_pod_is_counted=counted == len(missed),
    )
    return Result(figures, broken)


class LeaderWatch(Background):
    """Looks at controllers all the time, from `with` to the end; `both` counts moments with more than one leader."""

    def __init__(self, processes: Sequence[Process]) -> None:
        """Describe it."""
        self._processes = processes
        super().__init__()
        self.looks = self.both = 0

    def run(self) -> None:
        """Go on until the end."""
        while not self.end.wait(0.1):
            first = [one for one in self._processes if leads(one)]
            # Asked again: the first may have handed over between the two questions.
            if len(first) > 1 and all(map(leads, first)):
                self.both += 1
            self.looks += 1


def leads(process: Process) -> bool:
    """Whether a controller says that it leads; one that does not answer does not."""
    with contextlib.suppress(OSError):
        return process.metric("raddle_controller_leader") == 1
    return False


def _faked(folder: Path) -> list[str]:
    """A command's prefix under which the time of day is what the file in the folder says; right at first."""
    library = next(_libraries(), None)
    if library is None:
        raise UnavailableError("libfaketime is not installed (Debian's package libfaketime)")
    _set_clock(folder, 0)
    return [
        "env",
        f"LD_PRELOAD={library}",
        f"FAKETIME_TIMESTAMP_FILE={folder / 'offset'}",
        "FAKETIME_NO_CACHE=1",
        "FAKETIME_DONT_FAKE_MONOTONIC=1",
        "DONT_FAKE_MONOTONIC=1",
    ]


def _libraries() -> Iterator[Path]:
    for place in (Path("/usr/lib"), Path("/usr/lib64"), Path("/usr/local/lib")):
        yield from place.glob("**/faketime/libfaketimeMT.so.1")


def _set_clock(folder: Path, days: int) -> None:
    """Write the offset; a reader never sees half of it."""
    new = folder / "new"
    new.write_text(f"{days:+d}d\n")
    new.replace(folder / "offset")


def _transitions(lease: dict[str, dict[str, int]]) -> int:
    return int(lease["spec"].get("leaseTransitions") or 0)


CHECKS: Final = (
    Check(
        "clock-jump",
        "The leader's clock jumps a day back, then 70 days ahead, where it renews a certificate, then is right again.",
        "It goes on leading alone and no create is refused. New connections fail by a certificate of the future until"
        " the clock is right, when it is replaced; pods missed meanwhile are counted.",
        jumped,
    ),
)

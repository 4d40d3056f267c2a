"""What a check is and what it finds. Nothing here runs anything."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from reliability.world import World

Section = Literal["failure", "attack"]


class Result(NamedTuple):
    """What a check found.

    `figures` are counts and times as they are to be printed, by what they are of: {"pods": "500", "blocked": "0"}.
    `broken` are sentences, one for each part of the promise that did not hold; empty: it was kept.
    """

    figures: Mapping[str, str]
    broken: tuple[str, ...] = ()


class Check(NamedTuple):
    """One failure or attack. `what` happens and the `promise` are plain sentences, for the table."""

    name: str
    what: str
    promise: str
    run: Callable[[World], Result]
    section: Section = "failure"


class Outcome(NamedTuple):
    """One check after its run. `unavailable` says why it could not run here, "" where it did."""

    check: Check
    result: Result
    seconds: float
    unavailable: str = ""

    @property
    def verdict(self) -> str:
        """In a word or two: kept, BROKEN, or not run."""
        if self.unavailable:
            return "not run"
        return "BROKEN" if self.result.broken else "kept"


class BrokenError(Exception):
    """A promise does not hold and the check can't go on; the message is a sentence for the table."""


def broken_unless(**held: bool) -> tuple[str, ...]:
    """Return a sentence for each that does not hold, from its name: `no_pod_was_refused=False` -> "not so: …"."""
    return tuple(f"not so: {name.replace('_', ' ')}" for name, kept in held.items() if not kept)

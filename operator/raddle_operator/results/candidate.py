"""A candidate: one setting of everything that is searched, as a policy writes it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from raddle.planning.kinds import PolicyError

Value = bool | int | float | str

# Settings below it are the program's own, which no policy can make: `program.instances` (sessions beside each other,
# each in a process), `program.ioBinding`.
PROGRAM: Final = "program"
_ENTRIES: Final = "onnxruntime.configEntries."


@dataclass(frozen=True, slots=True)
class Candidate:
    """Path -> value, in the order of the paths. A path that is absent is left to the plan.

    A path is a field of a policy's spec (`threads.intraOp`) or the program's (`program.instances`). A key of
    `onnxruntime.configEntries` has dots itself; it is everything behind that.
    """

    settings: tuple[tuple[str, Value], ...] = ()

    @classmethod
    def of(cls, settings: Mapping[str, Value]) -> Candidate:
        """The candidate with these settings."""
        return cls(tuple(sorted(settings.items())))

    def get(self, path: str) -> Value | None:
        """The value at a path, None where it is left to the plan."""
        return dict(self.settings).get(path)

    def with_setting(self, path: str, value: Value | None) -> Candidate:
        """The same but for one setting; None leaves that to the plan."""
        others = {name: item for name, item in self.settings if name != path}
        return Candidate.of(others if value is None else {**others, path: value})

    def spec(self) -> dict[str, Any]:
        """What a policy's spec says of it, nested as there; {} where all is left to the plan.

        Raises PolicyError for a path below a value.
        """
        made: dict[str, Any] = {}
        for path, value in self.settings:
            if path.startswith(PROGRAM + "."):
                continue
            at, steps = made, path.split(".")
            entry = path.removeprefix(_ENTRIES)
            if entry != path:
                steps = [*_ENTRIES.split(".")[:-1], entry]
            for step in steps[:-1]:
                at = at.setdefault(step, {})
                if not isinstance(at, dict):
                    raise PolicyError(path, value, f"absent where {step} is {at!r}")
            at[steps[-1]] = value if entry == path else str(value)
        return made

    def over(self, spec: Mapping[str, Any]) -> dict[str, Any]:
        """A policy's spec with these settings over it, at each depth."""
        return _over(spec, self.spec())

    def program(self) -> dict[str, Value]:
        """What the program is told: `instances`, `ioBinding`, those that are set."""
        start = PROGRAM + "."
        return {path.removeprefix(start): value for path, value in self.settings if path.startswith(start)}

    @property
    def title(self) -> str:
        """For people: `intraOp 3, spinning Never`; "the plan" where nothing is set."""
        return ", ".join(f"{path.rpartition('.')[2]} {value}" for path, value in self.settings) or "the plan"


def _over(spec: Mapping[str, Any], patch: Mapping[str, Any]) -> dict[str, Any]:
    made = dict(spec)
    for name, value in patch.items():
        below = made.get(name)
        made[name] = _over(below, value) if isinstance(below, Mapping) and isinstance(value, Mapping) else value
    return made

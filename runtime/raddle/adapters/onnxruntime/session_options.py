"""ONNX Runtime's SessionOptions: what the plan changes on one object, and how it is taken back.

Counts, execution mode and graph level are attributes and go back exactly. Config entries can't be removed, and ONNX
Runtime logs a warning whenever one is overwritten: spinning entries therefore stay on the object, remembered as
ours, and affinity is only added to an object that nobody else holds. How counts, spinning and the rest are decided is
in choice.

A signal handler may come between any two steps here, raise, or make a session with the same options object.
"""

from __future__ import annotations

import weakref
from typing import Any

from raddle import RLock, errors


class OptionsState:
    """What is remembered of a living options object: its lock, which of its entries are ours, and the present edit."""

    __slots__ = ("edit", "lock", "ours")

    def __init__(self) -> None:
        self.lock = RLock()
        self.ours: dict[str, str] = {}
        self.edit: Edit | None = None


class Edit:
    """Changes to one options object for one construction.

    `untouched`: the object was made for this very construction, so that no entry of it need be asked for. Asking
    costs 30 µs per entry, since ORT throws where there is none.
    """

    __slots__ = ("attributes", "code", "entries", "options", "present", "state", "undo", "untouched")

    def __init__(self, options: Any, state: OptionsState, *, untouched: bool = False) -> None:
        self.untouched = untouched
        self.options = options
        self.state = state
        self.attributes: list[tuple[str, Any]] = []
        # Key, value, and what to write where the construction fails with it (None: nothing can be).
        self.entries: list[tuple[str, str, str | None]] = []
        # Entries as they are on the object, and those of them that are the code's.
        self.present: dict[str, str] = {}
        self.code: set[str] = set()
        self.undo: list[tuple[str, Any]] = []

    def entry(self, key: str) -> str | None:
        """The value that the code has set, None if it has set none."""
        if self.untouched:
            return None
        try:
            value: str = self.options.get_session_config_entry(key)
        except RuntimeError as error:
            errors.let_through(error)
            return None
        self.present[key] = value
        if self.state.ours.get(key) == value:
            return None
        self.code.add(key)
        return value

    def set(self, attribute: str, value: Any) -> None:
        """Plans the attribute's value, unless the object has it already."""
        if getattr(self.options, attribute) != value:
            self.attributes.append((attribute, value))

    def apply(self) -> None:
        """Makes the changes."""
        for name, value in self.attributes:
            self.undo.append((name, getattr(self.options, name)))
            setattr(self.options, name, value)
        for key, value, _ in self.entries:
            if self.state.ours.get(key) == value:
                # It may be there by now: a session that a signal handler has made writes it too.
                self.entry(key)
            self.state.ours[key] = value
            # Writing the same value again would only make ORT log that it is overwritten.
            if self.present.get(key) != value:
                self.options.add_session_config_entry(key, value)

    def restore(self) -> None:
        """Takes the attributes back; what is left of them where it is called again."""
        while self.undo:
            name, value = self.undo[-1]
            # Not what was not changed: a class of the application's may forbid it.
            if getattr(self.options, name) != value:
                setattr(self.options, name, value)
            self.undo.pop()

    def suspend(self) -> list[tuple[str, Any]]:
        """Gives the attributes the code's values for now; what to `resume` with."""
        edited = [(name, getattr(self.options, name)) for name, _ in self.undo]
        for name, value in reversed(self.undo):
            setattr(self.options, name, value)
        return edited

    def resume(self, edited: list[tuple[str, Any]]) -> None:
        """Gives the attributes their values of before `suspend`."""
        for name, value in edited:
            setattr(self.options, name, value)

    def restore_entries(self) -> None:
        """Writes the code's own values, or ORT's defaults, over our entries; ORT logs a warning for each."""
        for key, _, back in self.entries:
            if back is not None:
                # What was never the code's isn't now.
                self.state.ours[key] = back
                self.options.add_session_config_entry(key, back)
            if key in self.code:
                del self.state.ours[key]


def living(known: dict[weakref.ref[Any], Any]) -> int:
    """The number of objects that are still there; what is known of the others is dropped."""
    for reference in [one for one in list(known) if one() is None]:
        known.pop(reference, None)
    return len(known)

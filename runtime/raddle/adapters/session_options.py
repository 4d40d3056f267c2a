"""ONNX Runtime's SessionOptions: what the plan changes on one object, and how it is taken back.

Counts, execution mode and graph level are attributes and go back exactly. Config entries can't be removed, and ONNX
Runtime logs a warning whenever one is overwritten: spinning entries therefore stay on the object, remembered as
ours, and affinity is only added to an object that nobody else holds. How counts, spinning and the rest are decided is
in ort_choice.
"""

from __future__ import annotations

import threading
import weakref
from typing import Any


class Held:
    """What is remembered of a living options object: its lock, and which of its entries are ours."""

    __slots__ = ("lock", "ours", "ref")

    def __init__(self, ref: weakref.ref[Any]) -> None:
        self.ref = ref
        self.lock = threading.RLock()
        self.ours: dict[str, str] = {}


class Edit:
    """Changes to one options object for one construction.

    `untouched`: the object was made for this very construction, so that no entry of it need be asked for. Asking
    costs 30 µs an entry, since ORT throws where there is none.
    """

    __slots__ = ("attributes", "entries", "held", "options", "undo", "untouched")

    def __init__(self, options: Any, held: Held, *, untouched: bool = False) -> None:
        self.untouched = untouched
        self.options = options
        self.held = held
        self.attributes: list[tuple[str, Any]] = []
        # Key, value, and what to write where the construction fails with it (None: nothing can be).
        self.entries: list[tuple[str, str, str | None]] = []
        self.undo: list[tuple[str, Any]] = []

    def entry(self, key: str) -> str | None:
        """The value that the code has set, None if it has set none."""
        if self.untouched:
            return None
        try:
            value: str = self.options.get_session_config_entry(key)
        except RuntimeError:
            return None
        return None if self.held.ours.get(key) == value else value

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
            # Writing the same value again would only make ORT log that it is overwritten.
            if self.held.ours.get(key) != value:
                self.options.add_session_config_entry(key, value)
                self.held.ours[key] = value

    def restore(self) -> None:
        """Takes the attributes back."""
        while self.undo:
            name, value = self.undo.pop()
            setattr(self.options, name, value)

    def restore_entries(self) -> None:
        """Writes the code's own values, or ORT's defaults, over our entries; ORT logs a warning for each."""
        for key, _, back in self.entries:
            if self.held.ours.pop(key, None) is not None and back is not None:
                self.options.add_session_config_entry(key, back)

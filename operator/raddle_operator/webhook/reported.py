"""Nodes that have no agent, as Node Feature Discovery describes them; nodes of one make share one machine."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from raddle_operator.objects import nfd
from raddle_operator.objects.nfd import NodeReport, ZonesReport
from raddle_operator.webhook.sources import NodeFacts, Reported, Shape

MAX_SHAPES: Final = 1024
"""Kept at once; nodes change theirs only when they are made again."""


class ReportedNodes:
    """One view over what NFD says. A node of which it says too little has no facts."""

    def __init__(self, reported: Reported) -> None:
        self._reported: Final = reported
        self._shapes: Final[dict[tuple[NodeReport, ZonesReport | None], Shape | None]] = {}

    def get(self, name: str) -> NodeFacts | None:
        """A node's facts; None where NFD says too little of it, or nothing."""
        node = self._reported.nodes.store.get(("", name))
        if node is None:
            return None
        zones = self._reported.zones.store.get(("", name))
        # One that is gone from the store lives on here for a while, and does no harm.
        if (node, zones) not in self._shapes:
            if len(self._shapes) >= MAX_SHAPES:
                self._shapes.clear()
            machine = nfd.machine_of(node, zones)
            self._shapes[node, zones] = None if machine is None else Shape(machine)
        shape = self._shapes[node, zones]
        return None if shape is None else NodeFacts(shape, fresh=True)

    def names(self) -> Iterator[str]:
        """The names of all nodes that say anything."""
        return (name for _, name in self._reported.nodes.store)

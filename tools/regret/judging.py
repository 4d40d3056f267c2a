"""What a rule chooses in each recorded cell, and by how much more than the best setting it takes there. Pure.

The best setting of a cell is the objective's, Latency: the lowest p99 and, of those within verdict.TIE, the lowest p50.
It is the lowest of several noisy figures, so a regret of what chance explains is to be expected of any rule.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import assembling
from load import variants
from load.measure import percentile
from load.surface import Figures, Surface, SurfaceCell
from load.verdict import TIE
from raddle.planning.planner import Plan, plan

# A figure's name here, where it is a ratio, -> its field in a surface.
FIGURES: Mapping[str, str] = {"p50": "p50_ms", "p99": "p99_ms", "cpu": "cpu_ms_per_request"}
# A rule names the setting for a cell of a surface.
Rule = Callable[[Surface, SurfaceCell], str]
# A count that was not recorded may stand for one that is at most so many octaves off and spins alike: 7 threads for 8.
_NEAR_OCTAVES = 0.5


def by_default(surface: Surface, cell: SurfaceCell) -> str:
    """What the planner chooses for a container of which nothing is known but its limit."""
    return _planned(surface, cell, 0)


def with_load(surface: Surface, cell: SurfaceCell) -> str:
    """What the planner chooses where the policy states the load."""
    return _planned(surface, cell, 1)


RULES: Mapping[str, Rule] = {"by default": by_default, "with load": with_load}


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """One rule in one cell. `recorded` is the setting whose figures stand for the chosen one; None: none is near."""

    surface: str
    rule: str
    cell: SurfaceCell
    chosen: str
    recorded: str | None
    best: str

    @property
    def regret(self) -> dict[str, float] | None:
        """Of each figure the chosen setting's ratio to the best one's, less 1; None where it was not recorded."""
        if self.recorded is None:
            return None
        ours, theirs = (median(self.cell, setting) for setting in (self.recorded, self.best))
        return {name: getattr(ours, field) / getattr(theirs, field) - 1 for name, field in FIGURES.items()}

    @property
    def beyond_noise(self) -> list[str]:
        """The figures in which each run of the chosen setting is above each run of the best one."""
        return self._above(self.best)

    @property
    def harm(self) -> list[str]:
        """The figures in which each run of the chosen setting is above each run of stock."""
        return self._above(variants.STOCK)

    def _above(self, other: str) -> list[str]:
        ours, theirs = (self.cell.settings.get(name, ()) for name in (self.recorded or "", other))
        if not ours or not theirs:
            return []
        return [
            name
            for name, field in FIGURES.items()
            if min(getattr(run, field) for run in ours) > max(getattr(run, field) for run in theirs)
        ]


def all_judged(surfaces: Mapping[str, Surface], rules: Mapping[str, Rule] = RULES) -> list[Judgement]:
    """Each rule in every cell of the surfaces, cell by cell."""
    return [
        Judgement(
            surface=name, rule=rule, cell=cell, chosen=chosen, recorded=nearest(chosen, cell.settings), best=best(cell)
        )
        for name, surface in surfaces.items()
        for cell in surface.cells
        for rule, choose in rules.items()
        for chosen in [choose(surface, cell)]
    ]


def best(cell: SurfaceCell) -> str:
    """The setting with the lowest p99 or one within TIE of it, and of these the lowest p50."""
    medians = {name: median(cell, name) for name in cell.settings}
    lowest_ms = min(one.p99_ms for one in medians.values())
    return min(
        (name for name, one in medians.items() if one.p99_ms <= TIE * lowest_ms), key=lambda n: medians[n].p50_ms
    )


def median(cell: SurfaceCell, setting: str) -> Figures:
    """The figures of a recorded setting: medians of its runs."""
    return Figures(*map(statistics.median, zip(*cell.settings[setting], strict=True)))


def nearest(setting: str, recorded: Mapping[str, Any]) -> str | None:
    """The recorded setting that stands for this one: itself, else one that spins alike with nearly as many threads."""
    if setting in recorded:
        return setting
    count, _, spin = setting.partition(":")

    def octaves(other: str) -> float:
        other_count, _, other_spin = other.partition(":")
        alike = other_count.isdecimal() and count.isdecimal() and other_spin == spin
        return abs(math.log2(int(other_count) / int(count))) if alike else math.inf

    result = min(recorded, key=octaves)
    return result if octaves(result) <= _NEAR_OCTAVES else None


def summaries(judged: Sequence[Judgement]) -> dict[str, dict[str, dict[str, Any]]]:
    """By surface and by rule: mean, 95th percentile and worst regret in each figure, and counts of cells."""
    parts: dict[str, dict[str, list[Judgement]]] = {}
    for one in judged:
        parts.setdefault(one.surface, {}).setdefault(one.rule, []).append(one)
    return {name: {rule: _summary(ones) for rule, ones in by_rule.items()} for name, by_rule in parts.items()}


def _summary(judged: Sequence[Judgement]) -> dict[str, Any]:
    regrets = [one.regret for one in judged if one.regret is not None]
    return {
        "cells": len(judged),
        "not_recorded_cells": len(judged) - len(regrets),
        "worse_than_stock_cells": sum(bool(one.harm) for one in judged),
        "regret": {name: _statistics([one[name] for one in regrets]) for name in FIGURES},
    }


def _statistics(values: Sequence[float]) -> dict[str, float]:
    if not values:
        return {}
    result = {"mean": statistics.fmean(values), "p95": percentile(sorted(values), 95), "worst": max(values)}
    return {name: round(value, 3) for name, value in result.items()}


def _planned(surface: Surface, cell: SurfaceCell, which: int) -> str:
    machine = surface.machine
    policy = variants.policies(cell.conditions, cell.service_ms / 1000)[which]
    topology = assembling.regular(machine.cores, machine.cpus // machine.cores)
    return setting_of(plan(topology, variants.budget(cell.conditions), policy))


def setting_of(made: Plan) -> str:
    """The plan's pool in the words of a surface."""
    if made.intra_op is None:
        return variants.STOCK
    spins = made.exclusive_spinning or made.spinning
    spin = str(made.spin_duration_us) if spins == "bounded" else spins
    return "1" if made.intra_op == 1 else f"{made.intra_op}:{spin}"

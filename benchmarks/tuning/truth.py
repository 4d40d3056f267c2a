"""What is true of a surface, without noise: its best candidate, and how far behind it another one is."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from raddle_operator.results.candidate import Candidate, Value
from raddle_operator.results.objective import Kind
from raddle_tuner.search import statistics
from raddle_tuner.search.blocks import Block
from raddle_tuner.search.space import INSTANCES, SPIN_US, SPINNING, THREADS
from tuning.peers import SECONDS, USUAL_BLOCK_S, block_s
from tuning.surface import SHAPE, Noise, Player, Surface

FIGURE = {Kind.LATENCY: "p99_ms", Kind.THROUGHPUT: "throughput", Kind.COST: "cpu_ms_per_request"}
# Proofs that are played to know their noise.
_PROOFS = 24
_SHORT = 4_000
_WORTH_A_LONG_LOOK = 8


@dataclass(frozen=True)
class Truth:
    """Answers for one surface, each kept."""

    surface: Surface

    def __hash__(self) -> int:
        return hash(self.surface.name)

    @functools.cache  # noqa: B019
    def cost(self, candidate: Candidate, requests: int = 40_000) -> float:
        """The objective's figure, the reciprocal for throughput; inf where the bound is not kept."""
        result = self.surface.true(candidate, requests)
        objective = self.surface.objective
        if result is None or (objective.p99_ms is not None and result["p99_ms"] > objective.p99_ms):
            return math.inf
        figure = result[FIGURE[objective.kind]]
        return 1 / figure if objective.kind is Kind.THROUGHPUT else figure

    @functools.cached_property
    def best(self) -> Candidate:
        """The best of all shapes that the surface has, with each factor's best value."""
        wanted = self.surface.objective.kind is Kind.COST
        factors = {}
        for path, values in self.surface.factors.items():
            value, times = min(values.items(), key=lambda pair: pair[1][wanted])
            if times[wanted] < 1 and self.surface.space().axis(path) and not path.startswith(SHAPE):
                factors[path] = value
        shapes = []
        for (spins, instances), counts in self.surface.shapes.items():
            for threads in counts:
                settings = {**factors, THREADS: threads, **_spinning(spins)}
                if instances > 1:
                    settings |= {INSTANCES: instances, "budget.workersPerContainer": instances}
                shapes.append(Candidate.of(settings))
        shapes.sort(key=lambda candidate: self.cost(candidate, _SHORT))
        return min([*shapes[:_WORTH_A_LONG_LOOK], Candidate()], key=self.cost)

    def regret(self, candidate: Candidate) -> float:
        """How much worse than the best, in percent."""
        return 100 * (self.cost(candidate) / self.cost(self.best) - 1)

    @functools.cached_property
    def visible(self) -> float:
        """The smallest difference, in percent, that a proof with all of the budget shows in half of the cases.

        A proof: as many fresh pairs as the budget has blocks for, none disturbed, at 95 %; its noise: that of the best
        with itself.
        """
        objective, player = self.surface.objective, Player(self.surface, Noise(neighbour=0.0), 1)
        pairs, ratios = int(SECONDS / USUAL_BLOCK_S) // 2, []
        for proof in range(_PROOFS):
            result: tuple[list[Block], list[Block]] = ([], [])
            for pair in range(pairs):
                for blocks in result:
                    blocks.append(player.block(self.best, block_s(self.surface), pairs * proof + pair))
            one, other = (figure_of(objective.kind, blocks) for blocks in result)
            ratios.append(math.log(one / other))
        return float(100 * math.expm1(1.96 * np.sqrt(np.mean(np.square(ratios)))))


def figure_of(kind: Kind, blocks: Sequence[Block]) -> float:
    """What the objective is about, of all these blocks together: p99 in ms, requests a second, CPU ms a request."""
    if kind is Kind.THROUGHPUT:
        return sum(block.throughput * block.seconds for block in blocks) / sum(block.seconds for block in blocks)
    return (statistics.p99_ms if kind is Kind.LATENCY else statistics.cpu_ms_per_request)(blocks) or math.inf


def _spinning(spins: str) -> dict[str, str | int]:
    if spins in ("never", "always"):
        return {SPINNING: spins.capitalize()}
    return {SPINNING: "Bounded", f"onnxruntime.configEntries.{SPIN_US}": int(spins)}


def flat(surface: Surface, planted: float) -> Surface:
    """The surface where no setting matters but IO binding, which makes all this much faster (0.03: 3 %)."""
    times, _ = surface.times(Candidate()) or (None, 0)
    assert times is not None
    shapes = {key: dict.fromkeys(counts, times) for key, counts in surface.shapes.items()}
    factors: dict[str, dict[Value, tuple[float, float]]] = {"program.ioBinding": {True: (1 - planted, 1 - planted)}}
    # Another instance would spare requests their waiting, which is a gain.
    case = replace(surface.case, can=("ioBinding",))
    return replace(surface, case=case, shapes=shapes, factors=factors)


def differences(
    surface: Surface, other: Candidate, player: Player, pairs: int
) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Losses of the other less the plan's, of so many pairs."""
    kind, result = surface.objective.kind, []
    for pair in range(pairs):
        losses = [
            statistics.loss(kind, player.block(one, block_s(surface), pair)) or 0.0
            for one in ([Candidate(), other] if pair % 2 else [other, Candidate()])
        ]
        result.append((losses[1] - losses[0]) * (1 if pair % 2 else -1))
    return np.array(result)

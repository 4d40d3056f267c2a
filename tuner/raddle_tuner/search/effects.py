"""What settings are worth, learned from all blocks at once.

The logarithm of a block's figure is taken as a sum: what its arrivals and its time did to it, what its shape is worth
(threads, spinning and instances together, alike where they are near each other), what each other setting adds, and
noise. With
normal distributions for all of these what is known is one too (Bayesian linear regression; over the shapes a Gaussian
process). A draw from it is one way in which things may be, and what would be best then deserves a block (Thompson
sampling): each block tells of all settings that it has, and most of them go where it matters.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from math import log2
from typing import Any, Final, NamedTuple

import numpy as np
from scipy import linalg

from raddle.planning.kinds import PolicyError
from raddle_operator.results.candidate import Candidate
from raddle_tuner.search.space import INSTANCES, SPIN_US, SPINNING, THREADS, Axis, Case, Space

Array = np.ndarray[Any, np.dtype[np.float64]]

# What is expected before anything is measured, as standard deviations of the logarithm: what threads, spinning,
# instances and threads in all do each alone and all together, what one shape has of its own, what another setting does,
# what arrivals and the time of a round do to all.
_ALONE: Final = 0.3
_TOGETHER: Final = 0.2
_OWN: Final = 0.05
_OTHER: Final = 0.05
_ARRIVALS: Final = 0.2
_TURN: Final = 0.02
# How far shapes have something in common: octaves of threads, steps of spinning, octaves of instances, of all threads.
_REACH: Final = (2.0, 2.5, 2.0, 2.0)
# What two figures of a block have in common, as correlations: of shapes, of other settings, of rounds and of noise.
_SAME_SHAPE: Final = 0.9
_SAME_OTHER: Final = 0.99
_SAME_ROUND: Final = 0.8
_SAME_NOISE: Final = 0.4
# By how much more than the best of its round a block is worse doesn't matter: a queue that grows has no end.
_WORSE: Final = 1.0
# A setting is left as it was for less than this.
_SIMPLER: Final = 0.002
# Thread counts that are tried in an octave, besides those of the space.
_FINE: Final = 4
# Noise is searched for at so many times the variance that the A/A shows: it has few pairs.
_SCALES: Final = (0.5, 1.0, 2.0, 4.0)
# So many blocks suffice for that.
_FEW: Final = 100


class Observation(NamedTuple):
    """A block: `losses` are logarithms of its figures, the one that is aimed at first.

    Blocks of equal `seed` had the same arrivals, those of equal `turn` were measured soon after each other.
    """

    candidate: Candidate
    seed: int
    turn: int
    losses: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Effects:
    """What candidates are made of: one of `shapes` and one choice of each of `others`; the first is the baseline's.

    `keys` are the shapes' own, by which equal ones are found. `prior` is the covariance of what each of these parts is
    worth. `parts` says of each candidate that was made which they are, `out` which of them can't be used.
    """

    shapes: tuple[Candidate, ...]
    keys: Mapping[Hashable, int]
    others: tuple[tuple[Axis, tuple[Candidate, ...]], ...]
    prior: Array
    parts: dict[Candidate, tuple[int, ...]] = field(default_factory=dict)
    out: set[int] = field(default_factory=set)

    @classmethod
    def of(cls, space: Space, baseline: Candidate) -> Effects:
        """Those of a space, before anything is measured. Raises PolicyError for a baseline that can't be planned."""
        others = tuple(
            (axis, (Candidate(), *(choice for _, choice in axis.choices)))
            for axis in space.axes
            if axis.name not in (THREADS, SPINNING, INSTANCES)
        )
        keyed = _shapes(space, baseline)
        shapes = tuple(keyed.values())
        count = len(shapes) + sum(len(choices) for _, choices in others)
        prior = np.eye(count) * _OTHER**2
        prior[: len(shapes), : len(shapes)] = _alike(space.case, shapes)
        effects = cls(shapes, {key: number for number, key in enumerate(keyed)}, others, prior)
        effects._made(0, [0] * len(others))
        return effects

    def alone(self, part: int) -> Candidate:
        """The baseline but for one part."""
        values = np.ones(len(self.prior))
        values[[*self.parts[self.shapes[0]]]] = 0.0
        values[part] = -1.0
        return self.best(values)

    def without(self, candidate: Candidate, axis: Axis, case: Case) -> tuple[int, ...]:
        """The parts of a candidate that was made, but for an axis that is left as the baseline has it."""
        shape, *rest = self.parts[candidate]
        for number, (other, _) in enumerate(self.others):
            if other == axis:
                rest[number] = self.parts[self.shapes[0]][1 + number]
        shape = self.keys.get(case.key(axis.without(self.shapes[shape])), shape)
        return shape, *rest

    def best(self, values: Array) -> Candidate:
        """The best candidate where its parts are worth this; lower is better."""
        values = values.copy()
        values[list(self.out)] = np.inf
        at = len(self.shapes)
        shape, chosen = int(np.argmin(values[:at])), []
        for _, choices in self.others:
            chosen.append(int(np.argmin(values[at : at + len(choices)])))
            at += len(choices)
        return self._made(shape, chosen)

    def _made(self, shape: int, chosen: Sequence[int]) -> Candidate:
        made, at, parts = self.shapes[shape], len(self.shapes), [shape]
        for (axis, choices), number in zip(self.others, chosen, strict=True):
            made = axis.applied(made, choices[number]) if number else made
            parts.append(at + number)
            at += len(choices)
        self.parts.setdefault(made, tuple(parts))
        return made

    def fitted(self, seen: Sequence[Observation], variances: Sequence[float]) -> Fit:
        """What these blocks say of what each part is worth in the first figure; `variances` are the figures' noise."""
        parts = np.array([self.parts[one.candidate] for one in seen])
        turns = np.array([one.turn for one in seen])
        losses = np.array([one.losses for one in seen])
        for turn in np.unique(turns):
            here = turns == turn
            losses[here] = np.minimum(losses[here], losses[here].min(axis=0) + _WORSE)
        losses -= np.median(losses, axis=0)
        figures, seeds = len(variances), np.array([one.seed for one in seen])
        alike = _ARRIVALS**2 * (seeds[:, None] == seeds) + _TURN**2 * (turns[:, None] == turns)
        worth = self.prior[:, parts].sum(axis=2)
        of_shapes = worth[parts[:, 0]]
        of_others = worth[parts[:, 1:]].sum(axis=1)

        def between(of: Callable[[float, float, float], Array]) -> Array:
            """For each two figures what their blocks have in common."""
            same, apart = of(1, 1, 1), of(_SAME_SHAPE, _SAME_OTHER, _SAME_ROUND)
            return np.block([[same if one == other else apart for other in range(figures)] for one in range(figures)])

        known = between(lambda shape, other, turn: shape * of_shapes + other * of_others + turn * alike)
        common = np.where(np.eye(figures), 1.0, _SAME_NOISE)
        noises = [
            np.kron(common * np.sqrt(np.outer(scaled, scaled)), np.eye(len(seen)))
            for scaled in (np.multiply(variances, scales) for scales in product(_SCALES, repeat=figures))
        ]
        values = losses.T.ravel()
        few = np.flatnonzero(np.tile(np.arange(len(seen)) < _FEW, figures))
        part = np.ix_(few, few)
        blocks = known + max(noises, key=lambda noise: _likelihood(known[part] + noise[part], values[few]))
        same = np.where(np.arange(len(self.prior)) < len(self.shapes), _SAME_SHAPE, _SAME_OTHER)[:, None]
        worth = np.hstack([worth, *[same * worth] * (figures - 1)])
        solved = np.linalg.solve(blocks, worth.T).T
        return Fit(self, solved @ values, self.prior - solved @ worth.T)


def _likelihood(covariance: Array, values: Array) -> float:
    root = np.linalg.cholesky(covariance)
    whitened = linalg.solve_triangular(root, values, lower=True, check_finite=False)
    return float(-0.5 * whitened @ whitened - np.log(np.diag(root)).sum())


@dataclass(frozen=True, slots=True)
class Fit:
    """What each part is worth: a normal distribution; lower is better."""

    effects: Effects
    mean: Array
    covariance: Array

    def loss(self, candidate: Candidate) -> float:
        """What a candidate that was made comes to, on average; comparable between candidates."""
        return float(self.mean[[*self.effects.parts[candidate]]].sum())

    def difference(self, one: Sequence[int], other: Sequence[int]) -> tuple[float, float]:
        """How much higher one candidate's loss is than another's, both by their parts, and the standard deviation."""
        signs = np.zeros(len(self.mean))
        np.add.at(signs, list(one), 1.0)
        np.add.at(signs, list(other), -1.0)
        return float(signs @ self.mean), max(0.0, float(signs @ self.covariance @ signs)) ** 0.5

    def best(self) -> Candidate:
        """The best on average, as the baseline in all that hardly matters."""
        values = self.mean + _SIMPLER
        values[[*self.effects.parts[self.effects.shapes[0]]]] -= _SIMPLER
        return self.effects.best(values)

    def drawn(self, rng: np.random.Generator, count: int, among: Sequence[Candidate] = ()) -> list[Candidate]:
        """The best in each of so many draws; of these candidates, where there are any."""
        size = len(self.mean)
        root = np.linalg.cholesky(self.covariance + 1e-9 * np.eye(size))
        draws = self.mean + rng.standard_normal((count, size)) @ root.T
        if not among:
            return [self.effects.best(values) for values in draws]
        parts = np.array([self.effects.parts[one] for one in among])
        return [among[int(np.argmin(values[parts].sum(axis=1)))] for values in draws]


def _alike(case: Case, shapes: Sequence[Candidate]) -> Array:
    """The covariance of what the shapes are worth."""
    places = np.array([_place(case, shape) for shape in shapes])
    apart = np.sqrt(3) * np.abs(places[:, None] - places) / _REACH
    alike = (1 + apart) * np.exp(-apart)  # Matérn's, of roughness 3/2
    together = alike[:, :, :3].prod(axis=2)
    return np.asarray(_ALONE**2 * alike.sum(axis=2) + _TOGETHER**2 * together + _OWN**2 * np.eye(len(shapes)))


def _place(case: Case, shape: Candidate) -> tuple[float, float, float, float]:
    """Where it is: octaves of threads, steps of spinning, octaves of instances and of threads in all."""
    wanted, plan = case.planned(shape)
    threads, instances = max(1, plan.intra_op or 1), int(shape.get(INSTANCES) or 1)
    spins = plan.exclusive_spinning or plan.spinning
    spin_us = float(dict(wanted.config_entries).get(SPIN_US, plan.spin_duration_us))
    steps = {"never": 0.0, "bounded": 1 + log2(max(spin_us, 25.0) / 50) / 2, "always": 6.0}
    return log2(threads), steps.get(spins, 0.0), log2(instances), log2(threads * instances)


def _shapes(space: Space, baseline: Candidate) -> dict[Hashable, Candidate]:
    """Each that comes to something of its own, the baseline's first."""
    result = {space.case.key(baseline): baseline}
    for shape in dict.fromkeys(_combined(space, baseline)):
        try:
            result.setdefault(space.case.key(shape), shape)
        except PolicyError:
            continue
    return result


def _combined(space: Space, baseline: Candidate) -> Iterator[Candidate]:
    threads, spinning, instances = (space.axis(name) or Axis(name, ()) for name in (THREADS, SPINNING, INSTANCES))
    counts = {_threads(choice) for _, choice in threads.choices}
    counts |= set(_finer(max(counts))) if threads.open else set()
    shared, threads_alone = ([choice for _, choice in axis.choices] for axis in (instances, threads))
    for choice in (Candidate(), *shared):
        # As many threads in all as the axes have.
        most = max(
            (_instances(one) * _threads(one) for one in (shared if choice.settings else threads_alone)), default=0
        )
        one = instances.applied(baseline, choice)
        few = [
            threads.applied(one, Candidate.of({THREADS: count}))
            for count in sorted(counts)
            if count <= most // _instances(choice)
        ]
        for shape in (one, *few):
            yield shape
            yield from (spinning.applied(shape, spins) for _, spins in spinning.choices)


def _threads(candidate: Candidate) -> int:
    return int(candidate.get(THREADS) or 1)


def _instances(candidate: Candidate) -> int:
    return int(candidate.get(INSTANCES) or 1)


def _finer(most: int) -> Iterator[int]:
    """1, 2, 3, 4, 5, 6, 7, 8, 10 ... `most`: all, then some in each octave."""
    yield from {round(2 ** (step / _FINE)) for step in range(int(_FINE * log2(most)) + 1)}

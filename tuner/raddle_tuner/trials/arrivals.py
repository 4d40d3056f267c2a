"""When the requests of a block are due."""

from __future__ import annotations

import random


def due(rate: float, seconds: float, seed: int | None, burst: int = 1) -> list[float]:
    """The seconds after the start at which requests are due, ascending: `rate` times `seconds` of them, at least one.

    With a seed they arrive by chance, as a Poisson process does of which the count is known: the same ones for the same
    seed. Without one they are evenly spaced, `burst` of them at once.
    """
    count = max(1, round(rate * seconds))
    if seed is None:
        return [(number - number % burst) / rate for number in range(count)]
    chance = random.Random(seed)  # noqa: S311 - no secret is made of it
    return sorted(chance.uniform(0, seconds) for _ in range(count))

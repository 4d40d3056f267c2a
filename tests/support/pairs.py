"""Few combinations in which every two settings meet: what breaks by two things at once shows without the whole product."""

import itertools


def pairwise(*dimensions):
    """Return combinations, one item of each dimension, so that any two items of two dimensions are together in one."""
    numbers = list(itertools.product(*(range(len(items)) for items in dimensions)))
    wanted = {pair for combination in numbers for pair in pairs(combination)}
    chosen = []
    while wanted:
        best = max(numbers, key=lambda combination: len(wanted & pairs(combination)))
        wanted -= pairs(best)
        chosen.append(tuple(items[number] for items, number in zip(dimensions, best, strict=True)))
    return chosen


def pairs(combination):
    """All pairs of a combination's items, each with its dimension."""
    return set(itertools.combinations(enumerate(combination), 2))

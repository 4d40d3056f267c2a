"""The webhook's answers to random pods, policies and reviews, 200 for a seed; and that a fault would be noticed."""

import asyncio
import json
import logging
import random

import pytest
from support import podmaker, reviews


@pytest.mark.seeds(5000, few=3)
def test_every_answer_allows_every_patch_applies_and_a_second_answer_has_none(seeds):
    assert reviews.failures(seeds) == []


@pytest.mark.parametrize("seed", [13, 593, 834, 1039, 1092, 1481])
def test_what_it_has_found_stays_mended(seed):
    """A user's init container taken for ours; one that is ours counted for the pod's QoS class, and then removed;
    a mount of ours that is removed taken for what stands in the shim's way; Java's options
    that a variable's first entry had from the user taken for ours in the last; variables of OpenMP that Override replaces taken for the user's choice.
    """
    assert reviews.failures([seed]) == []


def test_the_cases_are_no_idle_ones():
    """A good share is changed, skipped for many reasons, bound with a node's values, or no pod at all."""

    async def decisions():
        found = {}
        for seed in range(6):
            world = reviews.KnownCluster(random.Random(f"world {seed}"))
            for number in range(75):
                [*_] = await reviews.problems(world, random.Random(f"{seed} {number}"))
            for line in world.metrics.text().decode().splitlines():
                if line.startswith("raddle_webhook_requests_total{"):
                    labels, _, value = line.rpartition(" ")
                    found[labels] = found.get(labels, 0) + float(value)
        return found

    counts = asyncio.run(decisions())
    changed = sum(count for labels, count in counts.items() if 'decision="changed"' in labels)
    assert changed > 0.2 * sum(counts.values())
    assert len(counts) > 8


def test_pods_are_equal_for_an_equal_seed():
    made = [json.dumps(podmaker.pod(random.Random(7))) for _ in range(2)]
    assert made[0] == made[1]


def test_logging_is_as_it_was_before():
    before = logging.root.manager.disable
    reviews.failures(range(0))
    assert logging.root.manager.disable == before

"""Placement on random machines: 32 containers with their policies on each, against the invariants of every plan."""

from random import Random

import pytest
from support.placement import random_budgets, random_machines
from support.placement.invariants import in_the_container, violations, wider
from support.placement.reference import Picture

from raddle.planning.planner import plan

# A machine costs more to make than a plan, so it serves several containers.
CONTAINERS = 32
# Large machines cost more and find little that small ones don't; the largest are still thousands in a million cases.
SIZES = (1, 4, 16, 16, 64, 64, 64, 256, 256, 1024)


def case(rng, number, machine, picture):
    """What does not hold in one case of a machine."""
    policy = random_budgets.policy(rng)
    if number == 0:
        made = plan(rng.choice((machine, None)), random_budgets.absurd(rng), policy)
        return [] if made.intra_op is None or made.intra_op >= 1 else [f"intraOp {made.intra_op}"]
    if number < 5:
        return list(wider(machine, random_budgets.pair(rng, machine), policy))
    budget = random_budgets.budget(rng, machine)
    if number == 5:
        return list(violations(None, budget._replace(cpus=None), policy))
    if number < 10:
        return list(in_the_container(machine, budget, policy))
    return list(violations(machine, budget, policy, picture))


@pytest.mark.seeds(31_250)
def test_a_plan_keeps_every_invariant_on_a_random_machine(seeds):
    for seed in seeds:
        rng = Random(seed)
        machine = random_machines.machine(rng, rng.choice(SIZES))
        picture = Picture(machine)
        for number in range(CONTAINERS):
            assert case(rng, number, machine, picture) == [], f"seed {seed}, case {number}"

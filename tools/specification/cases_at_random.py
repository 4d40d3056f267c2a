"""One random case after another for a seed, and what does not hold in it: what the fuzzer runs a million times."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from raddle.planning.planner import plan
from specification import random_budgets, random_machines
from specification.invariants import in_the_container, violations, wider
from specification.reference import Picture

# A machine costs more to make than a plan, so it serves several containers.
CASES_A_MACHINE = 32
# Large machines cost more and find little that small ones don't; the largest are still thousands in a million cases.
SIZES = (1, 4, 16, 16, 64, 64, 64, 256, 256, 1024)


def cases(seed: int) -> Iterator[list[str]]:
    """What does not hold in each of the CASES_A_MACHINE cases of a seed; an exception counts as that."""
    rng = Random(seed)
    machine = random_machines.machine(rng, rng.choice(SIZES))
    picture = Picture(machine)
    for number in range(CASES_A_MACHINE):
        policy = random_budgets.policy(rng)
        try:
            if number == 0:
                yield _of_absurd_numbers(rng, seed)
            elif number < 5:
                yield list(wider(machine, random_budgets.pair(rng, machine), policy))
            elif number == 5:
                yield list(violations(None, random_budgets.budget(rng, machine)._replace(cpus=None), policy))
            elif number < 10:
                yield list(in_the_container(machine, random_budgets.budget(rng, machine), policy))
            else:
                yield list(violations(machine, random_budgets.budget(rng, machine), policy, picture))
        except Exception as error:  # noqa: BLE001  # whatever it is, the planner never raises
            yield [f"raised {error!r}"]


def _of_absurd_numbers(rng: Random, seed: int) -> list[str]:
    machine = random_machines.machine(rng, 16) if seed % 2 else None
    made = plan(machine, random_budgets.absurd(rng), random_budgets.policy(rng))
    return [] if made.intra_op is None or made.intra_op >= 1 else [f"intraOp {made.intra_op}"]

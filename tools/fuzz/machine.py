"""Fuzzes placement: random machines, budgets and policies against the invariants. `python -m fuzz.machine --cases N`.

Each seed is a machine of 1 to 1024 CPUs with some containers on it (tools/specification). A violation is printed with
its seed and the command that shows it again. All CPUs are used; exit status 1 if anything did not hold.
"""

from __future__ import annotations

import sys

from fuzz.seeds import Fuzzer
from specification.cases_at_random import CASES_A_MACHINE, cases


def failures(seeds: range) -> list[tuple[int, int, str]]:
    """(seed, case, what does not hold) for these seeds, in order."""
    return [
        (seed, number, sentence)
        for seed in seeds
        for number, sentences in enumerate(cases(seed))
        for sentence in sentences
    ]


FUZZER = Fuzzer(
    name="machine",
    seed_is="machine",
    cases=CASES_A_MACHINE,
    seeds_a_task=64,
    default_cases=1_000_000,
    failures=failures,
)

if __name__ == "__main__":
    sys.exit(FUZZER.main(__doc__, None))

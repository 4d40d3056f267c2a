"""Fuzzes placement: random machines, budgets and policies against the invariants. `python -m fuzz.machine --cases N`.

Each seed is a machine of 1 to 1024 CPUs with some containers on it (tools/specification). A violation is printed with
its seed and the command that shows it again. All CPUs are used; exit status 1 if anything did not hold.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor

from specification.cases_at_random import CASES_A_MACHINE, cases

DEFAULT_CASES = 1_000_000
SEEDS_A_TASK = 64
# Enough to see what is wrong; a broken rule breaks in thousands of cases.
MAX_SHOWN = 20
PROGRESS_S = 10.0


def failures(seeds: range) -> list[tuple[int, int, str]]:
    """(seed, case, what does not hold) for these seeds, in order."""
    return [
        (seed, number, sentence)
        for seed in seeds
        for number, sentences in enumerate(cases(seed))
        for sentence in sentences
    ]


def run(first: int, count: int, workers: int) -> int:
    """The exit status of trying `count` seeds from `first` on in `workers` processes; prints progress and failures."""
    tasks = [
        range(start, min(start + SEEDS_A_TASK, first + count)) for start in range(first, first + count, SEEDS_A_TASK)
    ]
    started = shown = time.monotonic()
    done = failed = 0
    for seeds, found in _results(tasks, workers):
        done += len(seeds)
        for seed, number, sentence in found[: max(0, MAX_SHOWN - failed)]:
            print(f"seed {seed}, case {number}: {sentence}\n    python -m fuzz.machine --seed {seed}", flush=True)
        failed += len(found)
        if time.monotonic() - shown > PROGRESS_S:
            shown = time.monotonic()
            print(f"machine: {done * CASES_A_MACHINE} cases, {failed} violations, {shown - started:.0f} s", flush=True)
    print(f"machine: {done * CASES_A_MACHINE} cases on {done} machines, {failed or 'no'} violations")
    return 1 if failed else 0


def _results(tasks: list[range], workers: int) -> Iterator[tuple[range, list[tuple[int, int, str]]]]:
    if workers == 1:
        yield from ((seeds, failures(seeds)) for seeds in tasks)
        return
    with ProcessPoolExecutor(workers) as pool:
        yield from zip(tasks, pool.map(failures, tasks), strict=True)


def main(arguments: list[str] | None = None) -> int:
    """Runs the fuzzer; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=DEFAULT_CASES, help=f"cases to try (default {DEFAULT_CASES})")
    parser.add_argument("--seed", type=int, help="only this machine")
    parser.add_argument("--first", type=int, default=0, help="the first seed (default 0)")
    parser.add_argument(
        "--workers", type=int, default=len(os.sched_getaffinity(0)), help="processes (default: all CPUs)"
    )
    chosen = parser.parse_args(arguments)
    if chosen.seed is not None:
        return run(chosen.seed, 1, 1)
    return run(chosen.first, -(-chosen.cases // CASES_A_MACHINE), chosen.workers)


if __name__ == "__main__":
    sys.exit(main())

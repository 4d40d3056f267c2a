"""Tries seeds in all processes that there are CPUs for: the command of each fuzzer whose cases follow from a number."""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass

Failure = tuple[int, int, str]

# Enough to see what is wrong; a broken rule breaks in thousands of cases.
MAX_SHOWN = 20
PROGRESS_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Fuzzer:
    """A module's fuzzer. `failures` gives (seed, case, what does not hold) for seeds, in order; each has `cases`."""

    name: str
    """The module's, in `python -m fuzz.NAME`."""
    seed_is: str
    """What a seed is, in one word."""
    cases: int
    seeds_a_task: int
    default_cases: int
    failures: Callable[[range], list[Failure]]

    def main(self, description: str | None, arguments: list[str] | None) -> int:
        """Runs the fuzzer; the exit status."""
        cpus = len(os.sched_getaffinity(0))
        parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
        default = self.default_cases
        parser.add_argument("--cases", type=int, default=default, help=f"cases to try (default {default})")
        parser.add_argument("--seed", type=int, help=f"only this {self.seed_is}")
        parser.add_argument("--first", type=int, default=0, help="the first seed (default 0)")
        parser.add_argument("--workers", type=int, default=cpus, help="processes (default: all CPUs)")
        chosen = parser.parse_args(arguments)
        if chosen.seed is not None:
            return self.run(chosen.seed, 1, 1)
        return self.run(chosen.first, -(-chosen.cases // self.cases), chosen.workers)

    def run(self, first: int, count: int, workers: int) -> int:
        """The exit status of trying `count` seeds from `first` on; prints progress and failures."""
        last, step = first + count, self.seeds_a_task
        tasks = [range(start, min(start + step, last)) for start in range(first, last, step)]
        started = shown = time.monotonic()
        done = failed = 0
        for seeds, found in self._results(tasks, workers):
            done += len(seeds)
            for seed, number, sentence in found[: max(0, MAX_SHOWN - failed)]:
                again = f"python -m fuzz.{self.name} --seed {seed}"
                print(f"seed {seed}, case {number}: {sentence}\n    {again}", flush=True)
            failed += len(found)
            if time.monotonic() - shown > PROGRESS_S:
                shown = time.monotonic()
                so_far = f"{done * self.cases} cases, {failed} violations, {shown - started:.0f} s"
                print(f"{self.name}: {so_far}", flush=True)
        print(f"{self.name}: {done * self.cases} cases of {done} {self.seed_is}s, {failed or 'no'} violations")
        return 1 if failed else 0

    def _results(self, tasks: list[range], workers: int) -> Iterator[tuple[range, list[Failure]]]:
        if workers == 1:
            yield from ((seeds, self.failures(seeds)) for seeds in tasks)
            return
        with ProcessPoolExecutor(workers) as pool:
            yield from zip(tasks, pool.map(self.failures, tasks), strict=True)

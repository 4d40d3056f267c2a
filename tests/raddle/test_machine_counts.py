"""Counts that code copies from the machine, told from those that it has chosen."""

import os

import pytest

from raddle.process import machine_counts
from raddle.process.current import Facts
from raddle.process.resolution import resolve

EVERY = os.cpu_count()


@pytest.mark.parametrize(
    ("online", "allowed", "threads_per_core", "counts"),
    [
        (64, 64, 2, {64, 63, 32, 31}),
        # Of a cpuset of eight, on a machine with one thread in each core.
        (64, 8, 1, {64, 63, 32, 8, 7, 4}),
    ],
)
def test_code_copies_all_cpus_all_cores_half_of_them_and_one_less(online, allowed, threads_per_core, counts):
    assert machine_counts.of_machine(online, allowed, threads_per_core) == counts


@pytest.mark.skipif(EVERY < 2, reason="needs two CPUs")
@pytest.mark.parametrize(
    ("count", "facts", "is_copied"),
    [
        (EVERY, Facts(None, 1.0), True),
        (EVERY + 1, Facts(None, 1.0), False),
        # The process may use as many, or it is not known what it may use.
        (EVERY, Facts((1 << EVERY) - 1), False),
        (EVERY, Facts(None), False),
        (str(EVERY), Facts(None, 1.0), False),
        (None, Facts(None, 1.0), False),
    ],
)
def test_only_a_count_above_what_the_process_may_use_is_the_machine_s(count, facts, is_copied):
    assert machine_counts.is_copied(count, resolve({"intra_op": 1}, facts)) == is_copied

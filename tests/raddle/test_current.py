"""The CPUs of a process: those of its threads together, where no OpenMP library has bound them; the kernel is real."""

import json
import os
import subprocess
import sys
import threading
from ctypes.util import find_library
from pathlib import Path

import pytest

from raddle.cpus import cpuset
from raddle.process import current

MINE = sorted(os.sched_getaffinity(0))
ALL, FIRST = cpuset.of(MINE), cpuset.of(MINE[:1])
RUNTIME = Path(current.__file__).parents[2]

pytestmark = pytest.mark.skipif(len(MINE) < 2, reason="needs two CPUs")
needs_libgomp = pytest.mark.skipif(not find_library("gomp"), reason="needs libgomp")

# What the shim does first is to import raddle.
PROGRAM = """
import raddle, ctypes, json, os, threading
from raddle.process import current
exec({before!r})
first = sorted(os.sched_getaffinity(0))
print(json.dumps([*current.read_cpus(), first == sorted(os.sched_getaffinity(0)), len(first)]))
"""
LIBGOMP = "ctypes.CDLL('libgomp.so.1')"
ITSELF = f"os.sched_setaffinity(0, {MINE[:1]})"
# Its first thread is bound too: all threads that call OpenMP are.
ANOTHER = f"done = threading.Event(); threading.Thread(target=done.wait, daemon=True).start(); {ITSELF}"


def in_a_process(before, cpus, **variables):
    """(the process's CPUs, whether the calling thread has fewer, how many that is)."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(before=before)],
        env={**variables, "PYTHONPATH": str(RUNTIME)},
        preexec_fn=lambda: os.sched_setaffinity(0, cpus),  # no threads that hold locks
        capture_output=True,
        text=True,
        check=True,
    )
    found, bound, same, own = json.loads(done.stdout)
    assert same
    return found, bound, own


@needs_libgomp
@pytest.mark.parametrize(
    "variables",
    [
        {"OMP_PROC_BIND": "close"},
        {"OMP_PROC_BIND": "TRUE"},
        {"OMP_PLACES": "threads"},
        {"GOMP_CPU_AFFINITY": f"{MINE[0]} {MINE[1]}"},
    ],
)
def test_the_cpus_are_the_process_s_where_libgomp_binds_the_thread_that_loads_it(variables):
    assert in_a_process(LIBGOMP, MINE, **variables) == (ALL, True, 1)
    assert in_a_process(LIBGOMP, MINE[:1], **variables) == (FIRST, False, 1)


@needs_libgomp
@pytest.mark.parametrize("variables", [{}, {"OMP_PROC_BIND": "FALSE", "OMP_PLACES": "threads"}])
def test_a_libgomp_that_binds_nothing_leaves_a_process_its_cpus(variables):
    assert in_a_process(LIBGOMP, MINE, **variables) == (ALL, False, len(MINE))


@pytest.mark.parametrize(
    ("before", "variables", "cpus", "bound"),
    [
        ("", {}, ALL, False),
        # The process has one thread, and its application has chosen.
        (ITSELF, {}, FIRST, False),
        (ITSELF, {"OMP_PROC_BIND": "false"}, FIRST, False),
        (ITSELF, {"KMP_AFFINITY": "granularity=fine,none"}, FIRST, False),
        (ITSELF, {"KMP_AFFINITY": "disabled"}, FIRST, False),
        (ITSELF, {"KMP_AFFINITY": "granularity=fine,compact"}, ALL, True),
        (ANOTHER, {}, ALL, True),
    ],
)
def test_an_application_that_binds_its_process_has_those_cpus(before, variables, cpus, bound):
    found = in_a_process(before, MINE, **variables)
    assert found[:2] == (cpus, bound)


def test_a_thread_that_binds_itself_binds_no_other():
    found = []

    def bind():
        os.sched_setaffinity(0, MINE[:1])
        found.append(current.read_cpus())

    thread = threading.Thread(target=bind)
    thread.start()
    thread.join()
    assert found == [(ALL, True)]
    assert current.read_cpus() == (ALL, False)

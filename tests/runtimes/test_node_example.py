"""examples/nodejs/cycle.mjs, the program that goes through execution modes and thread counts, run as its reader runs it."""

import shutil
import subprocess
from pathlib import Path

import pytest
from support.runtimes import node_lab, shim_lab
from support.runtimes.node_lab import NEWEST, application, chain, plan, preload

from raddle import env
from runtimes import nodejs

pytestmark = pytest.mark.runtime

PROGRAM = Path(__file__).parents[2] / "examples" / "nodejs" / "cycle.mjs"
HEADINGS = "mode intra inter new threads p50 ms worst ms CPU ms idle"


def table(tmp_path, text=None):
    """(mode, intra, inter, new threads, CPU milliseconds in a pause) of each line."""
    cpus = shim_lab.two_cpus()
    shutil.copy(PROGRAM, tmp_path)
    if not (tmp_path / "node_modules").exists():
        (tmp_path / "node_modules").symlink_to(application(NEWEST) / "node_modules")
    environ = {env.PLAN: text, **preload()} if text else {}
    done = subprocess.run(
        ["taskset", "--cpu-list", ",".join(map(str, cpus)), nodejs.node(), PROGRAM.name, chain()["model"], "5"],
        cwd=tmp_path,
        env=shim_lab.environment(environ),
        capture_output=True,
        text=True,
        timeout=node_lab.TIMEOUT_S,
        check=True,
    )
    headings, *lines = done.stdout.splitlines()
    assert " ".join(headings.split()) == HEADINGS
    cells = [line.split() for line in lines]
    return [(mode, intra, inter, int(new), float(idle)) for mode, intra, inter, new, _, _, idle in cells]


def test_it_goes_through_modes_and_counts_and_a_policy_that_overrides_ends_the_spinning(tmp_path):
    stock = table(tmp_path)
    assert [line[:3] for line in stock] == [
        ("unset", "unset", "unset"),
        ("sequential", "1", "1"),
        ("sequential", "2", "1"),
        ("parallel", "1", "1"),
        ("parallel", "2", "2"),
    ]
    assert [new for *_, new, _ in stock[1:]] == [0, 1, 0, 2]
    planned = table(tmp_path, plan(existing_values="override"))
    assert [new for *_, new, _ in planned[1:]] == [1, 1, 1, 1]
    assert planned[2][-1] * 3 < stock[2][-1]


def test_a_policy_that_respects_leaves_the_codes_counts_and_ends_the_spinning(tmp_path):
    stock, planned = table(tmp_path), table(tmp_path, plan())
    assert [new for *_, new, _ in planned[1:]] == [0, 1, 0, 2]
    assert planned[4][-1] * 3 < stock[4][-1]

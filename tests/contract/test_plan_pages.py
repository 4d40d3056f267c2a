"""The pages that show `raddle plan` show what it prints now, for the files that they show."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

import machines
from raddle_operator.cli import main

HOW_TO = Path(__file__).resolve().parents[2] / "docs" / "how-to"
PAGES = ("choose-an-objective", "read-a-plan")
FILES = re.compile(r"```yaml\n# (\S+\.yaml)\n(.*?)```", re.DOTALL)
BLOCKS = re.compile(r"(```console\n\$ raddle (plan [^\n]*)\n)(.*?)```", re.DOTALL)


def printed(command):
    done = CliRunner().invoke(main, shlex.split(command))
    assert done.exit_code == 0, done.output
    return "".join(f"{line.rstrip()}\n" for line in done.stdout.splitlines())


@pytest.mark.parametrize("name", PAGES)
def test_what_the_page_shows_is_what_is_printed(name, tmp_path, monkeypatch, request):
    page = HOW_TO / f"{name}.md"
    text = page.read_text()
    for file, content in FILES.findall(text):
        (tmp_path / file).write_text(content)
    (tmp_path / "machine").symlink_to(machines.path("2s4n-16c32t"))
    monkeypatch.chdir(tmp_path)
    made = BLOCKS.sub(lambda block: f"{block[1]}{printed(block[2])}```", text)
    if request.config.getoption("--update-golden"):
        page.write_text(made)
    assert BLOCKS.search(text)
    assert made == page.read_text(), "run pytest --update-golden and read the diff"


def test_the_page_reads_a_reports_histogram_as_it_is_counted():
    # docs/reference/report.md: key K counts runs of at least 2^(K-1) and less than 2^K nanoseconds.
    page = (HOW_TO / "choose-an-objective.md").read_text()
    key, low, high = map(int, re.search(r"`(\d+)` is (\d+) to (\d+) ms", page).groups())
    assert (low, high) == (round(2 ** (key - 1) / 1e6), round(2**key / 1e6))

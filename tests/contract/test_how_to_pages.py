"""The pages that show `raddle plan` and `raddle topology` show what they print now, for the files that they show."""

import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

import machines
from raddle_operator.cli import main
from raddle_operator.cli.scan.command import scan
from raddle_operator.cli.topology import topology

HOW_TO = Path(__file__).resolve().parents[2] / "docs" / "how-to"
PAGES = ("choose-an-objective", "read-a-plan", "read-a-machine")
FILES = re.compile(r"```yaml\n# (\S+\.yaml)\n(.*?)```", re.DOTALL)
# The one block of a machine that is not recorded has no --root.
BLOCKS = re.compile(r"(```console\n\$ raddle ((?:plan|topology --root machine)[^\n]*)\n)(.*?)```", re.DOTALL)


def printed(command):
    done = CliRunner(env={"COLUMNS": "80"}).invoke(main, shlex.split(command))
    assert done.exit_code == 0, done.output
    return "".join(f"{line.rstrip()}\n" for line in done.stdout.splitlines())


@pytest.mark.parametrize("name", PAGES)
def test_what_the_page_shows_is_what_is_printed(name, tmp_path, monkeypatch, request):
    page = HOW_TO / f"{name}.md"
    text = page.read_text()
    for file, content in FILES.findall(text):
        (tmp_path / file).write_text(content)
    (machine,) = set(re.findall(r"tools/machines\.py (\S+)\s+machine`", text))
    (tmp_path / "machine").symlink_to(machines.path(machine))
    monkeypatch.chdir(tmp_path)
    made = BLOCKS.sub(lambda block: f"{block[1]}{printed(block[2])}```", text)
    if request.config.getoption("--update-golden"):
        page.write_text(made)
    assert BLOCKS.search(text)
    assert made == page.read_text(), "run pytest --update-golden and read the diff"


def test_the_page_on_scans_shows_what_is_printed(tmp_path, monkeypatch, request):
    page = HOW_TO / "scan-a-cluster.md"
    text = page.read_text()
    for file, content in FILES.findall(text):
        (tmp_path / file).write_text(content)
    monkeypatch.chdir(tmp_path)
    shown = re.compile(r"(```console\n\$ raddle (scan [^\n]*)\n)(.*?)```", re.DOTALL)
    made = shown.sub(lambda block: f"{block[1]}{printed(block[2])}```", text)
    if request.config.getoption("--update-golden"):
        page.write_text(made)
    assert shown.search(text)
    assert made == page.read_text(), "run pytest --update-golden and read the diff"
    options = {option for parameter in scan.params for option in parameter.opts}
    named = set(re.findall(r"`(-{1,2}[a-z-]+)", text.partition("## Options")[2].partition("## ")[0]))
    assert named
    assert named <= options


def test_a_machine_is_shown_alone_and_with_a_pool():
    commands = [block[2] for block in BLOCKS.finditer((HOW_TO / "read-a-machine.md").read_text())]
    assert commands == ["topology --root machine", "topology --root machine --exclusive 0-7"]


def test_every_option_of_the_table_of_drawings_is_one():
    _, _, table = (HOW_TO / "read-a-machine.md").read_text().partition("| draw | with |")
    options = {option for parameter in topology.params for option in parameter.opts}
    named = set(re.findall(r"(?<![\w-])-{1,2}[a-z]+", table))
    assert named
    assert named <= options

"""docs/how-to/read-a-machine.md shows what `raddle topology` prints now, and only options that there are."""

import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

import machines
from raddle_operator.cli import main
from raddle_operator.cli.topology import topology

PAGE = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "read-a-machine.md"
TEXT = PAGE.read_text()
# The one block of a machine that is not recorded has no --root.
BLOCKS = re.findall(r"```console\n\$ raddle (topology --root machine.*)\n((?:.*\n)*?)```", TEXT)


@pytest.mark.parametrize(("command", "shown"), BLOCKS, ids=[command for command, _ in BLOCKS])
def test_what_the_page_shows_is_what_is_printed(command, shown, tmp_path, monkeypatch, request):
    (name,) = re.findall(r"tools/machines\.py (\S+)\s+machine`", TEXT)
    (tmp_path / "machine").symlink_to(machines.path(name))
    monkeypatch.chdir(tmp_path)
    printed = CliRunner(env={"COLUMNS": "80"}).invoke(main, shlex.split(command)).stdout
    if request.config.getoption("--update-golden"):
        PAGE.write_text(PAGE.read_text().replace(shown, printed))
    else:
        assert printed == shown, "run pytest --update-golden and read the diff"


def test_the_page_shows_a_machine_and_a_pool():
    assert [command.split()[1:] for command, _ in BLOCKS] == [
        ["--root", "machine"],
        ["--root", "machine", "--exclusive", "0-7"],
    ]


def test_every_option_of_the_last_table_is_one():
    table = TEXT[TEXT.index("| draw | with |") :]
    options = {option for parameter in topology.params for option in parameter.opts}
    assert set(re.findall(r"(?<![\w-])-{1,2}[a-z]+", table)) <= options

"""The k9s plugins have k9s' fields, and run commands that there are."""

import re
import shlex
from pathlib import Path

import pytest
import yaml

from raddle_operator.cli import main

PLUGINS = yaml.safe_load((Path(__file__).parents[2] / "plugins/k9s/raddle.yaml").read_text())["plugins"]
# internal/config/json/schemas/plugins.json of derailed/k9s.
REQUIRED = {"shortCut", "description", "scopes", "command"}
ALLOWED = REQUIRED | {"override", "confirm", "dangerous", "background", "overwriteOutput", "args", "inputs"}


@pytest.mark.parametrize("name", PLUGINS)
def test_a_plugin_runs_a_command_that_there_is(name):
    plugin = PLUGINS[name]
    assert set(plugin) >= REQUIRED
    assert set(plugin) <= ALLOWED
    shell, script = plugin["args"]
    assert (plugin["command"], shell) == ("sh", "-c")
    words = shlex.split(script.partition(" 2>")[0])
    assert words[:2] == ["kubectl", "raddle"]
    command = main.get_command(None, words[2])
    options = {option for parameter in command.params for option in parameter.opts}
    assert {word for word in words[3:] if word.startswith("-")} <= options
    # Every one of k9s' variables is one word to the shell.
    assert all(script[found.start() - 1] in '"/' for found in re.finditer(r"\$[A-Z]+", script))


def test_no_two_plugins_have_one_key_in_one_view():
    keys = [(plugin["shortCut"], scope) for plugin in PLUGINS.values() for scope in plugin["scopes"]]
    assert len(keys) == len(set(keys))

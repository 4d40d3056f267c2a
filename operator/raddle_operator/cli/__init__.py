"""The `raddle` command, also `kubectl raddle`.

In come arguments, files and what the API server says; out come text or JSON, and an exit status. Each command is
imported when it is called: the agent must stay small, and `--help` must be quick. The tuner's commands are in a wheel
of its own, and found by entry points.
"""

from __future__ import annotations

import importlib
import signal
import sys
from importlib import metadata
from typing import Any, Final

import click

from raddle import __version__

# Command -> (module below this package, help line). The module holds a click command of that name; None: the tuner has
# it, as an entry point of GROUP.
COMMANDS: Final = {
    "plan": ("plan", "Show what a policy would set on workloads, and why. Needs no cluster."),
    "run": ("run", "Run a program with a container's variables, mounts and CPU quota. Needs no cluster."),
    "tune": (None, "Find the best settings for a model or a server on this machine. Needs no cluster."),
    "result": (None, "Show the result of a tuning, from its JSON or the log of its Job."),
    "scan": ("scan.command", "Find containers that run too many threads. Works without Raddle in the cluster."),
    "presets": ("presets", "Show the presets: recognised servers, and the values for each. Needs no cluster."),
    "explain": ("explain", "Show the planned and effective values of pods with the reasons, or why they have none."),
    "top": ("top.command", "Show planned and effective threads, throttling and CPU delay of pods and nodes."),
    "topology": ("topology", "Show a machine: sockets, NUMA nodes, caches, cores, and where threads run."),
    "analyze": (None, "Show the operators of a model, and which of them scale with threads. Needs no cluster."),
    "selftest": ("selftest", "Check that the webhook answers (`helm test` runs it)."),
    "controller": ("processes", "Run the controller (in the cluster)."),
    "webhook": ("processes", "Run the admission webhook (in the cluster)."),
    "agent": ("processes", "Run the node agent (in the cluster, one per node)."),
    "tuner": (None, "Run the measurements of an InferenceTuning (in its pods)."),
}

GROUP: Final = "raddle.commands"
# Command -> what to install for it; `raddle[cli]` where it isn't named.
PACKAGES: Final = {
    "tune": "raddle-tuner[cli]",
    "result": "raddle-tuner[cli]",
    "analyze": "raddle-tuner[cli]",
    "tuner": "raddle-tuner",
    "controller": "raddle[operator]",
    "webhook": "raddle[operator]",
    "agent": "raddle[agent]",
}


class NotInstalledError(click.ClickException):
    """A command, or a package that it needs, is not installed."""

    exit_code = 2


class LazyGroup(click.Group):
    """A group whose commands are imported when they are called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names in the order of the table."""
        del ctx
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command, or None for a name that isn't one."""
        del ctx
        if cmd_name not in COMMANDS:
            return None
        module, _ = COMMANDS[cmd_name]
        try:
            if module is None:
                command = _of_the_tuner(cmd_name)
            else:
                command = getattr(importlib.import_module(f"{__name__}.{module}"), cmd_name)
        except ModuleNotFoundError as error:
            raise _not_installed(cmd_name, error) from None
        assert isinstance(command, click.Command)
        return command

    def invoke(self, ctx: click.Context) -> Any:
        """Runs the command, which may import more when it is used. Ctrl-C ends it without a word, with status 130."""
        try:
            return super().invoke(ctx)
        except ModuleNotFoundError as error:
            raise _not_installed(str(ctx.invoked_subcommand), error) from None
        except KeyboardInterrupt:
            sys.exit(128 + signal.SIGINT)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes the list of commands without importing any."""
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


def _of_the_tuner(command: str) -> Any:
    """The entry point's command. Raises NotInstalledError where the tuner is not installed, ModuleNotFoundError."""
    for entry in metadata.entry_points(group=GROUP, name=command):
        return entry.load()
    raise NotInstalledError(f"raddle {command} is not installed: pip install '{PACKAGES[command]}'")


def _not_installed(command: str, error: ModuleNotFoundError) -> Exception:
    """What to install; the error itself where it is one of our own modules that isn't there."""
    package = (error.name or "").partition(".")[0]
    if package in ("", "raddle", "raddle_operator", "raddle_tuner"):
        return error
    wanted = PACKAGES.get(command, "raddle[cli]")
    return NotInstalledError(f"raddle {command} needs {package}, which is not installed: pip install '{wanted}'")


EXAMPLES: Final = """\b
Examples:
  raddle plan -f policy.yaml -f deployment.yaml
  raddle plan -f policy.yaml -f deployment.yaml --machine / -o json
  raddle run --limit 4 -- python serve.py
  raddle tune model.onnx --limit 2 --rate 50
  raddle analyze model.onnx
  kubectl raddle scan
  kubectl raddle explain deployment/resnet -n models
  kubectl raddle top pods -n models
  raddle topology
"""


@click.group(cls=LazyGroup, epilog=EXAMPLES, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="raddle")
def main() -> None:
    """Set and inspect thread counts, spinning and affinity of inference containers.

    Exit codes: 0 success, 1 the cluster or a process failed, 2 invalid input or usage, 130 interrupted by Ctrl-C.
    """

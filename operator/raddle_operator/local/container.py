"""What a container gets, and the command that starts a program with it here."""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from raddle import delivery
from raddle_operator.local import door, quota

# Shells and systemd-run on the way to the program set the first, and drop variables that they could not name.
_SET_ON_THE_WAY: Final = ("PWD", "OLDPWD", "SHLVL", "_", "INVOCATION_ID")
_SHELL_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    """What a container gets. `cpus` None: no limit. `mounts`: where something is mounted, in order.

    `notes` say what it does not get, and why.
    """

    cpus: float | None
    variables: Mapping[str, str]
    mounts: tuple[str, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StartedContainer:
    """A command that has what a container has, and the cgroup that it will be in, None where none could be made."""

    argv: list[str]
    environment: Mapping[str, str]
    group: quota.Group | None


def enter(
    given: Container,
    command: Sequence[str],
    stack: contextlib.ExitStack,
    say: Callable[[str], None],
    *,
    measured: bool = False,
) -> StartedContainer:
    """The command with all that this machine lets it have; what that takes goes with the stack.

    `say` is told what can't be had, and why. One that is measured is in a cgroup without a limit too, and of the most
    weight, so that what else runs here is not taken for what the quota does.
    """
    variables = dict(given.variables)
    prefix: list[str] = []
    if given.mounts:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="raddle-run-")))
        # As readable as a mounted ConfigMap: the program may be another user's.
        folder.chmod(0o755)
        delivery.write(str(folder))
        problem = door.problem(folder)
        if problem:
            preloaded = (str(folder / Path(delivery.LIBRARY).name), os.environ.get("LD_PRELOAD"))
            variables["LD_PRELOAD"] = ":".join(filter(None, preloaded))
            say(f"nothing can be mounted here ({problem}); the shim is preloaded by LD_PRELOAD")
        else:
            prefix = [*door.inside(folder)]
    group = None
    if given.cpus is not None or measured:
        group, limit = _quota(given.cpus, stack, say, measured=measured)
        prefix = [*limit, *prefix]
    environment = {**os.environ, **variables}
    argv = [*prefix, *(_unchanged(environment) if prefix else ()), *command]
    return StartedContainer(argv=argv, environment=environment, group=group)


def _quota(
    cpus: float | None, stack: contextlib.ExitStack, say: Callable[[str], None], *, measured: bool
) -> tuple[quota.Group | None, Sequence[str]]:
    """The group, and what gives the command behind it the quota: () where nothing does."""
    try:
        group = stack.enter_context(quota.limited(cpus, requested_cpus=None if measured else cpus))
    except quota.UnavailableError as error:
        problem = str(error)
    else:
        return group, group.command([])
    if cpus is None:
        return None, ()
    scope = quota.scope(cpus)
    if not scope:
        say(f"{problem}; systemd-run can't set one either: the program runs without a quota")
    return None, scope


def _unchanged(environment: Mapping[str, str]) -> Iterator[str]:
    """Yields a command that gives the program the variables which do not come through, and no others."""
    yield "env"
    for name in _SET_ON_THE_WAY:
        if name not in environment:
            yield from ("-u", name)
    for name, value in environment.items():
        if name in _SET_ON_THE_WAY or _SHELL_NAME.fullmatch(name) is None:
            yield f"{name}={value}"

"""A container's command line: its words, and the programs that it starts.

A command line is read as words, also inside `sh -c "..."`; what a shell would compute stays unknown.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

# A script passed as an argument is looked at this far, and a command as many words.
MAX_ARGUMENT: Final = 4096
MAX_WORDS: Final = 4096
_SHELLS: Final = frozenset(("sh", "bash", "dash", "ash", "zsh"))
# What starts another program -> how many words of its own come before that, options aside.
_WRAPPERS: Final = {
    **dict.fromkeys(("catchsegv", "dumb-init", "env", "exec", "ionice", "jemalloc.sh", "nice", "nohup", "numactl"), 0),
    **dict.fromkeys(("setpriv", "stdbuf", "sudo", "time", "tini", "ddtrace-run", "opentelemetry-instrument"), 0),
    **dict.fromkeys(
        ("conda", "gosu", "micromamba", "pdm", "pipenv", "poetry", "su-exec", "taskset", "timeout", "uv"), 1
    ),
}
_SEPARATORS: Final = re.compile(r"&&|\|\||[;|&\n()]")
_ASSIGNMENT: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")
_PYTHON: Final = re.compile(r"(python|pypy)[0-9.]*")
_NUMBER: Final = re.compile(r"[0-9][0-9a-fx,.-]*")
# A shell that starts a shell, and so on: nobody means it.
_MAX_DEPTH: Final = 3


def words(arguments: Sequence[str]) -> list[str]:
    """All words of a container's command and arguments."""
    found: list[str] = []
    for argument in arguments[:MAX_WORDS]:
        if " " in argument or "\n" in argument:
            found += argument[:MAX_ARGUMENT].split()
        else:
            found.append(argument)
        if len(found) >= MAX_WORDS:
            break
    return found[:MAX_WORDS]


def programs(arguments: Sequence[str]) -> frozenset[str]:
    """The last names of the programs that are started; of `python -m a.b` the module a.b and its package a."""
    return frozenset(_programs(list(arguments[:MAX_WORDS]), _MAX_DEPTH))


def _programs(command: Sequence[str], depth: int) -> Iterator[str]:
    place = _after_wrappers(command)
    if place >= len(command) or depth == 0:
        return
    name, rest = command[place].strip("\"'").rpartition("/")[2], command[place + 1 :]
    if name in _SHELLS:
        script = next((rest[at + 1] for at, word in enumerate(rest[:-1]) if _is_option(word, "c")), "")
        for part in _SEPARATORS.split(script[:MAX_ARGUMENT]):
            yield from _programs(part.split(), depth - 1)
    elif _PYTHON.fullmatch(name):
        parts = _module(rest)[:MAX_ARGUMENT].split(".")
        yield from (".".join(parts[: count + 1]) for count in range(min(len(parts), 8)))
    else:
        yield name


def _after_wrappers(command: Sequence[str]) -> int:
    """The place of the program that assignments, wrappers and their options stand before."""
    own = 0
    wrapped = False
    for place, word in enumerate(command):
        count = _WRAPPERS.get(word.rpartition("/")[2])
        if count is not None:
            own, wrapped = count, True
        elif _ASSIGNMENT.match(word) or (wrapped and word.startswith("-")):
            continue
        elif own:
            own -= 1
        elif not (wrapped and _NUMBER.fullmatch(word)):
            return place
    return len(command)


def _module(rest: Sequence[str]) -> str:
    """What `-m` names among Python's own options, "" where a script or nothing follows."""
    takes_value = False
    for place, word in enumerate(rest[:-1]):
        if word == "-m":
            return rest[place + 1]
        if not takes_value and not word.startswith("-"):
            return ""
        takes_value = word in ("-W", "-X")
    return ""


def _is_option(word: str, letter: str) -> bool:
    return word.startswith("-") and not word.startswith("--") and word.endswith(letter)

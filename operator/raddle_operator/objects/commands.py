"""A container's command line: its words, and the programs that it starts.

A command line is read as words, also inside `sh -c "..."`; what a shell would compute stays unknown.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final

# A script passed as an argument is looked at this far, and a command as many words.
MAX_ARGUMENT: Final = 4096
MAX_WORDS: Final = 4096
_SHELLS: Final = frozenset(("sh", "bash", "dash", "ash", "zsh"))
# Words of a shell's grammar that a program may follow.
_KEYWORDS: Final = frozenset(("!", "do", "elif", "else", "if", "then", "until", "while", "{"))
# What starts another program -> how many words of its own come before that, options aside.
_WRAPPERS: Final = {
    **dict.fromkeys(("catchsegv", "dumb-init", "env", "exec", "ionice", "jemalloc.sh", "nice", "nohup", "numactl"), 0),
    **dict.fromkeys(("setpriv", "stdbuf", "sudo", "time", "tini", "ddtrace-run", "opentelemetry-instrument"), 0),
    **dict.fromkeys(
        ("conda", "gosu", "micromamba", "pdm", "pipenv", "poetry", "su-exec", "taskset", "timeout", "uv"), 1
    ),
}
_ENTRYPOINTS: Final = ("entrypoint", "entrypoint.sh")
# Their options whose value is a word of its own.
_VALUED: Final = frozenset(
    ("-C", "-a", "-g", "-k", "-n", "-p", "-u", "--group", "--name", "--prefix", "--user", "--with")
)
_SEPARATORS: Final = re.compile(r"&&|\|\||[;|&\n()]")
_ASSIGNMENT: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")
_PYTHON: Final = re.compile(r"(python|pypy)[0-9.]*")
_NUMBER: Final = re.compile(r"[0-9][0-9a-fx,.-]*")
# A shell that starts a shell, and so on: nobody means it; nor that many commands in a line.
_MAX_DEPTH: Final = 3
_MAX_PROGRAMS: Final = 64


def words(arguments: Sequence[str]) -> list[str]:
    """All words of a container's command and arguments."""
    result: list[str] = []
    for argument in arguments[:MAX_WORDS]:
        if " " in argument or "\n" in argument:
            result += argument[:MAX_ARGUMENT].split()
        else:
            result.append(argument)
        if len(result) >= MAX_WORDS:
            break
    return result[:MAX_WORDS]


def programs(arguments: Sequence[str]) -> frozenset[str]:
    """The last names of the programs that are started; of `python -m a.b` the module a.b and its package a."""
    return frozenset(islice(_programs(list(arguments[:MAX_WORDS]), _MAX_DEPTH), _MAX_PROGRAMS))


def _programs(command: Sequence[str], depth: int) -> Iterator[str]:
    place = _after_wrappers(command)
    if place >= len(command) or depth == 0:
        return
    name, rest = command[place].strip("\"'").rpartition("/")[2], command[place + 1 :]
    if name in _SHELLS:
        for part in _SEPARATORS.split(_script(rest)[:MAX_ARGUMENT], _MAX_PROGRAMS):
            yield from _programs(part.split(), depth - 1)
    elif _PYTHON.fullmatch(name):
        module, script = _run_by_python(rest)
        if script:
            yield script.rpartition("/")[2]
        parts = module[:MAX_ARGUMENT].split(".") if module else []
        yield from (".".join(parts[: count + 1]) for count in range(min(len(parts), 8)))
    else:
        yield name


def _after_wrappers(command: Sequence[str]) -> int:
    """The place of the program that keywords, assignments, wrappers and their options stand before."""
    own = 0
    wrapped = is_value = False
    for place, word in enumerate(command):
        name = word.rpartition("/")[2]
        count = 0 if name.endswith(_ENTRYPOINTS) and place + 1 < len(command) else _WRAPPERS.get(name)
        if is_value:
            is_value = False
        elif count is not None:
            own, wrapped = count, True
        elif word in _KEYWORDS or _ASSIGNMENT.match(word):
            continue
        elif wrapped and word.startswith("-"):
            is_value = word in _VALUED
        elif own:
            own -= 1
        elif not (wrapped and _NUMBER.fullmatch(word)):
            return place
    return len(command)


def _script(rest: Sequence[str]) -> str:
    """What a shell is told by -c, "" where it is told nothing."""
    told = (at for at, word in enumerate(rest) if re.fullmatch("-[a-z]*c[a-z]*", word))
    start = next(told, None)
    return "" if start is None else next((word for word in rest[start + 1 :] if not word.startswith("-")), "")


def _run_by_python(rest: Sequence[str]) -> tuple[str, str]:
    """What `-m` names among Python's own options, and else the script; "" for what there is not."""
    takes_value = False
    for place, word in enumerate(rest):
        if word == "-m":
            return (rest[place + 1] if place + 1 < len(rest) else ""), ""
        if not takes_value and not word.startswith("-"):
            return "", word
        takes_value = word in ("-W", "-X", "-c")
    return "", ""

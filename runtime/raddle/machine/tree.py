"""One directory of sysfs, read so that nothing in it can raise, block or cost more than a bounded amount.

A file that isn't there is an absent fact. A file that can't be used is an absent fact too, and a
`Problem` that says which file and why. Parsing lives in `cpuset`; what the facts mean, in `sysfs`.
"""

from __future__ import annotations

import errno
import os

from raddle import errors, files
from raddle.cpus import cpuset
from raddle.cpus.topology import Problem

# More would only repeat what is wrong, and a document has to stay small.
MAX_PROBLEMS = 64

_DIRECTORY_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_ABSENT_ERRNOS = (errno.ENOENT, errno.ENOTDIR, errno.ENODEV, errno.ENXIO)

# The files that hold a hexadecimal mask; every other set is a list ("0-3,8").
_MASK_FILES = frozenset(
    ("core_cpus", "thread_siblings", "package_cpus", "core_siblings", "die_cpus", "shared_cpu_map", "cpumap")
)


class Problems:
    """What could not be used so far, in the order of reading; only the first MAX_PROBLEMS are kept."""

    __slots__ = ("_found",)

    def __init__(self) -> None:
        self._found: list[Problem] = []

    def add(self, path: str, reason: str) -> None:
        """Records that a file could not be used, and why; once, however often it is read."""
        problem = Problem(path, reason)
        if len(self._found) < MAX_PROBLEMS and problem not in self._found:
            self._found.append(problem)

    def add_error(self, path: str, error: Exception) -> None:
        """Records why a file could not be read, unless it is that the file isn't there."""
        errors.let_through(error)
        if getattr(error, "errno", None) not in _ABSENT_ERRNOS:
            self.add(path, (getattr(error, "strerror", None) or str(error)).lower())

    def all(self) -> tuple[Problem, ...]:
        """Everything recorded so far."""
        return tuple(self._found)


class Directory:
    """A directory, read through its file descriptor so that the kernel walks short paths.

    Each read gives None for what isn't there, and None with a Problem for what can't be used.
    """

    __slots__ = ("_fd", "_lists", "_problems", "path", "root")

    def __init__(self, root: str, path: str, problems: Problems) -> None:
        self.root = root
        self.path = path
        self._problems = problems
        # The same set is written once per CPU in it: parse each text once.
        self._lists: dict[str, int] = {}
        self._fd: int | None = None

    def __enter__(self) -> Directory:  # noqa: PYI034  # Self is no part of Python 3.8's typing
        try:
            self._fd = os.open(os.path.join(self.root, self.path), _DIRECTORY_FLAGS)
        except OSError as error:
            self._problems.add_error(self.path, error)
        return self

    def __exit__(self, *exc_info: object) -> None:
        if self._fd is not None:
            os.close(self._fd)

    def problem(self, name: str, reason: str) -> None:
        """Records that a file below this directory could not be used, and why."""
        self._problems.add(self.path + "/" + name, reason)

    def names(self, name: str = ".") -> list[str]:
        """The names in a directory below this one; empty where it isn't there."""
        if self._fd is None:
            return []
        try:
            fd = os.open(name, _DIRECTORY_FLAGS, dir_fd=self._fd)
            try:
                return os.listdir(fd)
            finally:
                os.close(fd)
        except OSError as error:
            self._problems.add_error(self.path + "/" + name, error)
            return []

    def numbered(self, prefix: str, directory: str = ".") -> int:
        """The numbers n for which a directory, this one or one below it, has an entry <prefix><n>, as a set."""
        mask = 0
        for name in self.names(directory):
            number = name[len(prefix) :]
            if name.startswith(prefix) and number.isascii() and number.isdigit() and len(number) <= 5:
                mask |= 1 << int(number)
        return mask & ((1 << cpuset.MAX_CPUS) - 1)

    def text(self, name: str) -> str | None:
        """The file's text without surrounding white space."""
        if self._fd is None:
            return None
        try:
            return files.read_text(name, self._fd).strip()
        except (OSError, ValueError) as error:
            self._problems.add_error(self.path + "/" + name, error)
            return None

    def cpus(self, name: str) -> int | None:
        """The set in a list file ("0-3") or, by its name, a mask file ("f")."""
        text = self.text(name)
        if text is None:
            return None
        try:
            if name.rpartition("/")[2] in _MASK_FILES:
                return cpuset.parse_mask(text)
            mask = self._lists.get(text)
            if mask is None:
                mask = self._lists[text] = cpuset.parse_list(text)
        except ValueError as error:
            self.problem(name, str(error))
            return None
        return mask

    def some_cpus(self, name: str) -> int:
        """The set in a file that is never empty on a real machine; 0 where it isn't there or can't be used."""
        mask = self.cpus(name)
        if mask == 0:
            self.problem(name, "is empty")
        return mask or 0

    def first_cpus(self, directory: str, names: tuple[str, ...]) -> tuple[int, str] | None:
        """The set in the first of these files that holds one, and which file that is; an empty set is no answer."""
        for name in names:
            path = directory + "/" + name
            mask = self.cpus(path)
            if mask:
                return mask, path
            if mask == 0:
                self.problem(path, "is empty")
        return None

    def number(self, name: str) -> int | None:
        """The decimal number in a file; None for a negative one, which is how the kernel says "unknown"."""
        text = self.text(name)
        if text is None or (text.startswith("-") and text[1:].isdigit()):
            return None
        if text.isascii() and text.isdigit() and len(text) < 16:
            return int(text)
        self.problem(name, f"{text[:64]!r} is not a number")
        return None

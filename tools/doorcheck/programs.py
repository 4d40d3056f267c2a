"""The programs of this machine, and where each is from."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final

# Debian's base system: what is in every installation (Debian policy, 2.5).
_BASE: Final = frozenset({"required", "important", "standard"})
_FOLDERS: Final = ("/usr/bin", "/usr/sbin", "/bin", "/sbin")
# What environments of runtimes' tests and pyenv's Pythons have: copied into the surroundings, where $HOME is hidden.
PYTHONS: Final = (".pyenv/versions", ".cache/raddle/venvs")
# Sends signals to every process, whatever it is asked.
_NEVER: Final = frozenset({"killall5"})

BASE, DEBIAN, PYTHON, JAVA, SHOWN = "Debian, base system", "Debian, other", "Python", "Java", "shows itself"
# Programs that print what a program of this container sees: its environment, its descriptors, its arguments.
_PYTHON_SHOWS: Final = (
    "import os, sys; print(sorted(os.environ.items()), sys.argv, sys.flags, sys.path, sys.executable, sys.prefix);"
    "print(sorted(os.listdir('/proc/self/fd')), open('/proc/self/cmdline').read())"
)
_PYTHON_CHILD_SHOWS: Final = "import subprocess; subprocess.run(['env']); subprocess.run(['ls', '/proc/self/fd'])"
_NODE_SHOWS: Final = (
    "console.log(process.env, process.argv, process.execArgv, process.execPath, fs.readdirSync('/proc/self/fd'))"
)
_SHOWING: Final = (
    ("env",),
    ("printenv",),
    ("sh", "-c", "set; cat /proc/self/environ; ls /proc/self/fd; cat /proc/self/cmdline"),
    ("bash", "-c", "env; cat /proc/self/environ; ls /proc/self/fd; export -p"),
    ("perl", "-e", 'print map { "$_=$ENV{$_}\\n" } sort keys %ENV; print "$0 @ARGV\\n"'),
    ("busybox", "env"),
    ("timeout", "9", "env"),
    ("xargs", "env"),
    ("awk", 'BEGIN { for (name in ENVIRON) print name, ENVIRON[name] | "sort" }'),
    ("gdb", "-nx", "-batch", "-ex", "show environment", "-ex", "python print(sorted(os.environ.items()))"),
    ("node", "-e", _NODE_SHOWS),
    ("node", "-e", "child_process.execFileSync('env', {stdio: 'inherit'})"),
)


@dataclass(frozen=True, slots=True)
class Program:
    """What to run. `kind`: where it is from; `arguments`: each way to call it."""

    kind: str
    path: str
    arguments: tuple[tuple[str, ...], ...] = (("--version",), ("--help",))


def programs() -> list[Program]:
    """Those that a user without rights may execute, and for each kind a few that show what they see."""
    base = _of_the_base_system()
    result = [
        Program(BASE if _plain(path) in base else DEBIAN, path)
        for folder in _FOLDERS
        if not Path(folder).is_symlink()
        for path in _executables(Path(folder))
    ]
    pythons = [path for folder in PYTHONS for path in _below(Path.home() / folder)]
    result += [Program(PYTHON, path) for path in _once(pythons)]
    result += [Program(JAVA, path) for path in _below(Path("/usr/lib/jvm"))]
    result += [
        Program(SHOWN, path, (("-c", _PYTHON_SHOWS), ("-c", _PYTHON_CHILD_SHOWS), ("-I", "-c", _PYTHON_SHOWS)))
        for path in ["/usr/bin/python3", *(path for path in pythons if path.endswith("/python"))]
        if os.access(path, os.X_OK)
    ]
    for name, *arguments in _SHOWING:
        path = f"/usr/bin/{name}"
        if os.access(path, os.X_OK):
            result.append(Program(SHOWN, path, (tuple(arguments),)))
    return result


def _once(pythons: list[str]) -> list[str]:
    """Every interpreter, and of the scripts that many environments have those of one."""
    scripts = {Path(path).name: path for path in reversed(pythons)}
    return [path for path in pythons if "/bin/python" in path or scripts[Path(path).name] == path]


def _below(folder: Path) -> list[str]:
    return [path for one in sorted(folder.glob("*/bin")) if not one.parent.is_symlink() for path in _executables(one)]


def _executables(folder: Path) -> list[str]:
    try:
        paths = sorted(path for path in folder.iterdir() if path.name not in _NEVER)
    except OSError:
        return []
    return [str(path) for path in paths if path.is_file() and path.stat().st_mode & 0o001]


def _of_the_base_system() -> frozenset[str]:
    """Files of packages that every installation has; none where there is no dpkg."""
    try:
        command = ["dpkg-query", "-W", "-f", "${Package} ${Priority} ${Essential}\n"]
        lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    except (OSError, subprocess.CalledProcessError):
        return frozenset()
    packages = [line.split()[0] for line in lines if _BASE & set(line.split()[1:]) or line.endswith(" yes")]
    listed = subprocess.run(["dpkg", "-L", *packages], capture_output=True, text=True, check=False).stdout
    return frozenset(_plain(line) for line in listed.splitlines())


def _plain(path: str) -> str:
    """The path without /usr, which is where Debian's /bin and /sbin lead."""
    return path.removeprefix("/usr")

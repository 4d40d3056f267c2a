"""Builds one Go program into the cache: once per version and recipe, atomically, with progress.

A program is a package of a published Go module, or a main.go in `go/NAME` that is made of some; their go.mod is derived
from upstream's own (`gomodule.py`). The build runs in a folder beside its result and is renamed into place; a file lock
makes a second builder wait for the first.
"""

from __future__ import annotations

import hashlib
import platform
import shutil
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from cluster import gomodule, locking, toolchain
from cluster.errors import DevclusterError
from cluster.progress import Progress
from cluster.versions import Version

TICK_SECONDS = 0.5
LOG_TAIL_LINES = 30
FETCH_ATTEMPTS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """What `go build` makes: one file, called by one or more names.

    It is made of `modules` at `version`: it is their `package`, or the main.go in the folder `source`. `variables` are
    string variables that the linker sets, `tags` build constraints. `cgo`: it has parts in C, and is linked with this
    machine's libraries.
    """

    name: str
    version: Version
    modules: tuple[str, ...]
    commands: tuple[str, ...]
    source: Path | None = None
    package: str = "."
    variables: Mapping[str, str] = field(default_factory=dict)
    tags: tuple[str, ...] = ()
    cgo: bool = False

    @property
    def label(self) -> str:
        """Name and version for messages."""
        return f"{self.name} {self.version}"

    def sources(self) -> list[Path]:
        """The program's own files in Go."""
        return sorted(self.source.glob("*.go")) if self.source else []

    def linker_flags(self) -> str:
        """The value of -ldflags: no symbol table, and the variables."""
        return " ".join(["-s", "-w", *(f"-X {name}={value}" for name, value in sorted(self.variables.items()))])

    def digest(self) -> str:
        """A hash of all that decides the result, except the Go version."""
        parts = [self.name, str(self.version), self.package, self.linker_flags(), platform.system(), platform.machine()]
        parts += [*self.modules, *self.tags, *(("cgo",) if self.cgo else ())]
        content = hashlib.sha256("\0".join(parts).encode())
        for path in self.sources():
            content.update(path.read_bytes())
        return content.hexdigest()[:12]

    def folder(self, cache: Path) -> Path:
        """Where the built program lies in the cache; it exists once it is whole."""
        return cache / f"v{self.version}" / f"{self.name}-{self.digest()}"


def built(program: Program, cache: Path) -> Path | None:
    """The folder with the program's commands, or None when it is not in the cache."""
    folder = program.folder(cache) / "bin"
    return folder if folder.is_dir() else None


def build(program: Program, cache: Path, progress: Progress) -> Path:
    """The folder with the program's commands, building it unless it is in the cache.

    Raises DevclusterError with the end of the log and its path when the build fails.
    """
    with locking.exclusive(cache / "locks" / f"{program.name}-{program.version}", program.label, progress):
        result = built(program, cache)
        if result is not None:
            return result
        folder = program.folder(cache)
        work = folder.with_name(f"{folder.name}.work")
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir(parents=True)
        try:
            _compile(program, work, cache, progress)
            (work / "bin").mkdir()
            (work / program.name).rename(work / "bin" / program.name)
            for command in program.commands:
                if command != program.name:
                    (work / "bin" / command).symlink_to(program.name)
            work.rename(folder)
        finally:
            shutil.rmtree(work, ignore_errors=True)
        return folder / "bin"


def _compile(program: Program, work: Path, cache: Path, progress: Progress) -> None:
    logs = cache / "logs"
    logs.mkdir(exist_ok=True)
    log = logs / f"{program.name}-{program.version}.log"
    start = progress.elapsed_seconds()
    for path in program.sources():
        shutil.copy(path, work)
    oldest = toolchain.find_go(gomodule.OLDEST_GO, cache, progress)
    _persist(program, progress, lambda: gomodule.prepare(program.name, program.version, program.modules, work, oldest))
    go = toolchain.find_go(toolchain.parse_go_version((work / "go.mod").read_text()), cache, progress)
    progress.say(f"building {program.label} with {go}; the log is {log}")
    log.write_text("")
    runner = _Runner(
        go, work, log, progress, {**toolchain.environment(), **({"CGO_ENABLED": "1"} if program.cgo else {})}
    )
    packages = work / "packages"
    tags = [f"-tags={','.join(program.tags)}"] if program.tags else []
    fetch = ["list", "-mod=mod", *tags, "-deps", program.package]
    _persist(program, progress, lambda: runner.run(fetch, f"{program.label}: fetching modules", packages))
    count = len(set(packages.read_text().splitlines()))
    arguments = ["-v", "-mod=mod", *tags, "-trimpath", "-ldflags", program.linker_flags(), "-o", program.name]
    runner.run(["build", *arguments, program.package], f"{program.label}: compiling, at most {count} packages", log)
    progress.say(f"built {program.label} in {progress.elapsed_seconds() - start:.0f} s")


def _persist(program: Program, progress: Progress, fetch: Callable[[], None]) -> None:
    """Calls `fetch` until the network serves it, FETCH_ATTEMPTS times at most."""
    for attempt in range(FETCH_ATTEMPTS):
        try:
            return fetch()
        except DevclusterError as error:
            if attempt == FETCH_ATTEMPTS - 1:
                raise
            progress.say(f"{program.label}: {str(error).splitlines()[0]}; once more")
    return None


@dataclass(frozen=True, slots=True)
class _Runner:
    """Runs Go commands in one folder, with errors in the log; how many lines they wrote there is the progress."""

    go: str
    directory: Path
    log: Path
    progress: Progress
    environment: Mapping[str, str]

    def run(self, arguments: list[str], what: str, output: Path) -> None:
        before = self._lines()
        with self.log.open("a") as errors, output.open("a") as file:
            process = subprocess.Popen(
                [self.go, *arguments],
                cwd=self.directory,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=errors,
            )
            try:
                while True:
                    try:
                        code = process.wait(TICK_SECONDS)
                        break
                    except subprocess.TimeoutExpired:
                        self.progress.tick(f"{what}: {self._lines() - before} done")
            finally:
                process.kill()
                process.wait()
        if code:
            tail = "\n".join(self.log.read_text(errors="replace").splitlines()[-LOG_TAIL_LINES:])
            command = f"{self.go} {arguments[0]}"
            raise DevclusterError(
                f"{command} failed with exit code {code}; the whole log is {self.log}, its end:\n{tail}"
            )

    def _lines(self) -> int:
        return self.log.read_text(errors="replace").count("\n")

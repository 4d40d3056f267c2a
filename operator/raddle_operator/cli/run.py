"""`raddle run`: a program with the variables, mounts and quota of a container, on this machine, without a cluster.

What a container gets is decided as for a pod: one is made of the options, and goes through `raddle plan`. This shell's
environment stands for the image's.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import re
import signal
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import click

from raddle import delivery
from raddle_operator.cli import manifests, workloads
from raddle_operator.cli.manifests import ManifestError
from raddle_operator.cli.offline import container, cpu_limit, default_policy, for_everything
from raddle_operator.local import quota
from raddle_operator.local.container import Container, enter
from raddle_operator.objects.policy import PolicyObject

EPILOG = """\b
Examples:
  raddle run --limit 4 -- python serve.py
  raddle run --limit 500m -f policy.yaml -- ./server --port 8080
  raddle run --limit 4 --print env                    the variables that Raddle would set
  raddle run --limit 8 --machine /captures/worker-7 -- python serve.py
  docker run $(raddle run --limit 4 --print docker) IMAGE

\b
If this machine can't provide the mounts or the quota, it says so on standard error and starts COMMAND without them.
Exit codes: the program's own; 128 + the number of the signal that ended it; as in a shell, 126 if it can't be executed
and 127 if it does not exist; 2 invalid input.
"""

_NAME: Final = "main"
_NAMESPACE: Final = "default"
_ANNOTATION: Final = re.compile(r"metadata\.annotations\['(.*)'\]")
# What one who wants the program to end or to act sends to us, who stand for it.
_FORWARDED: Final = {
    signal.SIGHUP,
    signal.SIGINT,
    signal.SIGQUIT,
    signal.SIGTERM,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGWINCH,
}
# Python ignores these, and what it starts would too.
_IGNORED_BY_PYTHON: Final = {signal.SIGPIPE, signal.SIGXFSZ}
# `docker run $(...)` splits at blanks, whatever the quotes; a colon ends a path in -v.
_PLAIN_PATH: Final = re.compile(r"[A-Za-z0-9_@%+=.,/-]+")


@click.command(epilog=EPILOG, context_settings={"allow_interspersed_args": False})
@click.option("--limit", metavar="CPUS", callback=cpu_limit, help="The container's CPU limit: 4, 500m. Default: none.")
@click.option(
    "-f",
    "--filename",
    "sources",
    multiple=True,
    help="Policy file; selectors are ignored; - is stdin. Default: an empty policy.",
)
@click.option(
    "--machine",
    "root",
    type=click.Path(exists=True, path_type=Path),
    default=Path("/"),
    help="Machine to plan for: directory with sys/ and proc/, or NodeCPUTopology file. Default: this machine.",
)
@click.option(
    "--print",
    "form",
    type=click.Choice(["env", "docker"]),
    help="Print the variables, or flags for `docker run`, without running COMMAND.",
)
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
def run(limit: str | None, sources: Sequence[str], root: Path, form: str | None, command: tuple[str, ...]) -> None:
    """Run COMMAND with the variables, mounts and CPU quota of a container."""
    if form and command:
        raise click.UsageError("--print runs nothing; leave out the command")
    if not form and not command:
        raise click.UsageError("which program? raddle run --limit 4 -- PROGRAM [ARGUMENTS]")
    given = container(limit, _policy(sources), root, command)
    for note in given.notes:
        _say(note)
    if form == "env":
        click.echo(_lines(given.variables), nl=False)
    elif form == "docker":
        click.echo(" ".join(_docker(given)))
    else:
        sys.exit(_run(given, command))


def _say(note: str) -> None:
    click.echo(f"raddle run: {note}", err=True)


# --- what it gets ---------------------------------------------------------------------------------------------------


def _policy(sources: Sequence[str]) -> PolicyObject:
    """The policy of the files, or the default one. Raises ManifestError unless there is exactly one."""
    result = list(workloads.read_policies(manifests.load(sources) if sources else [default_policy()]))
    if len(result) != 1:
        raise ManifestError(f"the files hold {len(result)} policies ({', '.join(workloads.POLICY_KINDS)}); give one")
    return for_everything(result[0])


# --- for containers elsewhere ---------------------------------------------------------------------------------------


def _lines(variables: Mapping[str, str]) -> str:
    return "".join(f"{name}={value}\n" for name, value in variables.items())


def _docker(given: Container) -> Iterator[str]:
    """Yields the flags for `docker run`, none of which needs quotes. The files that they name stay in the user's cache.

    The quota is written as the kubelet does: --cpus is refused where it is more than the engine's machine has.
    """
    if given.cpus is not None:
        yield f"--cpu-period={quota.PERIOD_US}"
        yield f"--cpu-quota={quota.in_us(given.cpus)}"
    if not given.variables:
        return
    folder = _kept(given)
    if _PLAIN_PATH.fullmatch(str(folder)) is None:
        raise ManifestError(
            f"{folder}: has a character that docker's flags can't; set XDG_CACHE_HOME to another folder"
        )
    yield f"--env-file={folder}/env"
    files = {delivery.MOUNT_PATH: "files", delivery.PRELOAD_FILE: f"files/{delivery.PRELOAD_KEY}"}
    for path in given.mounts:
        if path in files:
            yield from ("-v", f"{folder}/{files[path]}:{path}:ro")
        else:
            # Reports: an emptyDir of the pod.
            yield from ("--tmpfs", f"{path}:mode=1777")


def _kept(given: Container) -> Path:
    """The folder in the user's cache with the variables and the files; the same for the same ones."""
    lines = _lines(given.variables)
    content = f"{delivery.content_hash()} {platform.machine()} {' '.join(given.mounts)}\n{lines}"
    above = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "raddle" / "run"
    folder = above.absolute() / hashlib.sha256(content.encode()).hexdigest()[:12]
    if folder.is_dir():
        return folder
    above.mkdir(parents=True, exist_ok=True)
    # Another user's container reads them too. Renamed when it is whole, so that none is found half-written.
    with tempfile.TemporaryDirectory(dir=above) as unfinished:
        made = Path(unfinished) / "made"
        (made / "files").mkdir(parents=True)
        (made / "env").write_text(lines)
        delivery.write(str(made / "files"))
        with contextlib.suppress(OSError):
            made.rename(folder)
    return folder


# --- here -----------------------------------------------------------------------------------------------------------


def _run(given: Container, command: tuple[str, ...]) -> int:
    """Runs the program with all that this machine lets it have; returns the exit status for it."""
    with contextlib.ExitStack() as stack:
        entered = enter(given, command, stack, _say)
        return _outcome(entered.argv, entered.environment)


def _outcome(command: list[str], environment: Mapping[str, str]) -> int:
    """Runs the command in our place, signals included; returns its exit status, 128 + the signal that ended it."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    awaited = {*_FORWARDED, signal.SIGCHLD}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, awaited)
    try:
        try:
            pid = os.posix_spawnp(command[0], command, environment, setsigmask=before, setsigdef=_IGNORED_BY_PYTHON)
        except OSError as error:
            # As `env` does, by which it is started where something stands before it.
            _say(f"{command[0]}: {error.strerror}")
            return 127 if isinstance(error, FileNotFoundError) else 126
        while True:
            came = signal.sigwaitinfo(awaited)
            if came.si_signo != signal.SIGCHLD:
                # What the terminal sends has gone to the program too: it is in our process group.
                if came.si_code <= 0:
                    os.kill(pid, came.si_signo)
                continue
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                code = os.waitstatus_to_exitcode(status)
                return code if code >= 0 else 128 - code
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)

"""What the images' build stages run: it makes a folder that the Dockerfile copies into the image as it is.

Nothing of the target's architecture runs here: wheels are chosen by platform and hash, C is cross-compiled, and the
byte code is the same for every machine. All that could differ between two builds is set: modes, byte code without
times, no record of where a package came from. (The times of files are the image builder's, by SOURCE_DATE_EPOCH.)

    stage.py REQUIREMENTS [PROJECT] OUT   Raddle, its packages and a second project, below /opt/raddle-operator
"""

# ruff: noqa: INP001  # a program, beside the Dockerfiles that run it

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
HOME = "opt/raddle-operator"
# As an image's platform names them, and as `uname -m` does.
ARCHITECTURES = {"amd64": "x86_64", "arm64": "aarch64"}
# Wheels for glibc 2.34 and before; Debian 12 has 2.36.
MANYLINUX = ("manylinux_2_34", "manylinux_2_31", "manylinux_2_28", "manylinux_2_17", "manylinux2014")
# The kubernetes package has a model and a class for each type of the API, twice over, and loads one when asked for it.
# Neither kopf nor we ever ask, and they would be half of the image. Three are asked for by a module of its own.
UNUSED = tuple(
    f"kubernetes/{client}/{kind}/[!_]*.py" for client in ("client", "aio/client") for kind in ("models", "api")
)
# Those of numpy and SciPy are large.
TESTS = ("numpy/**/tests/**/*", "scipy/**/tests/**/*")
KEPT = ("v1_managed_fields_entry.py", "v1_object_meta.py", "v1_owner_reference.py")
# They run models alone, for `raddle tune`; an image without onnx reads none.
RUNNERS = ("raddle/runner", "raddle/_native/*/run-model")
LAUNCHER = """\
#!/usr/local/bin/python3
from raddle_operator.cli import main

main(prog_name="raddle")
"""


def main(arguments: list[str]) -> None:
    """Makes the folder. Raises what goes wrong, and so fails the build."""
    machine = ARCHITECTURES[os.environ["TARGETARCH"]]
    build_native()
    packages(machine, Path(arguments[0]), Path(arguments[-1]), [".", *arguments[1:-1]])
    set_modes(Path(arguments[-1]))


def build_native() -> None:
    """Builds the native parts for every architecture, installing compilers with apt-get where one is missing.

    Every image holds all of them, since the operator delivers the shim to nodes of any kind.
    """
    missing = {name: machine for name, machine in ARCHITECTURES.items() if not shutil.which(f"{machine}-linux-gnu-gcc")}
    if missing:
        names = [f"gcc-{machine.replace('_', '-')}-linux-gnu" for machine in missing.values()]
        names += [f"libc6-dev-{name}-cross" for name in missing]
        subprocess.run(["apt-get", "update", "-qq"], check=True)
        subprocess.run(["apt-get", "install", "-y", "-qq", "--no-install-recommends", *names], check=True)
    sys.path.insert(0, str(ROOT / "tools"))
    from native import build  # noqa: PLC0415  # it lies in tools, which is no package

    for machine in ARCHITECTURES.values():
        build.library(machine)
        build.runner(machine)


def packages(machine: str, requirements: Path, out: Path, projects: list[str]) -> None:
    """Installs the requirements and the projects' wheels below `out`, with byte code and the command."""
    library = out / HOME / "lib"
    _pip("--require-hashes", *_platform(machine), "--requirement", str(requirements), "--target", str(library))
    with tempfile.TemporaryDirectory() as folder:
        wheels = build_wheels(Path(folder), projects)
        _pip("--no-index", "--target", str(library), *map(str, wheels))
    prune(library)
    command = [sys.executable, "-m", "compileall", "-q", "-s", str(out), "-p", "/"]
    subprocess.run([*command, "--invalidation-mode", "unchecked-hash", str(library)], check=True)
    launcher = out / HOME / "bin" / "raddle"
    launcher.parent.mkdir()
    launcher.write_text(LAUNCHER)
    launcher.chmod(0o755)


def build_wheels(folder: Path, projects: list[str]) -> list[Path]:
    """The wheels of these folders of the repository, built in `folder` with pinned tools."""
    tools = folder / "tools"
    _pip("--require-hashes", "--requirement", "images/requirements-build.txt", "--target", str(tools))
    environment = {**os.environ, "PYTHONPATH": str(tools)}
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    for project in projects:
        subprocess.run(command, check=True, env=environment, cwd=ROOT / project)
    return sorted(folder.glob("*.whl"))


def prune(library: Path) -> None:
    """Removes what is never used, and what tells one build from another."""
    shutil.rmtree(library / "bin", ignore_errors=True)
    if not (library / "onnx").is_dir():
        for path in [found for pattern in RUNNERS for found in library.glob(pattern)]:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    for pattern in (*UNUSED, *TESTS, "*.dist-info/direct_url.json", "*.dist-info/REQUESTED", "*.dist-info/RECORD"):
        for path in library.glob(pattern):
            if path.is_file() and path.name not in KEPT:
                path.unlink()


def set_modes(out: Path) -> None:
    """Gives folders and programs 0755 and other files 0644, whatever the umask of the checkout was."""
    for path in [out, *out.rglob("*")]:
        if not path.is_symlink():
            runs = path.is_dir() or path.stat().st_mode & 0o100
            path.chmod(0o755 if runs else 0o644)


def _platform(machine: str) -> list[str]:
    """Options by which pip chooses wheels for a glibc Linux of this architecture."""
    version = f"{sys.version_info[0]}{sys.version_info[1]}"
    platforms = [f"--platform={name}_{machine}" for name in MANYLINUX]
    abis = [f"--abi={abi}" for abi in (f"cp{version}", "abi3", "none")]
    return [*platforms, "--implementation=cp", f"--python-version={version}", *abis]


def _pip(*options: str) -> None:
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    fixed = ["--root-user-action=ignore", "--no-compile", "--no-deps", "--only-binary=:all:"]
    subprocess.run([*command, *fixed, *options], check=True, cwd=ROOT)


if __name__ == "__main__":
    main(sys.argv[1:])

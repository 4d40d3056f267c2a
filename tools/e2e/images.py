"""The images of a run, made from this Python and the developer's environment, without a registry or a builder.

`raddle` (controller, webhook, CLI and agent), the application with ONNX Runtime, in Python, in a virtual environment
and, where this machine has it, in Node.js, and the sandbox's. They are kept outside the checkout and made again when
what is in them changes.
"""

from __future__ import annotations

import functools
import hashlib
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterable, Mapping
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from cluster.progress import Progress
from e2e import archive, features, settings
from e2e.errors import E2EError
from raddle import __version__
from runtimes import nodejs
from vm import cache, contents, model
from vm.guest import session

REPOSITORY = Path(__file__).resolve().parents[2]
INSIDE = Path(__file__).with_name("inside")
# Where they change, images are made again.
MAKERS = (Path(__file__), Path(archive.__file__), Path(contents.__file__))
APP, NODE_APP = INSIDE / "app.py", INSIDE / "app.cjs"
RADDLE_IMAGE = f"raddle:{__version__}"
TUNER_IMAGE = f"raddle-tuner:{__version__}"
AGENT_IMAGE = f"raddle-agent:{__version__}"
# Longer than it takes a run to hand them to its nodes.
IN_USE_SECONDS = 1800
# Instead of a folder: with buildah, as users' images are built.
BUILD = Path("build")
APP_IMAGE = "raddle-e2e-app:1"
VENV_IMAGE = "raddle-e2e-venv:1"
NODE_IMAGE = "raddle-e2e-node:1"
RADDLE_PACKAGES = ("raddle[operator,agent,cli]", "raddle-tuner[cli]")
APP_PACKAGES = ("raddle[ort]",)
SOURCES = ("operator", "runtime", "tuner", "crds", "pyproject.toml")
PYTHON = f"/{contents.PYTHON}"
VENV = "/venv"
VENV_PYTHON = f"{VENV}/bin/python"
NODE = "/node/bin/node"
ENV = {"PATH": "/python/bin:/bin"}


def tarballs(exported: Path | None, progress: Progress) -> tuple[list[Path], str]:
    """The tarballs, for `ctr images import`, and the agent's own image ("": it has none).

    `exported` is a folder that `python -m images export` has filled, BUILD to have that done; None: images of Raddle
    are made here from the developer's environment. Raises E2EError where one can't be made or is not there.
    """
    if exported == BUILD:
        exported = _built(progress)
    source = _packages(APP_PACKAGES) + _text(APP, Path(session.__file__), Path(model.__file__))
    app = _kept("app", source, "the application's image", _make_app, progress)
    others = [app / "app.tar", app / "venv.tar", app / "pause.tar"]
    if not features.without_nodejs():
        make_node = functools.partial(_make_node, modules=nodejs.package(f"onnxruntime-node@{nodejs.NEWEST}"))
        program = _node_program().stat()
        source = f"{nodejs.NEWEST} {program.st_size} {program.st_mtime_ns}" + _text(NODE_APP, Path(model.__file__))
        others.append(_kept("node", source, "the image with Node.js", make_node, progress) / "node.tar")
    if exported is not None:
        given = [path.resolve() for path in sorted(exported.glob("*.tar"))]
        if not any(path.name.startswith(f"{RADDLE_IMAGE.replace(':', '-')}") for path in given):
            raise E2EError(f"{exported}: no archive of {RADDLE_IMAGE}; python -m images export {exported} writes one")
        agent = any(path.name.startswith(AGENT_IMAGE.replace(":", "-")) for path in given)
        progress.say(f"Raddle's images, as users get them: {', '.join(path.stem for path in given)}")
        return [*given, *others], AGENT_IMAGE if agent else ""
    base = _kept("base", _packages(RADDLE_PACKAGES), "the base of Raddle's image", _make_base, progress)
    make_raddle = functools.partial(_make_raddle, base=base / "base.layer")
    raddle = _kept("raddle", _packages(RADDLE_PACKAGES) + _sources(), "Raddle's image", make_raddle, progress)
    progress.say("Raddle's images are made of the developer's environment (--images build: as users get them)")
    return [raddle / "raddle.tar", raddle / "tuner.tar", *others], ""


def distributions(wanted: Iterable[str]) -> list[str]:
    """What these requirements and all that they need are called, without Raddle's own, in this environment."""
    asked = {(need.name, frozenset(need.extras)) for need in map(Requirement, wanted)}
    known: set[tuple[str, frozenset[str]]] = set()
    while asked:
        name, extras = asked.pop()
        known.add((name, extras))
        for need in map(Requirement, metadata.requires(name) or []):
            if need.marker is None or any(need.marker.evaluate({"extra": extra}) for extra in ("", *extras)):
                asked |= {(canonicalize_name(need.name), frozenset(need.extras))} - known
    return sorted({name for name, _ in known} - {"raddle", "raddle-tuner"})


def _built(progress: Progress) -> Path:
    """What `python -m images export` writes; it keeps what is built already."""
    folder = cache.folder() / "e2e-exported"
    shutil.rmtree(folder, ignore_errors=True)
    progress.say("building Raddle's images with buildah")
    command = [sys.executable, "-m", "images", "export", "--required", str(folder)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        raise E2EError(f"python -m images export: {(done.stdout + done.stderr)[-800:]}")
    return folder


def _kept(name: str, source: str, what: str, make: Callable[[Path], None], progress: Progress) -> Path:
    """What `make` makes of this source, a text, and no older one but those that another run may be using."""
    key = hashlib.sha256((_text(*MAKERS) + source).encode()).hexdigest()[:12]
    home = cache.made(f"e2e-{name}-{key}", what, make, progress)
    cache.forget(f"e2e-{name}-*", older_than_s=IN_USE_SECONDS)
    return home


def _sources() -> str:
    """The digests of all files that Raddle's wheel is built of."""
    roots = [REPOSITORY / source for source in SOURCES]
    files = [file for root in roots for file in (sorted(root.rglob("*")) if root.is_dir() else [root])]
    return "".join(
        f"{file.relative_to(REPOSITORY)} {hashlib.sha256(file.read_bytes()).hexdigest()}\n"
        for file in files
        if file.is_file() and "__pycache__" not in file.parts
    )


def _packages(wanted: Iterable[str]) -> str:
    return sys.version + "".join(f"{name} {metadata.version(name)}\n" for name in distributions(wanted))


def _node_program() -> Path:
    """This machine's Node.js."""
    return Path(nodejs.node()).resolve()


def _text(*sources: Path) -> str:
    return "".join(path.read_text() for path in sources)


def _make_base(home: Path) -> None:
    root = home / "root"
    contents.python(root, distributions(RADDLE_PACKAGES))
    _compile(root)
    archive.layer(root, home / "base.layer")
    shutil.rmtree(root)


def _make_raddle(home: Path, base: Path) -> None:
    root = home / "root"
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "-w", str(home)]
    command += [str(REPOSITORY), str(REPOSITORY / "tuner")]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        raise E2EError(f"the wheels of Raddle can't be built: {done.stderr[-800:]}")
    for wheel in home.glob("raddle*.whl"):
        with zipfile.ZipFile(wheel) as files:
            files.extractall(root / contents.SITE_PACKAGES)
    _compile(root)
    entrypoint = [PYTHON, "-m", "raddle_operator"]
    layers = [base, archive.layer(root, home / "raddle.layer")]
    for name, file in ((RADDLE_IMAGE, "raddle.tar"), (TUNER_IMAGE, "tuner.tar")):
        image = archive.Image(name=name, entrypoint=entrypoint, env=ENV, user="65532")
        archive.write(layers, image, home / file)
    shutil.rmtree(root)


def _make_app(home: Path) -> None:
    root = home / "root"
    contents.python(root, distributions(APP_PACKAGES))
    (root / "app").mkdir()
    shutil.copy(APP, root / "app" / "app.py")
    # As the application imports it.
    (root / "app" / "vm" / "guest").mkdir(parents=True)
    shutil.copy(session.__file__, root / "app" / "vm" / "guest")
    model.write(root / "app" / "model.onnx")
    for name in ("cp", "sleep"):  # beside sh, for tunings
        (root / "bin" / name).symlink_to("busybox")
    _compile(root)
    _make_venv(root)
    program = ["/app/app.py", "/app/model.onnx"]
    image = archive.Image(name=APP_IMAGE, entrypoint=[PYTHON, *program], env=ENV, user="1000")
    environment = {"PATH": f"{VENV}/bin:/bin", "VIRTUAL_ENV": VENV}
    venv = archive.Image(name=VENV_IMAGE, entrypoint=[VENV_PYTHON, *program], env=environment, user="1000")
    _write_whole(root, {home / "app.tar": image, home / "venv.tar": venv})
    # A sandbox's process only has to be there.
    contents.busybox(root)
    pause = archive.Image(name=settings.PAUSE_IMAGE, entrypoint=["/bin/busybox", "sleep", "2147483647"])
    _write_whole(root, {home / "pause.tar": pause})


def _make_node(home: Path, modules: Path) -> None:
    """As images of Node.js are: no Python, no shell but the system's."""
    root = home / "root"
    contents.system(root)
    program = root / NODE[1:]
    program.parent.mkdir(parents=True)
    shutil.copy(_node_program(), program)
    shutil.copytree(modules, root / "app" / "node_modules")
    shutil.copy(NODE_APP, root / "app" / "app.cjs")
    model.write(root / "app" / "model.onnx")
    contents.libraries([program, *(root / "app").rglob("*.node"), *(root / "app").rglob("*.so*")], root)
    environment = {"PATH": "/node/bin:/bin"}
    entrypoint = [NODE, "/app/app.cjs", "/app/model.onnx"]
    image = archive.Image(name=NODE_IMAGE, entrypoint=entrypoint, env=environment, user="1000")
    _write_whole(root, {home / "node.tar": image})


def _make_venv(root: Path) -> None:
    """As `python -m venv` makes it, of the image's own Python and, to have them once, its packages."""
    site_packages = root / VENV[1:] / "lib" / contents.VERSION / "site-packages"
    site_packages.parent.mkdir(parents=True)
    site_packages.symlink_to(f"/{contents.SITE_PACKAGES}")
    program = root / VENV_PYTHON[1:]
    program.parent.mkdir()
    program.symlink_to(PYTHON)
    home = Path(PYTHON).parent
    (root / VENV[1:] / "pyvenv.cfg").write_text(f"home = {home}\ninclude-system-site-packages = false\n")


def _write_whole(root: Path, images: Mapping[Path, archive.Image]) -> None:
    """Images of the same one layer, each to its path; the files are removed."""
    only = archive.layer(root, root.with_suffix(".layer"))
    for path, image in images.items():
        archive.write([only], image, path)
    only.unlink()
    shutil.rmtree(root)


def _compile(root: Path) -> None:
    """Bytecode for what has none: the container's file system may be read-only."""
    command = [sys.executable, "-m", "compileall", "-q", "-s", str(root), str(root / contents.SITE_PACKAGES)]
    subprocess.run(command, check=False, capture_output=True)

"""Images as people build them, for the table of reach: each has reach_app.py and starts it in its own way.

An image is built with the project's own tool at its first use: what takes seconds is kept below ~/.cache/raddle, the
rest goes into a folder of the test session. What this machine can't have skips the row and says why.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import re
import shutil
import subprocess
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from raddle import delivery
from runtimes import fetching, libonnxruntime, pythons
from support.runtimes import door_lab, process_lab

APP = process_lab.PROGRAMS / "reach_app.py"
CACHE = libonnxruntime.HOME.with_name("reach")
VERSION = "3.11"
ONNXRUNTIME = {"3.8": "ort-1.19.2-py3.8", VERSION: "ort-1.32.0", "3.13": "ort-1.31.1-py3.13"}
TOOLS = ("pex==2.105.2", "pipx==1.18.4", "poetry==2.5.1", "shiv==1.0.8", "uv==0.13.9", "virtualenv==21.15.8")
PYINSTALLER = ("coexist-pyinstaller-6.22.3", "pyinstaller==6.22.3")
# Debian's packages: for this machine's release, and for a root of its own.
SUPERVISORS = ("dumb-init", "tini")
NEWER = ("python3.14", "python3.15", "pypy3", "libc-bin")
# A root file system that has nothing but a tree and some folders of this machine's, in a mount namespace of its own.
ROOT = """
set -e
tree=$1; shift
mount -t tmpfs none /mnt
mkdir /mnt/upper /mnt/work /mnt/root
mount -t overlay none -o lowerdir="$tree",upperdir=/mnt/upper,workdir=/mnt/work /mnt/root
while [ "$1" != -- ]; do
    if [ -d "$1" ]; then
        mkdir -p "/mnt/root$1"
        mount --rbind "$1" "/mnt/root$1"
    elif [ -e "$1" ]; then
        mkdir -p "/mnt/root${1%/*}"
        : > "/mnt/root$1"
        mount --bind "$1" "/mnt/root$1"
    fi
    shift
done
shift
exec chroot /mnt/root "$@"
"""
# Python in a program of its own, with its own arguments; compiled with -DCONFIG=PyConfig_InitPythonConfig.
EMBEDDED = """
#include <Python.h>
int main(int count, char **arguments)
{
    PyConfig config;
    CONFIG(&config);
    config.parse_argv = 0;
    PyConfig_SetBytesArgv(&config, count - 1, arguments + 1);
    if (PyStatus_Exception(Py_InitializeFromConfig(&config))) {
        return 9;
    }
    int status = PyRun_SimpleFileEx(fopen(arguments[1], "rb"), arguments[1], 1);
    return Py_FinalizeEx() < 0 ? 8 : status != 0;
}
"""


class Image(NamedTuple):
    """How an image starts the application: what is put in front of its arguments, and the variables that it sets.

    packages  a folder with an onnxruntime for its Python; "": there is none
    how       which process of the application does the work, see reach_app.py
    keeps     variables that its Python never reads, so that what the door adds there stays
    tree      the root file system where it is not this machine's, with `binds` of this machine's in it
    """

    command: tuple[str | Path, ...]
    env: Mapping[str, str] = {}
    packages: str = ""
    how: str = ""
    keeps: tuple[str, ...] = ()
    cwd: Path | None = None
    tree: Path | None = None
    binds: tuple[str | Path, ...] = ()


class Lab:
    """Where one test session builds its images; `image` and `stock` are kept, since each is asked for a few times."""

    def __init__(self, folder: Path, model: Path) -> None:
        self.folder = folder
        self.model = model
        self.home = self.made("home")
        self.app = self.made("app") / "reach_app.py"
        shutil.copy(APP, self.app)
        self.image = functools.cache(lambda name: LAYOUTS[name](self))
        self.stock = functools.cache(lambda name: self.run(self.image(name)._replace(packages=""), door=False))

    def made(self, name: str) -> Path:
        """An empty folder of this name."""
        (self.folder / name).mkdir(parents=True)
        return self.folder / name

    def run(self, image: Image, *, door: bool = True, **variables: str) -> tuple[dict[str, Any], str]:
        """What the application says of itself, and standard error, in a container with these variables too."""
        own = {"PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin", "HOME": str(self.home), "LANG": "C.UTF-8"}
        command = [*image.command, image.how, image.packages, self.model]
        start = door_lab.prefix() if door else door_lab.closed()
        if image.tree is not None:
            mounts = (delivery.MOUNT_PATH, delivery.PRELOAD_FILE) if door else ()
            places = (self.folder, self.model.parent, image.packages, *image.binds, "/proc", "/sys", "/dev", *mounts)
            root = ("unshare", "--mount", "sh", "-c", ROOT, "root")
            start = (*start, *root, str(image.tree), *map(str, filter(None, places)), "--")
        command = [*start, *command]
        done = subprocess.run(
            list(map(str, command)),
            env={**own, **image.env, **variables},
            cwd=image.cwd or self.app.parent,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, f"{done.returncode}: {done.stdout[-2000:]}\n{done.stderr[-4000:]}"
        # PyInstaller unpacks one file into a folder of another name at each start.
        said: dict[str, Any] = json.loads(re.sub(r"_MEI\w+", "_MEI", done.stdout))
        return said, done.stderr

    def package(self, folder: Path) -> Path:
        """The folder, with the image's own package in it."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "reach_package.py").touch()
        return folder

    def python(self, version: str = VERSION) -> Path:
        """A CPython outside any virtual environment."""
        return pythons.interpreter(version)

    def plain(self, *options: str, how: str = "", **variables: str) -> Image:
        """The image's own Python with these options, in an image that sets these variables."""
        return Image((self.python(), *options, self.app), variables, packages(), how)

    def started(self, *before: str | Path, **variables: str) -> Image:
        """The image's own Python behind a command that ends with one to run."""
        return Image((*before, self.python(), self.app), variables, packages())


LAYOUTS: dict[str, Callable[[Lab], Image]] = {}


def layout(name: str) -> Callable[[Callable[[Lab], Image]], Callable[[Lab], Image]]:
    """Names the way in which an image is built, as the table's row does."""

    def keep(make: Callable[[Lab], Image]) -> Callable[[Lab], Image]:
        LAYOUTS[name] = make
        return make

    return keep


def packages(version: str = VERSION) -> str:
    """A folder with onnxruntime for this Python; "" where the machine has none."""
    if version not in ONNXRUNTIME:
        return ""
    return str(site_packages(pythons.release(ONNXRUNTIME[version]).parents[1]))


def site_packages(environment: Path) -> Path:
    """Where a virtual environment has its packages."""
    (found,) = (environment / "lib").glob("python*/site-packages")
    return found


def tool(name: str) -> Path:
    """One of TOOLS, or PyInstaller; skips the row where it can't be installed."""
    environment, *wanted = PYINSTALLER if name == "pyinstaller" else ("reach-tools", *TOOLS)
    return pythons.venv(environment, VERSION, wanted).with_name(name)


def call(*command: str | Path, cwd: Path | None = None, **variables: str) -> None:
    """Runs a tool that builds something; AssertionError with what it said where it fails."""
    given = {"PATH": os.environ["PATH"], "HOME": str(cwd or CACHE), **variables}
    done = subprocess.run(
        list(map(str, command)), cwd=cwd, env=given, capture_output=True, text=True, timeout=280, check=False
    )
    assert done.returncode == 0, f"{command[0]}: {done.stdout[-1000:]}\n{done.stderr[-3000:]}"


def wheel(folder: Path) -> Path:
    """The application as a wheel with a console script `reach-app`."""
    path, info = folder / "reach_app-1-py3-none-any.whl", "reach_app-1.dist-info/"
    with zipfile.ZipFile(path, "w") as archive:
        archive.write(APP, "reach_app.py")
        archive.writestr(info + "METADATA", "Metadata-Version: 2.1\nName: reach-app\nVersion: 1\n")
        archive.writestr(info + "WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(info + "entry_points.txt", "[console_scripts]\nreach-app = reach_app:main\n")
        archive.writestr(info + "RECORD", "".join(f"{name},,\n" for name in [*archive.namelist(), info + "RECORD"]))
    return path


# --- Python in the image ------------------------------------------------------------------------------------------

DEBIAN = Path("/usr/bin/python3.11")


@layout("own")
def _own(lab: Lab) -> Image:
    return lab.plain()


@layout("debian")
def _debian(lab: Lab) -> Image:
    if not DEBIAN.exists():
        pytest.skip(f"no {DEBIAN} here")
    return Image((DEBIAN, lab.app), {}, packages())


@layout("distroless")
def _distroless(lab: Lab) -> Image:
    if not DEBIAN.exists():
        pytest.skip(f"no {DEBIAN} here")
    tree = lab.made("distroless")
    for name in ("lib", "lib64"):
        (tree / name).symlink_to(f"usr/{name}")
    libraries = next(iter(Path("/usr/lib").glob("*-linux-gnu/libc.so.6"))).parent
    # As the image is: Python, its modules and the C library, and no program beside them.
    binds = (DEBIAN, DEBIAN.parents[1] / "lib" / DEBIAN.name, "/etc/python3.11", libraries, "/usr/lib64")
    return Image((DEBIAN, lab.app), {}, packages(), tree=tree, binds=binds)


@layout("user")
def _user(lab: Lab) -> Image:
    home = lab.made("user")
    lab.package(home / ".local/lib" / f"python{VERSION}" / "site-packages")
    return lab.plain(HOME=str(home))


def environment(lab: Lab, name: str, *command: str | Path) -> Image:
    """An image with a virtual environment that this command makes in a folder."""
    home = lab.folder / name
    call(*command, home)
    lab.package(site_packages(home))
    return Image((home / "bin/python", lab.app), {"VIRTUAL_ENV": str(home)}, packages())


@layout("venv")
def _venv(lab: Lab) -> Image:
    return environment(lab, "venv", lab.python(), "-m", "venv", "--without-pip")


@layout("venv-system")
def _venv_system(lab: Lab) -> Image:
    return environment(lab, "venv-system", lab.python(), "-m", "venv", "--without-pip", "--system-site-packages")


@layout("virtualenv")
def _virtualenv(lab: Lab) -> Image:
    return environment(lab, "virtualenv", tool("virtualenv"), "--python", lab.python(), "--no-seed")


UV = {"UV_PYTHON_DOWNLOADS": "never", "UV_OFFLINE": "1", "UV_NO_CACHE": "1"}
PROJECT = '[project]\nname = "reach"\nversion = "1"\nrequires-python = ">=3.11"\n'


@layout("uv-venv")
def _uv_venv(lab: Lab) -> Image:
    return environment(lab, "uv-venv", tool("uv"), "venv", "--offline", "--no-cache", "--python", lab.python())


@layout("uv-run")
def _uv_run(lab: Lab) -> Image:
    project = lab.made("uv-run")
    (project / "pyproject.toml").write_text(PROJECT)
    call(tool("uv"), "sync", "--python", lab.python(), cwd=project, **UV)
    lab.package(site_packages(project / ".venv"))
    return Image((tool("uv"), "run", "--no-sync", "python", lab.app), UV, packages(), cwd=project)


@layout("poetry-run")
def _poetry_run(lab: Lab) -> Image:
    project = lab.made("poetry-run")
    (project / "pyproject.toml").write_text(PROJECT + "\n[tool.poetry]\npackage-mode = false\n")
    settings = {"POETRY_VIRTUALENVS_IN_PROJECT": "1", "POETRY_CACHE_DIR": str(project / "cache")}
    call(lab.python(), "-m", "venv", "--without-pip", project / ".venv")
    lab.package(site_packages(project / ".venv"))
    return Image((tool("poetry"), "run", "python", lab.app), settings, packages(), cwd=project)


@layout("pipx")
def _pipx(lab: Lab) -> Image:
    folder = lab.made("pipx")
    places = {"PIPX_HOME": str(folder / "home"), "PIPX_BIN_DIR": str(folder / "bin"), **UV}
    places["PATH"] = f"{tool('uv').parent}:/usr/bin:/bin"
    call(tool("pipx"), "install", "--backend", "uv", "--python", lab.python(), wheel(folder), **places)
    return Image((folder / "bin/reach-app",), {}, packages())


@layout("zipapp")
def _zipapp(lab: Lab) -> Image:
    folder = lab.made("zipapp")
    shutil.copy(APP, folder / "__main__.py")
    call(lab.python(), "-m", "zipapp", folder, "-p", lab.python(), "-o", lab.folder / "app.pyz")
    return Image((lab.folder / "app.pyz",), {}, packages())


@layout("shiv")
def _shiv(lab: Lab) -> Image:
    folder = lab.made("shiv")
    made = ("-c", "reach-app", "-p", lab.python(), "-o", folder / "app.pyz", "--no-deps", "--no-index", wheel(folder))
    call(tool("shiv"), *made)
    return Image((folder / "app.pyz",), {"SHIV_ROOT": str(folder / "root")}, packages())


@layout("pex")
def _pex(lab: Lab) -> Image:
    folder = lab.made("pex")
    root = {"PEX_ROOT": str(folder / "root")}
    made = (wheel(folder), "--no-index", "-c", "reach-app", "--python", lab.python(), "-o", folder / "app.pex")
    call(tool("pex"), *made, cwd=folder, **root)
    return Image((folder / "app.pex",), root, packages())


@layout("pex-path")
def _pex_path(lab: Lab) -> Image:
    # PEX executes Python again with -I where the variable is set.
    image = lab.image("pex")
    return image._replace(env={**image.env, "PYTHONPATH": str(lab.made("pex-path"))})


def frozen(name: str, *options: str | Path) -> Path:
    """The folder with what PyInstaller makes of the application."""
    builder = tool("pyinstaller")
    digest = hashlib.sha256("\0".join((*PYINSTALLER, *map(str, options), APP.read_text())).encode()).hexdigest()[:12]
    home = CACHE / f"{name}-{digest}"
    with fetching.made(home) as folder:
        if folder:
            shutil.copy(APP, folder / "reach_app.py")
            call(builder, "--noconfirm", "--log-level", "ERROR", *options, "reach_app.py", cwd=folder)
            shutil.rmtree(folder / "build")
    return home / "dist"


@layout("pyinstaller")
def _pyinstaller(lab: Lab) -> Image:
    home = frozen("frozen", "--onedir", "--paths", packages())
    # The runtime is in the application, whose path needs nothing behind it.
    return Image((home / "reach_app/reach_app",), {}, packages=".")


@layout("pyinstaller-file")
def _pyinstaller_file(lab: Lab) -> Image:
    return Image((frozen("frozen-file", "--onefile", "--exclude-module", "onnxruntime") / "reach_app",))


def embedded(lab: Lab, name: str, config: str) -> Image:
    """A C program with the shared library of the image's Python."""
    fetching.tool("gcc")
    prefix = lab.python().parents[1]
    library = prefix / "lib" / f"libpython{VERSION}.so"
    if not library.exists():
        pytest.skip(f"no {library.name} here")
    source, program = lab.folder / f"{name}.c", lab.folder / name
    source.write_text(EMBEDDED)
    include, folder = prefix / "include" / f"python{VERSION}", library.parent
    call("gcc", f"-DCONFIG={config}", f"-I{include}", source, "-o", program, library, f"-Wl,-rpath,{folder}")
    # It has no environment of its own to find Python's modules by.
    return Image((program, lab.app), {"PATH": f"{prefix / 'bin'}:/usr/bin:/bin"}, packages())


@layout("embedded")
def _embedded(lab: Lab) -> Image:
    return embedded(lab, "embedded", "PyConfig_InitPythonConfig")


@layout("embedded-isolated")
def _embedded_isolated(lab: Lab) -> Image:
    return embedded(lab, "embedded-isolated", "PyConfig_InitIsolatedConfig")._replace(keeps=("PYTHONPATH",))


# --- images from builders -----------------------------------------------------------------------------------------


@layout("paketo")
def _paketo(lab: Lab) -> Image:
    layers = lab.made("paketo")
    installed = lab.package(layers / "packages/lib" / f"python{VERSION}" / "site-packages")
    # Its CPython sets the variable to its own layer, and what installs packages prepends theirs.
    return lab.plain(PYTHONPATH=f"{installed}:{layers / 'cpython'}")


@layout("google")
def _google(lab: Lab) -> Image:
    base = lab.made("google")
    lab.package(base / "lib" / f"python{VERSION}" / "site-packages")
    return lab.plain(PYTHONUSERBASE=str(base))


@layout("heroku")
def _heroku(lab: Lab) -> Image:
    home = lab.made("heroku/app")
    lab.package(home)
    (home / ".heroku").mkdir()
    (home / ".heroku/python").symlink_to(lab.python().parents[1])
    (home / ".profile.d").mkdir()
    (home / ".profile.d/python.sh").write_text(
        "export PATH=$HOME/.heroku/python/bin:$PATH PYTHONUNBUFFERED=true PYTHONHOME=$HOME/.heroku/python\n"
        "export LD_LIBRARY_PATH=$HOME/.heroku/python/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}\n"
        "export PYTHONPATH=${PYTHONPATH:-$HOME}\n"
    )
    start = 'for one in .profile.d/*.sh; do . "$one"; done; exec "$@"'
    return Image(("bash", "-c", start, "bash", f"python{VERSION}", lab.app), {"HOME": str(home)}, packages(), cwd=home)


@layout("s2i")
def _s2i(lab: Lab) -> Image:
    root = lab.folder / "app-root"
    call(lab.python(), "-m", "venv", "--without-pip", root)
    lab.package(site_packages(root))
    # The image names it in all three, so that every shell is in the environment, whichever user starts it.
    names = ("BASH_ENV", "ENV", "PROMPT_COMMAND")
    activate = dict.fromkeys(names, str(root / "bin/activate")) | {"PROMPT_COMMAND": f". {root / 'bin/activate'}"}
    return Image(("bash", "-c", 'exec python "$@"', "bash", lab.app), {"APP_ROOT": str(root), **activate}, packages())


@layout("script")
def _script(lab: Lab) -> Image:
    image = environment(lab, "script", lab.python(), "-m", "venv", "--without-pip")
    python = image.command[0]
    call(tool("uv"), "pip", "install", "--no-deps", "--python", python, wheel(lab.made("script-wheel")), **UV)
    return Image((lab.folder / "script/bin/reach-app",), {}, packages())


# --- options and variables ----------------------------------------------------------------------------------------

for _option in ("-s", "-E", "-I", "-S", "-Es", "-P", "-O", "-Xdev", "-Werror"):
    layout(_option)(lambda lab, option=_option: lab.plain(option))
for _name in ("PYTHONNOUSERSITE", "PYTHONSAFEPATH", "PYTHONDONTWRITEBYTECODE"):
    layout(_name)(lambda lab, name=_name: lab.plain(**{name: "1"}))


@layout("-m")
def _module(lab: Lab) -> Image:
    return Image((lab.python(), "-m", "reach_app"), {}, packages())


@layout("-c")
def _command(lab: Lab) -> Image:
    # What comes behind is the program's own.
    return Image((lab.python(), "-c", "import runpy; runpy.run_module('reach_app', None, '__main__')"), {}, packages())


@layout("stdin")
def _stdin(lab: Lab) -> Image:
    return Image(("sh", "-c", f'exec {lab.python()} - "$@" < {lab.app}', "sh"), {}, packages())


@layout("PYTHONHOME")
def _python_home(lab: Lab) -> Image:
    return lab.plain(PYTHONHOME=str(lab.python().parents[1]))


@layout("PYTHONPATH")
def _python_path(lab: Lab) -> Image:
    return lab.plain(PYTHONPATH=str(lab.package(lab.folder / "path")))


@layout("PYTHONPATH-empty")
def _python_path_empty(lab: Lab) -> Image:
    return lab.plain(PYTHONPATH="")


def customized(folder: Path, name: str) -> Path:
    """The folder, with a module of this name that Python's start imports."""
    folder.mkdir(parents=True, exist_ok=True)
    said = f'import sys\nsys.reach = getattr(sys, "reach", []) + ["{name}", __file__]\n'
    (folder / f"{name}.py").write_text(said)
    return folder


@layout("PYTHONPATH-own")
def _python_path_own(lab: Lab) -> Image:
    folder = customized(lab.folder / "path-own", "sitecustomize")
    # An empty part is the folder where the process starts, and the last has a slash at its end.
    return lab.plain(PYTHONPATH=f"{folder}::{lab.package(lab.folder / 'path-more')}/")


@layout("PYTHONUSERBASE")
def _user_base(lab: Lab) -> Image:
    base = lab.made("base")
    customized(lab.package(base / "lib" / f"python{VERSION}" / "site-packages"), "usercustomize")
    return lab.plain(PYTHONUSERBASE=str(base))


@layout("both")
def _both(lab: Lab) -> Image:
    base, folder = lab.made("both/base"), lab.made("both/path")
    lab.package(base / "lib" / f"python{VERSION}" / "site-packages")
    return lab.plain(PYTHONUSERBASE=str(base), PYTHONPATH=str(customized(folder, "sitecustomize")))


@layout("sitecustomize")
def _sitecustomize(lab: Lab) -> Image:
    home = lab.folder / "sitecustomize"
    call(lab.python(), "-m", "venv", "--without-pip", "--system-site-packages", home)
    customized(site_packages(home), "sitecustomize")
    return Image((home / "bin/python", lab.app), {}, packages())


@layout("usercustomize")
def _usercustomize(lab: Lab) -> Image:
    home = lab.made("usercustomize")
    customized(home / ".local/lib" / f"python{VERSION}" / "site-packages", "usercustomize")
    return lab.plain(HOME=str(home))


@layout("PYTHONSTARTUP")
def _startup(lab: Lab) -> Image:
    return lab.plain(PYTHONSTARTUP=str(customized(lab.folder / "startup", "startup") / "startup.py"))


# --- how it is started --------------------------------------------------------------------------------------------

for _how in ("fork", "spawn", "forkserver", "subprocess", "execve", "empty-environment"):
    layout(_how)(lambda lab, how=_how: lab.plain(how=how))


@layout("sh")
def _sh(lab: Lab) -> Image:
    return lab.started("sh", "-c", 'echo starting >&2; "$@"', "sh")


@layout("bash-login")
def _bash_login(lab: Lab) -> Image:
    return lab.started("bash", "-lc", 'exec "$@"', "bash")


@layout("dumb-init")
def _dumb_init(lab: Lab) -> Image:
    return lab.started(supervisor("dumb-init"), "--")


@layout("tini")
def _tini(lab: Lab) -> Image:
    return lab.started(supervisor("tini"), "-s", "--")


@functools.cache
def supervisor(name: str) -> Path:
    """One of SUPERVISORS, as Debian has it."""
    with fetching.made(CACHE / "supervisors") as folder:
        if folder:
            command = ["apt-get", "download", "-qq", *SUPERVISORS]
            if subprocess.run(command, cwd=folder, capture_output=True, check=False, timeout=600).returncode:
                fetching.fetch("apt-get", "update", "-qq")
                fetching.fetch(*command, cwd=folder)
            for archive in folder.glob("*.deb"):
                fetching.fetch("dpkg-deb", "-x", archive, folder)
    return CACHE / "supervisors" / "usr/bin" / name


@layout("other-name")
def _other_name(lab: Lab) -> Image:
    return lab.started("bash", "-c", 'exec -a "server: main" "$@"', "bash")


@layout("other-user")
def _other_user(lab: Lab) -> Image:
    if os.geteuid() != 0 or not DEBIAN.exists():
        pytest.skip(f"not root, or no {DEBIAN} here")
    before = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
    # That user sees none of this one's packages.
    return Image((*before, DEBIAN, lab.app))


@layout("env-i")
def _env_i(lab: Lab) -> Image:
    return lab.started("sh", "-c", 'env -i "$@"; exit $?', "sh")


# --- versions -----------------------------------------------------------------------------------------------------

for _version in ("3.8", "3.9", "3.10", "3.11", "3.12", "3.13"):
    layout(_version)(lambda lab, version=_version: Image((lab.python(version), lab.app), {}, packages(version)))


def old(lab: Lab, version: str) -> Image:
    """A Python before the shim's first, with a package of the user's."""
    found = pythons.any_interpreter(f"{version}.*")
    home = lab.made(f"old-{version}")
    lab.package(home / ".local/lib" / f"python{version}" / "site-packages")
    return Image((found, lab.app), {"HOME": str(home)})


for _version in ("2.7", "3.6", "3.7"):
    layout(_version)(lambda lab, version=_version: old(lab, version))


@functools.cache
def newer() -> Path:
    """A root file system with NEWER, of Debian's next release."""
    with fetching.made(CACHE / "sid") as folder:
        if folder:
            options = libonnxruntime.apt_options("sid", folder / "apt")
            wanted = ("--yes", "--no-install-recommends", "--download-only", "install", *NEWER)
            fetching.fetch("apt-get", "-qq", *options, *wanted)
            for archive in (folder / "apt/cache/archives").glob("*.deb"):
                fetching.fetch("dpkg-deb", "-x", archive, folder)
            for unused in (folder / "apt", folder / "usr/share"):
                shutil.rmtree(unused)
            for name in ("bin", "lib", "lib64"):
                if not (folder / name).exists():
                    (folder / name).symlink_to(f"usr/{name}")
    return CACHE / "sid"


for _name, _program in (("3.14", "python3.14"), ("3.15", "python3.15"), ("pypy", "pypy3")):
    layout(_name)(lambda lab, program=_program: Image((Path("/usr/bin", program), lab.app), tree=newer()))

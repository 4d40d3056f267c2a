"""The real runtimes behind the families: each as a small program in a process of its own that says what it counts.

`environment` is what a container starts with: what its pod spec sets, and what the webhook adds for a policy.
Programs are built once, into the cache, and named after their sources; what a machine lacks is skipped with a reason.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cluster import decided, kubelet_env, objects
from raddle import env
from raddle.planning.families import JAVA_OPTIONS
from raddle_operator.injection import explain
from raddle_operator.injection.decide import Facts, Settings
from raddle_operator.injection.volumes import ShimDelivery
from runtimes import fetching, pythons
from runtimes.fetching import fetch, tool
from support.runtimes import families_programs as programs
from support.runtimes import shim_lab

CACHE = fetching.CACHE / "families"
CPUS = len(os.sched_getaffinity(0))
PACKAGES = (
    "numpy==2.4.6",
    "scikit-learn==1.9.1",
    "threadpoolctl==3.8.0",
    "numexpr==2.14.2",
    "joblib==1.6.0",
    "mkl==2026.2.0",
    "intel-openmp==2026.2.0",
)
TENSORFLOW = "2.21.0"
DEBIAN = ("libomp5-16", "libomp5-19", "libblis4-openmp", "libblis4-pthread")

# --- what a container starts with -----------------------------------------------------------------------------------


def environment(
    limit_cpus: float, runtimes: Sequence[str], *, sets: Mapping[str, str] | None = None, **spec: Any
) -> dict[str, str]:
    """The variables of a container with this CPU limit whose pod spec `sets` some, under a policy of this `spec`."""
    entries = [{"name": name, "value": value} for name, value in (sets or {}).items()]
    container = objects.container(cpu=f"{limit_cpus * 1000:.0f}m", env=entries)
    asked = {"runtimes": sorted(runtimes), **spec}
    return injected(objects.pod(container), objects.policy("families", "lab", **asked))


def injected(pod: Mapping[str, Any], policy: Mapping[str, Any]) -> dict[str, str]:
    """What the libraries of a pod's first container see after the webhook has seen it; the shim's files are not there.

    The door's part is here as rows, since a program may be one that no door reaches; test_door has the real one.
    """
    settings = Settings(shim=ShimDelivery(config_map="raddle-shim-0", items={"x86_64": ()}))
    changed = decided.injected(pod, policy, Facts(architectures=frozenset({"x86_64"})), settings)
    variables = kubelet_env.variables(changed, changed["spec"]["containers"][0]["name"])
    if env.PLAN not in variables:
        return variables
    listed = dict(part.partition("=")[::2] for part in variables.get(env.LITERALS, "").split(";"))
    completed = {**explain.completed(variables[env.PLAN]), **listed, **variables}
    return {name: value for name, value in completed.items() if name in variables or name not in ("", JAVA_OPTIONS)}


# --- programs -------------------------------------------------------------------------------------------------------


def made(name: str, sources: Mapping[str, str], build: Callable[[Path], None]) -> Path:
    """The cached folder in which `build` has run over these files; its name changes with them."""
    digest = hashlib.sha256("\0".join((platform.machine(), *sources, *sources.values())).encode()).hexdigest()[:12]
    home = CACHE / f"{name}-{digest}"
    with fetching.made(home) as folder:
        if folder:
            for path, text in sources.items():
                (folder / path).parent.mkdir(parents=True, exist_ok=True)
                (folder / path).write_text(text)
            build(folder)
    return home


def _compile(command: Sequence[str | Path], folder: Path) -> None:
    subprocess.run(command, cwd=folder, check=True, timeout=300)


def debian() -> Path:
    """The root of a tree with the unpacked packages of DEBIAN, and their versions in files; nothing is installed."""
    apt, dpkg = tool("apt-get"), tool("dpkg-deb")

    def build(home: Path) -> None:
        command = [apt, "download", "-qq", *DEBIAN]
        if subprocess.run(command, cwd=home, capture_output=True, check=False, timeout=600).returncode:
            fetch(apt, "update", "-qq", cwd=home)
            fetch(*command, cwd=home)
        for package in home.glob("*.deb"):
            _compile([dpkg, "-x", package, home], home)
            # libomp5-16_1%3a16.0.6-15~deb12u1_amd64.deb
            name, told = re.match(r"([^_]+)_(?:\d+%3a)?([\d.]+)", package.name).groups()
            (home / f"{name}.version").write_text(told)
            package.unlink()

    return made("debian", {"packages": "\n".join(DEBIAN)}, build)


def venv() -> Path:
    """The interpreter of a virtual environment with PACKAGES."""
    return pythons.venv("families", "3.11", PACKAGES)


def openmp(library: str) -> Path:
    """The OpenMP program over one runtime: libgomp, llvm-16, llvm-19 or intel. LLVM's and Intel's take GCC's calls as well."""
    gcc = tool("gcc")
    others = {
        "llvm-16": lambda: debian() / "usr/lib/llvm-16/lib/libomp.so.5",
        "llvm-19": lambda: debian() / "usr/lib/llvm-19/lib/libomp.so.5",
        "intel": lambda: venv().parents[1] / "lib/libiomp5.so",
    }

    def build(home: Path) -> None:
        if library == "libgomp":
            _compile([gcc, "-O2", "-fopenmp", "openmp.c", "-o", "openmp", "-ldl"], home)
            return
        _compile([gcc, "-O2", "-fopenmp", "-c", "openmp.c"], home)
        _compile(
            [gcc, "openmp.o", "-o", "openmp", others[library](), "-ldl", f"-Wl,-rpath,{others[library]().parent}"], home
        )

    return made(f"openmp-{library}", {"openmp.c": programs.OPENMP_C}, build) / "openmp"


def go() -> Path:
    """The Go program."""
    command = tool("go")
    sources = {"main.go": programs.GO, "go.mod": "module processors\n\ngo 1.21\n"}
    return made("go", sources, lambda home: _compile([command, "build", "-o", "processors", "."], home)) / "processors"


def java() -> tuple[str, str, str, str]:
    """The command of the Java program."""
    compiler, machine = tool("javac"), tool("java")
    home = made("java", {"Processors.java": programs.JAVA}, lambda home: _compile([compiler, "Processors.java"], home))
    return machine, "-cp", str(home), "Processors"


def rust() -> Path:
    """The Rust program; its argument says whose count it prints. Cargo.lock stays in the cache."""
    cargo = tool("cargo")

    def build(home: Path) -> None:
        fetch(cargo, "fetch", "--quiet", cwd=home)
        _compile([cargo, "build", "--quiet", "--offline"], home)

    return made("rust", {"Cargo.toml": programs.CARGO, "src/main.rs": programs.RUST}, build) / "target/debug/processors"


# --- the table of runtimes ------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Runtime:
    """One real runtime. `row` is its name in the README's table; `variable` the one that counts.

    `families` are those that give it a count of its own; `bounded`: it never counts more than the machine's CPUs;
    `library` is its name in `openmp`.
    """

    row: str
    families: tuple[str, ...]
    variable: str
    command: Callable[[], Sequence[str | Path]]
    bounded: bool = False
    version: str = ""
    library: str = ""


def _pool(name: str, how: Callable[[], str]) -> Callable[[], Sequence[str | Path]]:
    return lambda: (venv(), "-c", programs.POOLS, name, how())


def _blis(variant: str) -> Callable[[], str]:
    return lambda: str(debian() / f"usr/lib/{platform.machine()}-linux-gnu/blis-{variant}/libblis.so.4")


def _idle(library: str) -> Callable[[], Sequence[str | Path]]:
    return lambda: (openmp(library), "0", "0")


def _python_3_13() -> Sequence[str | Path]:
    return pythons.interpreter("3.13"), "-c", programs.PYTHON


def _tensorflow() -> Sequence[str | Path]:
    return pythons.venv(f"tensorflow-{TENSORFLOW}", "3.11", [f"tensorflow-cpu=={TENSORFLOW}"]), "-c", programs.TF


def gomp_version() -> str:
    """The version of the machine's libgomp: GCC's."""
    done = subprocess.run([tool("gcc"), "-dumpfullversion"], capture_output=True, text=True, check=True, timeout=60)
    return done.stdout.strip()


RUNTIMES: dict[str, Runtime] = {
    "libgomp": Runtime(
        row="libgomp", families=("openmp",), variable=env.OMP, command=_idle("libgomp"), library="libgomp"
    ),
    "libgomp of scikit-learn": Runtime(
        row="", families=("openmp",), variable=env.OMP, command=_pool("openmp", lambda: "sklearn")
    ),
    **{
        f"LLVM libomp {major}": Runtime(
            row="LLVM libomp",
            families=("openmp",),
            variable=env.OMP,
            command=_idle(f"llvm-{major}"),
            library=f"llvm-{major}",
        )
        for major in ("16", "19")
    },
    "Intel OpenMP": Runtime(row="", families=("openmp",), variable=env.OMP, command=_idle("intel"), library="intel"),
    "OpenBLAS": Runtime(
        row="OpenBLAS",
        families=("blas",),
        variable=env.OPENBLAS,
        command=_pool("openblas", lambda: "numpy"),
        bounded=True,
    ),
    "MKL": Runtime(
        row="MKL",
        families=("mkl",),
        variable="MKL_NUM_THREADS",
        command=_pool("mkl", lambda: "{prefix}/lib/libmkl_rt.so*"),
        bounded=True,
    ),
    "BLIS with OpenMP": Runtime(
        row="BLIS", families=("blis",), variable="BLIS_NUM_THREADS", command=_pool("blis", _blis("openmp"))
    ),
    "BLIS with threads": Runtime(
        row="BLIS", families=("blis",), variable="BLIS_NUM_THREADS", command=_pool("blis", _blis("pthread"))
    ),
    "numexpr": Runtime(
        row="numexpr",
        families=("numexpr",),
        variable="NUMEXPR_NUM_THREADS",
        command=lambda: (venv(), "-c", programs.NUMEXPR),
    ),
    "rayon": Runtime(
        row="rayon",
        families=("rayon",),
        variable="RAYON_NUM_THREADS",
        command=lambda: (rust(), "rayon"),
        version=programs.CRATES["rayon"],
    ),
    "tokio": Runtime(
        row="tokio",
        families=("tokio",),
        variable="TOKIO_WORKER_THREADS",
        command=lambda: (rust(), "tokio"),
        version=programs.CRATES["tokio"],
    ),
    "Go": Runtime(row="Go", families=("go",), variable="GOMAXPROCS", command=lambda: (go(),)),
    "JVM": Runtime(row="JVM", families=("jvm",), variable="JAVA_TOOL_OPTIONS", command=java),
    "libuv": Runtime(
        row="libuv",
        families=("libuv",),
        variable="UV_THREADPOOL_SIZE",
        command=lambda: (tool("node"), "-e", programs.NODE),
    ),
    "joblib": Runtime(
        row="joblib",
        families=("joblib",),
        variable="LOKY_MAX_CPU_COUNT",
        command=lambda: (venv(), "-W", "error", "-c", programs.JOBLIB),
        bounded=True,
    ),
    "Python": Runtime(row="Python", families=("python",), variable="PYTHON_CPU_COUNT", command=_python_3_13),
    "TensorFlow": Runtime(
        row="TensorFlow", families=("tensorflow",), variable="TF_NUM_INTRAOP_THREADS", command=_tensorflow
    ),
}


def run(command: Sequence[str | Path], variables: Mapping[str, str], *, check: bool = True) -> dict[str, Any]:
    """What a program says when it starts with these variables; "stderr" is what it complains about."""
    done = subprocess.run(
        list(map(str, command)),
        env=shim_lab.environment(variables),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    if done.returncode and check:
        raise AssertionError(f"{command[0]} failed:\n{done.stdout}\n{done.stderr}")
    said: dict[str, Any] = json.loads(done.stdout.splitlines()[-1]) if not done.returncode else {}
    return {**said, "status": done.returncode, "stderr": done.stderr}


def version(name: str, said: Mapping[str, Any]) -> str:
    """The runtime's version: as pinned, or as it says itself."""
    if name == "libgomp":
        return gomp_version()
    if name.startswith("LLVM"):
        return (debian() / f"libomp5-{name.rsplit(maxsplit=1)[-1]}.version").read_text()
    # MKL calls itself 2026.2-Product.
    return RUNTIMES[name].version or str(said["version"]).partition("-")[0]

"""Programs that must not be slower than stock: of several processes, and of one, each under several limits.

A count that is right for a program's one process is wrong for each of its four. None is recognised by its command.
"""

import dataclasses
import functools
from collections.abc import Iterator, Mapping
from pathlib import Path

from support.runtimes import torch_lab
from support.servers.row import Program, Request, Row, environment, pypi
from support.servers.rows.stacks import UNCHANGED, with_torch

LIMITS_CPUS = (2, 3, 4, 8)
PROCESSES = environment(
    "processes",
    "numpy==2.4.6",
    "scipy==1.18.1",
    "scikit-learn==1.9.1",
    "xgboost-cpu==3.4.1",
    "lightgbm==4.7.0",
    "numexpr==2.14.2",
    "threadpoolctl==3.8.0",
    "joblib==1.6.0",
    "distributed==2026.8.0",
    "ray==2.60.0",
    "pyspark==4.3.0",
    "pandas==2.3.3",
    "pyarrow==26.0.1",
    "gunicorn==27.0.1",
    "pyuwsgi==2.0.30.post1",
    python="3.12",
)
TORCH = environment(
    "processes-torch",
    "numpy==2.4.6",
    "psutil==7.2.2",
    "pyyaml==6.0.4",
    "huggingface_hub==1.9.0",
    "safetensors==0.8.0",
    "threadpoolctl==3.8.0",
    "gunicorn==27.0.1",
    "pyuwsgi==2.0.30.post1",
    python="3.13",
    unresolved=("accelerate==1.15.0",),
)
# With PyTorch 1.13: Debian's 2.6 is built without libuv, which its torchrun can't do without.
TORCHRUN = environment("processes-torchrun", "threadpoolctl==3.8.0")
SERVED = ("lightgbm", "xgboost-cpu", "scikit-learn-fit", "numpy", "torch")
SCRIPT = "{programs}/processes.py"
# Spark starts its workers by this name.
IMAGE_ENV = {"PYTHONPATH": "{programs}", "PYSPARK_PYTHON": "{here}/python"}
UWSGI = ("-c", "import pyuwsgi; pyuwsgi.run()", "--http", "127.0.0.1:{port}", "--master", "--need-app")


def _rows(name: str, program: Program, image_env: Mapping[str, str] = IMAGE_ENV, request=None) -> Iterator[Row]:
    for limit in LIMITS_CPUS:
        yield Row(
            name=name,
            program=program,
            limit_cpus=limit,
            image_env=image_env,
            request=dataclasses.replace(request, processes=limit) if request else None,
        )


def _program(library: str, package: str, *arguments: str) -> Program:
    """Started as `python ARGUMENTS`."""
    if library == "torch":
        program = pypi(TORCH, package, "{here}/python", *arguments)
        return dataclasses.replace(program, made=functools.partial(with_torch, TORCH, package))
    return pypi(PROCESSES, package, "{here}/python", *arguments)


def _torchrun() -> Program:
    def made() -> Path:
        return with_torch(TORCHRUN, "threadpoolctl", torch_lab.installed)

    return Program(
        registry="Debian bookworm",
        package="python3-torch",
        version="1.13.1",
        made=made,
        command=(
            *("{here}/python", "-m", "torch.distributed.run", "--nproc_per_node", "{limit}"),
            *("--master_addr", "127.0.0.1", "--master_port", "{port}", *UNCHANGED),
            *(SCRIPT, "rank", "torch", "{limit}"),
        ),
    )


def _started(name: str, library: str, package: str, way: str) -> Iterator[Row]:
    return _rows(f"{name}: {library}", _program(library, package, SCRIPT, way, library, "{limit}"))


def _alone(library: str, package: str) -> Iterator[Row]:
    return _rows(library, _program(library, package, SCRIPT, "alone", library, "1"))


def _web(name: str, library: str, package: str, *arguments: str) -> Iterator[Row]:
    image_env = {**IMAGE_ENV, "LIBRARY": library.replace("-", "_")}
    return _rows(f"{name}: {library}", _program(library, package, *arguments), image_env, Request())


def _gunicorn(library: str) -> Iterator[Row]:
    return _web(
        "gunicorn",
        library,
        "gunicorn",
        *("-m", "gunicorn", "-b", "127.0.0.1:{port}", "-w", "{limit}", "pieces:application"),
    )


def _uwsgi(library: str) -> Iterator[Row]:
    return _web("uWSGI", library, "pyuwsgi", *UWSGI, "-p", "{limit}", "-w", "pieces:application")


ROWS = (
    *_started("joblib (loky)", "scikit-learn-fit", "joblib", "loky"),
    *_started("multiprocessing, fork", "scikit-learn-fit", "scikit-learn", "fork"),
    *_started("multiprocessing, spawn", "scikit-learn-fit", "scikit-learn", "spawn"),
    *_started("multiprocessing, forkserver", "scikit-learn-fit", "scikit-learn", "forkserver"),
    *_started("ProcessPoolExecutor", "lightgbm", "lightgbm", "executor"),
    *_started("Dask LocalCluster", "scikit-learn-fit", "distributed", "dask"),
    *_started("Dask LocalCluster", "numpy", "distributed", "dask"),
    *_started("Ray", "scikit-learn-fit", "ray", "ray"),
    *_started("PySpark", "scikit-learn-fit", "pyspark", "spark"),
    *_rows("torchrun: torch", _torchrun()),
    *_rows(
        "accelerate launch --cpu: torch",
        _program("torch", "accelerate", "-m", "accelerate.commands.launch", "--cpu", SCRIPT, "alone", "torch", "1"),
    ),
    *(row for library in SERVED for row in _gunicorn(library)),
    *(row for library in SERVED for row in _uwsgi(library)),
    *_alone("scikit-learn-predict", "scikit-learn"),
    *_alone("kmeans", "scikit-learn"),
    *_alone("xgboost-predict", "xgboost-cpu"),
    *_alone("lightgbm", "lightgbm"),
    *_alone("lightgbm-predict", "lightgbm"),
    *_alone("numpy", "numpy"),
    *_alone("scipy", "scipy"),
    *_alone("numexpr", "numexpr"),
    *_alone("torch", "accelerate"),
)

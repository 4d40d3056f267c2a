"""Programs that must not be slower than stock: of several processes, and of one, each under several limits.

A count that is right for a program's one process is wrong for each of its four. None is recognised by its command.
"""

import dataclasses
import functools
from collections.abc import Iterator

from support.servers.row import Request, Row, environment, pypi
from support.servers.rows.stacks import with_torch

LIMITS_CPUS = (2, 3, 4, 8)
OBJECTIVES = ("Latency", "Throughput")
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
SCRIPT = "{programs}/processes.py"
# Spark starts its workers by this name, and Debian's PyTorch is built without libuv.
IMAGE_ENV = {"PYTHONPATH": "{programs}", "PYSPARK_PYTHON": "{here}/python", "USE_LIBUV": "0"}
UWSGI = ("-c", "import pyuwsgi; pyuwsgi.run()", "--http-socket", "127.0.0.1:{port}", "--master", "--need-app")


def _rows(way: str, library: str, package: str, *arguments: str, image_env=None, request=None) -> Iterator[Row]:
    """Lines of one program, which is started as `python ARGUMENTS`."""
    of = TORCH if library == "torch" else PROCESSES
    program = pypi(of, package, "{here}/python", *arguments)
    if library == "torch":
        program = dataclasses.replace(program, made=functools.partial(with_torch, TORCH, package))
    for objective in OBJECTIVES:
        for limit in LIMITS_CPUS:
            yield Row(
                name=f"{way}: {library}" if way else library,
                program=program,
                limit_cpus=limit,
                policy={"objective": objective},
                image_env={**IMAGE_ENV, **(image_env or {})},
                request=dataclasses.replace(request, processes=limit) if request else None,
            )


def _started(way: str, library: str, package: str, function: str) -> Iterator[Row]:
    return _rows(way, library, package, SCRIPT, function, library, "{limit}")


def _alone(library: str, package: str) -> Iterator[Row]:
    return _rows("", library, package, SCRIPT, "alone", library, "1")


def _web(way: str, library: str, package: str, *arguments: str) -> Iterator[Row]:
    return _rows(way, library, package, *arguments, image_env={"LIBRARY": library.replace("-", "_")}, request=Request())


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
    *_started("joblib (loky)", "scikit-learn", "joblib", "loky"),
    *_started("multiprocessing, fork", "scikit-learn", "scikit-learn", "fork"),
    *_started("multiprocessing, spawn", "scikit-learn", "scikit-learn", "spawn"),
    *_started("multiprocessing, forkserver", "scikit-learn", "scikit-learn", "forkserver"),
    *_started("ProcessPoolExecutor", "lightgbm", "lightgbm", "executor"),
    *_started("Dask LocalCluster", "scikit-learn", "distributed", "dask"),
    *_started("Dask LocalCluster", "numpy", "distributed", "dask"),
    *_started("Ray", "scikit-learn", "ray", "ray"),
    *_started("PySpark", "scikit-learn", "pyspark", "spark"),
    *_rows(
        *("torchrun", "torch", "accelerate", "-m", "torch.distributed.run", "--nproc_per_node", "{limit}"),
        *("--master_addr", "127.0.0.1", "--master_port", "{port}", SCRIPT, "rank", "torch", "{limit}"),
    ),
    *_rows(
        *("accelerate launch --cpu", "torch", "accelerate", "-m", "accelerate.commands.launch", "--cpu"),
        *("--num_processes", "1", SCRIPT, "alone", "torch", "1"),
    ),
    *(row for library in ("lightgbm", "xgboost-cpu", "scikit-learn", "numpy", "torch") for row in _gunicorn(library)),
    *(row for library in ("lightgbm", "xgboost-cpu", "scikit-learn", "numpy", "torch") for row in _uwsgi(library)),
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

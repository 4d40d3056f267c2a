"""Frameworks around the libraries: PyTorch and what is made with it, servers of models, and other languages."""

import dataclasses
import functools
import subprocess
from pathlib import Path

from runtimes.fetching import tool
from support.runtimes import families_lab, torch_lab
from support.servers.row import Program, Request, Row, Way, environment, npm, pypi

STACKS = ("{programs}/stacks.py",)
TRIXIE = ("trixie", "2.6.0")
# Where the output of the processes goes: to torchrun's own. The default of 1.13 fails on Python 3.11.
UNCHANGED = ("-r", "0:2", "-t", "0:2")
SCIPY = environment("scipy", "scipy==1.17.1", "numpy==2.4.6", "scikit-learn==1.9.1", "joblib==1.6.0")
OPENVINO = environment("openvino", "onnxruntime-openvino==1.24.1", "numpy==2.4.6")
MKL = environment("mkl", "mkl==2026.2.0", "intel-openmp==2026.2.0")
TENSORFLOW = environment("tensorflow", "tensorflow-cpu==2.21.0")
MLSERVER = environment("mlserver", "mlserver==1.7.1", "uvloop==0.21.0", "onnxruntime==1.23.2")
BENTOML = environment("bentoml", "bentoml==1.4.30", "onnxruntime==1.32.0")
KSERVE = environment("kserve", "kserve==0.21.0", "onnxruntime==1.32.0")
RAY = environment("ray", "ray[serve]==2.60.0", "onnxruntime==1.32.0")
SENTENCES = environment(
    "sentence-transformers",
    *("transformers==4.57.6", "scikit-learn==1.9.1", "numpy==2.2.4", "pillow==12.0.0"),
    python="3.13",
    unresolved=("sentence-transformers==5.2.3",),
)
PYSPARK = environment("pyspark", "pyspark==4.3.0", "pandas==2.3.3", "pyarrow==26.0.1")
OMP = {"way": Way.VARIABLE, "by": "`OMP_NUM_THREADS`", "variables": ("OMP_NUM_THREADS",)}
SESSION = {"way": Way.SHIM, "by": "the session's options"}


def _torch(name: str, suite: str, version: str, *command: str, **more) -> Row:
    """A row of Debian's PyTorch, which is built for CPUs; the packages of PyPI bring CUDA's."""
    release = {"trixie": torch_lab.trixie, "bookworm": torch_lab.installed}[suite]
    program = Program(
        registry=f"Debian {suite}",
        package="python3-torch",
        version=version,
        made=lambda: release().python.parent,
        command=(f"{{here}}/{'python' if suite == 'trixie' else 'python3'}", *command),
    )
    return Row(name=name, program=program, **more)


def _stack(name: str, of, package: str, **more) -> Row:
    return Row(name=name, program=pypi(of, package, "{here}/python", *STACKS, package, "{models}/model.onnx"), **more)


def with_torch(of, package: str, release=torch_lab.trixie) -> Path:
    """A folder whose `python` is that of a Debian's PyTorch, with the packages of a virtual environment."""
    (site,) = pypi(of, package).made().parent.glob("lib/python*/site-packages")
    text = f'#!/bin/sh\nPYTHONPATH={site}:$PYTHONPATH exec {release().python} "$@"\n'

    def write(home: Path) -> None:
        (home / "python").write_text(text)
        (home / "python").chmod(0o755)

    return families_lab.made(package, {"python.txt": text}, write)


def _go(name: str, language: str, **more) -> Row:
    """A row of a Go program in a module of this release of the language, which says how CPUs are counted."""

    def made():
        main = Path(__file__).parents[3] / "servers" / "programs" / "stacks.go"
        sources = {"main.go": main.read_text(), "go.mod": f"module stacks\n\ngo {language}\n"}
        command = (tool("go"), "build", "-o", "stacks", ".")
        build = functools.partial(subprocess.run, command, check=True, timeout=300)
        return families_lab.made("go-stacks", sources, lambda home: build(cwd=home))

    program = Program(registry="Go", package="go", version=language, made=made, command=("{here}/stacks",))
    return Row(name=name, program=program, **more)


ROWS = (
    _torch("PyTorch", *TRIXIE, *STACKS, "torch", "{models}/model.onnx", **OMP, most=3),
    _torch(
        "PyTorch, torch.compile",
        *TRIXIE,
        *STACKS,
        "torch.compile",
        "{models}/model.onnx",
        way=Way.VARIABLE,
        by="`TORCHINDUCTOR_COMPILE_THREADS`, `OMP_NUM_THREADS`",
        variables=("TORCHINDUCTOR_COMPILE_THREADS", "OMP_NUM_THREADS"),
        policy={"runtimes": ["torch", "openmp", "blas", "inductor"]},
        peak=True,
        most=12,
        why="the processes that it compiles in; compiling itself takes a compiler",
    ),
    _torch(
        "torchrun",
        *("bookworm", "1.13.1"),
        *("-m", "torch.distributed.run", "--nproc_per_node", "2", "--master_addr", "127.0.0.1"),
        *("--master_port", "{port}", *UNCHANGED, *STACKS, "torch", "{models}/model.onnx"),
        way=Way.LEFT_ALONE,
        by="`OMP_NUM_THREADS`",
        container={"image": "app", "command": ["torchrun", "--nproc_per_node", "2", "train.py"]},
        reason="ManagedByServer",
        why="it gives each of its processes OMP_NUM_THREADS=1",
        repeats=False,
        most=0,
    ),
    Row(
        name="ONNX Runtime (Node.js)",
        program=npm("onnxruntime-node", "1.30.0", "node", "{programs}/stacks.cjs", "{models}/model.onnx"),
        image_env={"NODE_PATH": "{here}"},
        **SESSION,
        most=16,
    ),
    _stack("MKL", MKL, "mkl", **OMP, most=2),
    _stack("scikit-learn in processes of joblib", SCIPY, "scikit-learn", **OMP, most=8),
    _stack("ONNX Runtime's OpenVINO provider", OPENVINO, "onnxruntime-openvino", **SESSION, most=4),
    _stack(
        "TensorFlow",
        TENSORFLOW,
        "tensorflow-cpu",
        way=Way.VARIABLE,
        by="`TF_NUM_INTRAOP_THREADS`, `TF_NUM_INTEROP_THREADS`",
        variables=("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS"),
        policy={"runtimes": ["openmp", "tensorflow"]},
        most=40,
    ),
    Row(
        name="MLServer (custom runtime)",
        program=pypi(MLSERVER, "mlserver", "{here}/mlserver", "start", "{programs}/stacks_mlserver"),
        image_env={
            "ONNX": "{models}/model.onnx",
            "PATH": "{here}:/usr/bin:/bin",
            "HOME": "{work}",
            "MLSERVER_HOST": "127.0.0.1",
            "MLSERVER_HTTP_PORT": "{port}",
            "MLSERVER_GRPC_PORT": "0",
            "MLSERVER_METRICS_PORT": "0",
        },
        container={"image": "seldonio/mlserver"},
        request=Request(
            path="/v2/models/tiny/infer",
            body=b'{"inputs": [{"name": "x", "shape": [1], "datatype": "FP32", "data": [1]}]}',
            headers={"Content-Type": "application/json"},
        ),
        **SESSION,
        most=40,
    ),
    Row(
        name="BentoML",
        program=pypi(
            BENTOML,
            "bentoml",
            *("{here}/bentoml", "serve", "stacks_bentoml:Onnx", "--working-dir", "{programs}"),
            *("--host", "127.0.0.1", "--port", "{port}"),
        ),
        image_env={"ONNX": "{models}/model.onnx", "BENTOML_HOME": "{work}", "BENTOML_DO_NOT_TRACK": "True"},
        container={"image": "app", "command": ["bentoml", "serve"]},
        variables=("BENTOML_NUM_THREAD",),
        request=Request(path="/predict", body=b"{}", headers={"Content-Type": "application/json"}),
        **SESSION,
        most=40,
    ),
    Row(
        name="KServe (custom predictor)",
        program=pypi(KSERVE, "kserve", "{here}/python", "{programs}/stacks_kserve.py", "{models}/model.onnx", "{port}"),
        request=Request(
            path="/v1/models/tiny:predict", body=b'{"instances": [[1]]}', headers={"Content-Type": "application/json"}
        ),
        **SESSION,
        most=12,
    ),
    _stack(
        "Ray actors with ONNX Runtime",
        RAY,
        "ray",
        way=Way.SHIM,
        by="the session's options; OMP_NUM_THREADS stays Ray's",
        container={"image": "rayproject/ray"},
        most=700,
        why="four actors with four models each; what is left are Ray's own threads",
    ),
    _stack(
        "PySpark (pandas UDF)",
        PYSPARK,
        "pyspark",
        way=Way.LEFT_ALONE,
        by="`OMP_NUM_THREADS`",
        container={"image": "apache/spark-py"},
        image_env={"PYSPARK_PYTHON": "{here}/python"},
        reason="ManagedByServer",
        why="it sets OMP_NUM_THREADS of each Python worker to spark.task.cpus",
        most=0,
    ),
    Row(
        name="Java's common pool",
        program=Program(
            registry="Debian bookworm",
            package="openjdk-17-jdk-headless",
            version="17.0.15",
            made=functools.partial(Path, "/usr/bin"),
            command=("{here}/java", "{programs}/Stacks.java"),
        ),
        way=Way.ITSELF,
        by="the JVM's count of CPUs",
        most=40,
    ),
    _go(
        "Go, a module of before 1.25",
        "1.24",
        why="made with Go 1.26",
        way=Way.VARIABLE,
        by="`GOMAXPROCS`",
        variables=("GOMAXPROCS",),
        policy={"runtimes": ["go"]},
        most=16,
    ),
    _go("Go, a module of 1.25 and later", "1.25", way=Way.ITSELF, by="`GOMAXPROCS`", most=16, why="made with Go 1.26"),
    Row(
        name="sentence-transformers",
        program=dataclasses.replace(
            pypi(
                SENTENCES,
                "sentence-transformers",
                "{here}/python",
                *STACKS,
                "sentence-transformers",
                "{models}/model.onnx",
            ),
            made=functools.partial(with_torch, SENTENCES, "sentence-transformers"),
        ),
        image_env={"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "true"},
        **OMP,
        most=6,
        why="with Debian's PyTorch",
    ),
)

"""The families of runtimes that a policy can pick, and the environment variables that each of them gets.

One frozen table: a family, its variables, and how a variable's value comes from a plan. A variable is either a
*reference* to one of the pod's annotations, which binding still improves (only where the runtime reads an empty value
as unset, since an annotation may be missing), or a *literal*, computed from the safe values when the pod is created,
or it *extends* what is there. The policy's `runtimes`, the CRDs and docs/reference/families.md are made from it.
A policy's own `variables` are literals too.
"""

from __future__ import annotations

from enum import Enum, unique
from typing import NamedTuple, Tuple

from raddle import env

# libuv's own default. Blocking calls (files, DNS) wait in the same pool, so a policy only ever makes it larger.
LIBUV_THREADS = 4
# Milliseconds that LLVM's and Intel's OpenMP spin after a region; their own 200 are two periods of a CPU limit.
BLOCKTIME_MS = 1
# More makes numexpr complain and use one thread: its NUMEXPR_MAX_THREADS, a hard cap that is never set here.
NUMEXPR_MOST = 64
JAVA_OPTIONS = "JAVA_TOOL_OPTIONS"
JAVA_CPUS = "-XX:ActiveProcessorCount="


@unique
class ValueSource(Enum):
    """How a variable gets its value; see the module."""

    REFERENCE = "reference"
    LITERAL = "literal"
    EXTENDS = "extends"


class Variable(NamedTuple):
    """One variable. `rule` says its value in words; `value` names the function of `values` that computes it.

    `over_omp`: it beats OMP_NUM_THREADS, and with it what an entrypoint, torchrun or joblib chose there; so it is set
    only where its value differs, and not where the pod spec sets any OMP_* itself.
    """

    name: str
    rule: str
    source: ValueSource = ValueSource.LITERAL
    value: str = ""
    over_omp: bool = False


class Family(NamedTuple):
    """One family: who reads its variables, and in which case naming it in `runtimes` is worth it."""

    name: str
    readers: str
    worth: str
    variables: Tuple[Variable, ...]


# --- the table ------------------------------------------------------------------------------------------------------

_INTRA = "as `intraOp`"
_CPUS = "the container's CPUs divided by its workers"
_OMP = (
    Variable(
        name=env.OMP,
        source=ValueSource.REFERENCE,
        rule="as `intraOp`, without a `load`'s threads above the limit, which is always rounded up; without a shim as"
        " `intraOpWithoutShim`, and 1 with `joblib`",
    ),
    Variable(
        name="OMP_WAIT_POLICY",
        value="wait_policy",
        rule="`PASSIVE` with `spinning: Never`, `ACTIVE` with `Always`; else not set",
    ),
    Variable(
        name="KMP_BLOCKTIME",
        value="blocktime_ms",
        rule=f"{BLOCKTIME_MS} ms; 0 with `spinning: Never`; not set with `Always`",
    ),
)

FAMILIES: Tuple[Family, ...] = (
    Family(
        name="onnxruntime",
        readers="ONNX Runtime 1.29 and later; the shim sets the same in older ones",
        worth="default",
        variables=(
            Variable(
                name=env.ORT_INTRA,
                source=ValueSource.REFERENCE,
                rule="`intraOpWithoutShim`, which is `intraOp` where the plan does not name it; a shim sets `intraOp`",
            ),
            Variable(name=env.ORT_INTER, source=ValueSource.REFERENCE, rule="as `interOp`"),
        ),
    ),
    Family(
        name="torch",
        readers="PyTorch and libtorch, through their OpenMP; the shim sets the inter-op pool",
        worth="default",
        variables=_OMP,
    ),
    Family(
        name="openmp",
        readers="libgomp, LLVM's and Intel's OpenMP; also MKL, BLIS, numexpr and `nproc`",
        worth="default",
        variables=_OMP,
    ),
    Family(
        name="blas",
        readers="OpenBLAS, which numpy and scipy include",
        worth="default",
        variables=(
            Variable(
                name=env.OPENBLAS,
                source=ValueSource.REFERENCE,
                over_omp=True,
                rule="as `OMP_NUM_THREADS`; without a shim 1 beside ONNX Runtime or torch under a limit",
            ),
        ),
    ),
    Family(
        name="mkl",
        readers="Intel MKL",
        worth="a process uses MKL and ONNX Runtime under a limit, without torch; else MKL follows `OMP_NUM_THREADS`",
        variables=(
            Variable(
                name="MKL_NUM_THREADS",
                value="mkl",
                over_omp=True,
                rule="as OpenBLAS's; beside torch never below `OMP_NUM_THREADS`, since it is torch's count too",
            ),
            *_OMP[1:],
        ),
    ),
    Family(
        name="blis",
        readers="BLIS",
        worth="a process uses BLIS and ONNX Runtime or torch under a limit; else BLIS follows `OMP_NUM_THREADS`",
        variables=(Variable(name="BLIS_NUM_THREADS", value="blas", over_omp=True, rule="as OpenBLAS's"),),
    ),
    Family(
        name="numexpr",
        readers="numexpr",
        worth="`openmp` and `torch` are not chosen, since it follows `OMP_NUM_THREADS` by itself; or for more than"
        f" {NUMEXPR_MOST} threads",
        variables=(
            Variable(
                name="NUMEXPR_NUM_THREADS",
                value="numexpr",
                over_omp=True,
                rule=f"{_INTRA}, at most {NUMEXPR_MOST}: numexpr uses one thread when asked for more",
            ),
        ),
    ),
    Family(
        name="rayon",
        readers="Rust programs with rayon (tokenizers, polars)",
        worth="there is no CPU limit, or several workers share one; else Rust reads the limit itself, rounded down",
        variables=(Variable(name="RAYON_NUM_THREADS", value="compute", rule=_INTRA),),
    ),
    Family(
        name="tokio",
        readers="Rust programs with tokio's multi-thread runtime",
        worth="as for rayon; under a limit of one CPU, one thread is right for a server that mostly waits",
        variables=(Variable(name="TOKIO_WORKER_THREADS", value="processors", rule=_CPUS),),
    ),
    Family(
        name="go",
        readers="Go programs",
        worth="Go is older than 1.25, or the limit is below two CPUs (newer Go never goes below 2), or there is none",
        variables=(Variable(name="GOMAXPROCS", value="processors", rule=_CPUS),),
    ),
    Family(
        name="jvm",
        readers="Java virtual machines, from 8u191",
        worth="there is no CPU limit, or several Java processes share one; else the JVM reads the limit itself",
        variables=(
            Variable(
                name=JAVA_OPTIONS,
                source=ValueSource.EXTENDS,
                value="java_processors",
                rule=f"`{JAVA_CPUS}n` is added, n: {_CPUS}",
            ),
        ),
    ),
    Family(
        name="libuv",
        readers="Node.js: files, DNS, crypto and zlib, not ONNX Runtime",
        worth="more than 4 of these calls should run at the same time",
        variables=(
            Variable(
                name="UV_THREADPOOL_SIZE",
                value="libuv",
                rule=f"{_CPUS}, or `concurrentRuns`; never below libuv's own {LIBUV_THREADS}",
            ),
        ),
    ),
    Family(
        name="joblib",
        readers="joblib and loky, so scikit-learn's `n_jobs=-1`",
        worth="there is no CPU limit, or several workers share one; else joblib reads the limit itself",
        variables=(
            Variable(
                name="LOKY_MAX_CPU_COUNT",
                value="processors",
                rule=_CPUS,
            ),
        ),
    ),
    Family(
        name="python",
        readers="Python's `os.cpu_count()`, so the sizes of its process and thread pools: by itself from 3.13 on,"
        " before by the shim",
        worth="the application sizes pools by `os.cpu_count()`, which returns the node's CPUs",
        variables=(Variable(name="PYTHON_CPU_COUNT", value="processors", rule=_CPUS),),
    ),
    Family(
        name="jax",
        readers="JAX, XLA on CPUs",
        worth="the image runs JAX on CPUs, which counts the node's CPUs",
        variables=(Variable(name="NPROC", value="processors", rule=_CPUS),),
    ),
    Family(
        name="numba",
        readers="numba's parallel loops, which librosa, shap and umap use",
        worth="the application runs numba in parallel: it counts the node's CPUs",
        variables=(Variable(name="NUMBA_NUM_THREADS", value="compute", rule=_INTRA),),
    ),
    Family(
        name="polars",
        readers="polars",
        worth="as for rayon, if polars needs its own thread count",
        variables=(Variable(name="POLARS_MAX_THREADS", value="compute", rule=_INTRA),),
    ),
    Family(
        name="inductor",
        readers="torch.compile, for the processes that compile",
        worth="the application runs torch.compile: it starts one process for each of the node's CPUs, up to 32",
        variables=(Variable(name="TORCHINDUCTOR_COMPILE_THREADS", value="processors", rule=_CPUS),),
    ),
    Family(
        name="tensorflow",
        readers="TensorFlow",
        worth="the image runs TensorFlow, which counts the node's CPUs",
        variables=(
            Variable(name="TF_NUM_INTRAOP_THREADS", value="compute", rule=_INTRA),
            Variable(name="TF_NUM_INTEROP_THREADS", value="inter_op", rule="as `interOp`"),
        ),
    ),
)

NAMES = tuple(family.name for family in FAMILIES)
# What a policy gets that names no runtimes. The others change more than inference, so they are chosen by name only.
DEFAULT = tuple(family.name for family in FAMILIES if family.worth == "default")
NAMED = tuple(name for name in NAMES if name not in DEFAULT)
VARIABLES = frozenset(variable.name for family in FAMILIES for variable in family.variables)

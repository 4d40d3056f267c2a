"""Thread counts, spinning and affinity that fit the container. Standard library only.

cpus      which CPUs: sets of them, what a machine has, where a pool goes, and the machine as a plan carries it
machine   reads a machine from /sys and /proc, or from a document
planning  from limits to numbers: a policy, a budget and a machine in, a plan out, and the plan as text
process   what holds in one process (CPUs, quota, workers), and what a plan comes to there
report    what the shim did in one process: its record, its report
adapters  one per runtime: applies the plan to it as it is imported

Here is what a process has to take before the application's code runs. Containers have no `machine` and no `planning`.
"""

import _thread
import os

__version__ = "0.1.0"

TYPE_CHECKING = False
if TYPE_CHECKING:
    # typing isn't imported at run time: it would cost more than the rest of the shim.
    from typing import Any

# Awaited module -> its adapter, a module of raddle.adapters. Adding a runtime is that module and one row here.
RUNTIMES = {
    "onnxruntime.capi._pybind_state": "onnxruntime",
    "torch": "torch",
    "paddle": "paddle",
    "openvino._pyopenvino": "openvino",
    "openvino.pyopenvino": "openvino",
    "onnxruntime_genai.onnxruntime_genai": "onnxruntime_genai",
    "ctranslate2._ext": "ctranslate2",
    "llama_cpp.llama": "llama_cpp",
    "xllamacpp.xllamacpp": "xllamacpp",
    "hnswlib": "hnswlib",
    "usearch.index": "usearch",
    "cv2": "cv2",
    "numexpr": "numexpr",
    "numpy": "openmp",
    "sklearn": "openmp",
    "xgboost": "openmp",
    "lightgbm": "openmp",
}

# Counts that compiled libraries read, and that frameworks copy, multiply or take for the user's wish: they are put
# into C's environment, where the first see them and the second do not.
HIDDEN = frozenset(
    (
        "BLIS_NUM_THREADS",
        "KMP_BLOCKTIME",
        "MKL_NUM_THREADS",
        "NPROC",
        "OMP_NUM_THREADS",
        "OMP_WAIT_POLICY",
        "OPENBLAS_NUM_THREADS",
        "ORT_INTER_OP_NUM_THREADS",
        "ORT_INTRA_OP_NUM_THREADS",
        "RAYON_NUM_THREADS",
    )
)
# What the door has completed in this process: name -> value.
COMPLETED: "dict[str, str]" = {}


def in_c(name: str, value: str) -> str:
    """What C's environment has: a blank, which libraries skip, tells it from the same count that the code sets."""
    return value + " " if name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS") else value


# The end of the door's list, by which programs that start themselves again come to an end.
STARTS: "list[str]" = []


def in_list(completed: "dict[str, str]") -> str:
    """RADDLE_COMPLETED as a child's door reads it."""
    return ";".join([f"{name}={in_c(name, value)}" for name, value in completed.items()] + STARTS)


# Taken before an application can put another in its place: those of gevent and eventlet are for greenlets, and threads
# of their pools that meet at one wait for ever.
RLock = _thread.RLock

# What number 2 was at the start of the process: an application that closes it may get the number for a file of its own.
try:
    STDERR: "Any" = os.fstat(2)
except OSError:
    STDERR = None

# The CPUs that the process may run on at its start: before a library is loaded that binds the thread which loads it.
try:
    CPUS = frozenset(os.sched_getaffinity(0))
except (AttributeError, OSError):
    CPUS = frozenset()

"""Python's libraries of numbers and models, each by one piece of parallel work (programs/libraries.py)."""

from runtimes import pythons
from support.runtimes import libraries_lab
from support.servers.row import Program, Row, Way, environment, pypi

LIBRARIES = environment(
    "libraries",
    "numpy==2.4.6",
    "onnxruntime==1.32.0",
    "scikit-learn==1.9.1",
    "xgboost-cpu==3.4.1",
    "lightgbm==4.7.0",
    "numexpr==2.14.2",
    "joblib==1.6.0",
    "polars==2.1.0",
    "tokenizers==0.23.3",
    "jax==0.12.0.1",
    "numba==0.68.1",
    "ctranslate2==4.8.5",
    "opencv-python-headless==5.0.0.93",
    "usearch==2.26.6",
    "faiss-cpu==1.15.1",
    "openvino==2026.4.1",
    python="3.12",
)
# What the tests of the shim's hooks have already.
HOOKED = environment("libraries", *libraries_lab.PACKAGES["libraries"], shared=True)
HNSWLIB = environment("hnswlib", *libraries_lab.PACKAGES["hnswlib"], shared=True)
SCIPY = environment("scipy", "scipy==1.18.1", "numpy==2.4.6", python="3.12")
# NumPy's threads, which start when it is imported, are not those of the library that is shown.
ONE_BLAS = {"OPENBLAS_NUM_THREADS": "1"}


# Their work is a batch: as much of it as can be, one piece after the other.
BATCH = {"objective": "Throughput"}


def _row(name: str, package: str, of=LIBRARIES, work: str = "", **more) -> Row:
    """`work` is its function in the program, named as the package where it has but one."""
    program = pypi(of, package, "{here}/python", "{programs}/libraries.py", work or package, "{models}")
    return Row(name=name, program=program, **more)


def _openmp(name: str, package: str, **more) -> Row:
    counts = {"way": Way.VARIABLE, "by": "`OMP_NUM_THREADS`", "variables": ("OMP_NUM_THREADS",), "policy": BATCH}
    return _row(name, package, **{**counts, "most": 3, **more})


def _family(name: str, package: str, family: str, variable: str, **more) -> Row:
    counts = {"way": Way.VARIABLE, "by": f"`{variable}` (`runtimes: [{family}]`)", "variables": (variable,)}
    return _row(name, package, **{**counts, "policy": {**BATCH, "runtimes": ["openmp", "blas", family]}, **more})


def _hook(name: str, package: str, **more) -> Row:
    return _row(name, package, **{"way": Way.SHIM, "image_env": ONE_BLAS, **more})


def _standard(name: str, package: str, **more) -> Row:
    """A module of Python itself, before Python 3.13."""
    return Row(
        name=name,
        program=Program(
            registry="Python",
            package=package,
            version="3.11",
            made=lambda: pythons.interpreter("3.11").parent,
            command=("{here}/python3.11", "{programs}/libraries.py", package, "{models}"),
        ),
        way=Way.SHIM,
        by="`os.cpu_count()` (`runtimes: [python]`)",
        variables=("PYTHON_CPU_COUNT",),
        policy={"runtimes": ["openmp", "blas", "python"]},
        **more,
    )


ROWS = (
    _hook("ONNX Runtime (Python)", "onnxruntime", by="the session's options", most=3),
    _openmp("NumPy with OpenBLAS", "numpy"),
    _openmp("SciPy", "scipy", of=SCIPY),
    _openmp("scikit-learn", "scikit-learn"),
    _openmp("XGBoost", "xgboost-cpu"),
    _openmp("XGBoost, single predictions", "xgboost-cpu", work="xgboost-cpu-one"),
    _openmp("LightGBM", "lightgbm"),
    _openmp("faiss", "faiss-cpu"),
    _family("numexpr", "numexpr", "numexpr", "OMP_NUM_THREADS", most=5),
    _family("JAX", "jax", "jax", "NPROC", most=48),
    _family(
        "Numba",
        "numba",
        "numba",
        "NUMBA_NUM_THREADS",
        image_env={**ONE_BLAS, "NUMBA_THREADING_LAYER": "omp"},
        why="its OpenMP layer; an early TBB (2021.8), taken where it is installed, has more threads than it is asked for",
        most=3,
    ),
    _row("Polars", "polars", way=Way.ITSELF, by="", most=16),
    _row("Hugging Face tokenizers", "tokenizers", way=Way.ITSELF, by="", most=4),
    _row("joblib", "joblib", way=Way.ITSELF, by="", image_env=ONE_BLAS, why="two workers for two CPUs", most=10),
    _hook("OpenVINO", "openvino", by="`compile_model`", most=6),
    _row("OpenCV", "opencv-python-headless", way=Way.ITSELF, by="", most=4, image_env=ONE_BLAS),
    _hook("usearch", "usearch", of=HOOKED, by="`threads` of its calls", most=4, peak=True),
    _hook("hnswlib", "hnswlib", of=HNSWLIB, by="`num_threads` of an index", most=4, peak=True),
    _hook("CTranslate2", "ctranslate2", of=HOOKED, by="`intra_threads`", most=6),
    _hook("ONNX Runtime GenAI", "onnxruntime-genai", of=HOOKED, by="its configuration", most=4),
    _standard(
        "ThreadPoolExecutor()",
        "concurrent.futures",
        most=7,
        why="threads that compute; where they mostly wait, fewer are slower",
    ),
    _standard("multiprocessing.Pool()", "multiprocessing", most=6),
)

"""Python's libraries of numbers and models."""

from support.servers.row import Row, Way, environment, pypi

LIBRARIES = environment(
    "libraries",
    "numpy==2.4.6",
    "onnxruntime==1.32.0",
    "scikit-learn==1.9.1",
)


def _row(name: str, package: str, **more) -> Row:
    program = pypi(LIBRARIES, package, "{here}/python", "{programs}/libraries.py", package, "{onnx}")
    return Row(name=name, program=program, **more)


ROWS = (
    _row(
        "ONNX Runtime (Python)",
        "onnxruntime",
        way=Way.SHIM,
        by="the session's options",
        most=3,
        top=1,
    ),
    _row(
        "scikit-learn",
        "scikit-learn",
        way=Way.VARIABLE,
        by="`OMP_NUM_THREADS`",
        variables=("OMP_NUM_THREADS",),
        most=2,
    ),
    _row(
        "NumPy with OpenBLAS",
        "numpy",
        way=Way.VARIABLE,
        by="`OMP_NUM_THREADS`",
        variables=("OMP_NUM_THREADS",),
        most=2,
    ),
)

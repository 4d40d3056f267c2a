"""Which runtime a mapped file belongs to: one table for the shim, the agent and, as native/libraries.h, the library.

It stands here and not in `planning`, since containers need it and have no `planning`.
"""

from __future__ import annotations

from typing import NamedTuple, Tuple

AFTER_STEM = "._-"


class Library(NamedTuple):
    """A library of a runtime: the file's name is the stem, one of AFTER_STEM, and anything.

    `family` is the row of planning.families that sets its count, "" for none. `has_variables`: a program that is linked
    to it, and is no Python, gets the runtimes' variables from the preloaded library.
    """

    stem: str
    runtime: str
    family: str = ""
    has_variables: bool = False


LIBRARIES = (
    Library("libonnxruntime", "onnxruntime", "onnxruntime", has_variables=True),
    Library("onnxruntime_pybind11_state", "onnxruntime", "onnxruntime"),
    Library("onnxruntime_binding", "onnxruntime", "onnxruntime"),
    Library("libtorch", "torch", "torch", has_variables=True),
    Library("libtensorflow", "tensorflow", "tensorflow"),
    Library("libtensorflowlite", "tensorflow", "tensorflow"),
    Library("_pywrap_tensorflow", "tensorflow", "tensorflow"),
    Library("libopenvino", "openvino"),
    Library("libjax", "jax", "jax"),
    Library("xla_extension", "jax", "jax"),
    Library("libggml", "ggml"),
    Library("libgomp", "libgomp", "openmp", has_variables=True),
    Library("libiomp5", "libiomp5", "openmp", has_variables=True),
    Library("libomp", "libomp", "openmp", has_variables=True),
    # With "p" for POSIX threads, "o" for OpenMP, and "64" for 64-bit integers.
    Library("libopenblas", "openblas", "blas", has_variables=True),
    Library("libopenblasp", "openblas", "blas", has_variables=True),
    Library("libopenblaso", "openblas", "blas", has_variables=True),
    Library("libopenblas64", "openblas", "blas"),
    Library("libscipy_openblas", "openblas", "blas"),
    Library("libscipy_openblas64", "openblas", "blas"),
    Library("libmkl", "mkl", "mkl", has_variables=True),
    Library("libblis", "blis", "blis", has_variables=True),
    Library("libtbb", "tbb"),
    Library("onnxruntime_genai", "onnxruntime_genai"),
    Library("libctranslate2", "ctranslate2"),
    Library("libpaddle", "paddle"),
    Library("libllama", "llama_cpp"),
    Library("xllamacpp", "xllamacpp"),
    Library("hnswlib", "hnswlib"),
    Library("cv2", "cv2"),
    Library("libjvm", "jvm", "jvm"),
)


def name_starts(runtime: str) -> Tuple[bytes, ...]:
    """What the names of the runtime's files begin with: without a row, with its own name, as Python's modules do."""
    stems = [one.stem for one in LIBRARIES if one.runtime == runtime] or [runtime]
    return tuple(f"{stem}{mark}".encode() for stem in stems for mark in AFTER_STEM)

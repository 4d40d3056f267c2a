/* Which runtime a file is of. Made by `make generate` of raddle.libraries: edit that. */
#ifndef RADDLE_LIBRARIES_H
#define RADDLE_LIBRARIES_H

/* X(runtime, its name), by name. */
#define RD_RUNTIMES(X)                                   \
    X(RD_RUNTIME_BLIS, "blis")                           \
    X(RD_RUNTIME_CTRANSLATE2, "ctranslate2")             \
    X(RD_RUNTIME_CV2, "cv2")                             \
    X(RD_RUNTIME_GGML, "ggml")                           \
    X(RD_RUNTIME_HNSWLIB, "hnswlib")                     \
    X(RD_RUNTIME_JAX, "jax")                             \
    X(RD_RUNTIME_JVM, "jvm")                             \
    X(RD_RUNTIME_LIBGOMP, "libgomp")                     \
    X(RD_RUNTIME_LIBIOMP5, "libiomp5")                   \
    X(RD_RUNTIME_LIBOMP, "libomp")                       \
    X(RD_RUNTIME_LLAMA_CPP, "llama_cpp")                 \
    X(RD_RUNTIME_MKL, "mkl")                             \
    X(RD_RUNTIME_ONNXRUNTIME, "onnxruntime")             \
    X(RD_RUNTIME_ONNXRUNTIME_GENAI, "onnxruntime_genai") \
    X(RD_RUNTIME_OPENBLAS, "openblas")                   \
    X(RD_RUNTIME_OPENVINO, "openvino")                   \
    X(RD_RUNTIME_PADDLE, "paddle")                       \
    X(RD_RUNTIME_TBB, "tbb")                             \
    X(RD_RUNTIME_TENSORFLOW, "tensorflow")               \
    X(RD_RUNTIME_TORCH, "torch")                         \
    X(RD_RUNTIME_XLLAMACPP, "xllamacpp")

#define RD_ENUMERATOR_OF_RUNTIME(runtime, name) runtime,
enum rd_runtime { RD_RUNTIMES(RD_ENUMERATOR_OF_RUNTIME) RD_RUNTIME_COUNT };

/* X(the stem of the file's name, runtime, whether a program that is linked to it gets variables) */
#define RD_LIBRARIES(X)                                            \
    X("libonnxruntime", RD_RUNTIME_ONNXRUNTIME, true)              \
    X("onnxruntime_pybind11_state", RD_RUNTIME_ONNXRUNTIME, false) \
    X("onnxruntime_binding", RD_RUNTIME_ONNXRUNTIME, false)        \
    X("libtorch", RD_RUNTIME_TORCH, true)                          \
    X("libtensorflow", RD_RUNTIME_TENSORFLOW, false)               \
    X("libtensorflowlite", RD_RUNTIME_TENSORFLOW, false)           \
    X("_pywrap_tensorflow", RD_RUNTIME_TENSORFLOW, false)          \
    X("libopenvino", RD_RUNTIME_OPENVINO, false)                   \
    X("libjax", RD_RUNTIME_JAX, false)                             \
    X("xla_extension", RD_RUNTIME_JAX, false)                      \
    X("libggml", RD_RUNTIME_GGML, false)                           \
    X("libgomp", RD_RUNTIME_LIBGOMP, true)                         \
    X("libiomp5", RD_RUNTIME_LIBIOMP5, true)                       \
    X("libomp", RD_RUNTIME_LIBOMP, true)                           \
    X("libopenblas", RD_RUNTIME_OPENBLAS, true)                    \
    X("libopenblasp", RD_RUNTIME_OPENBLAS, true)                   \
    X("libopenblaso", RD_RUNTIME_OPENBLAS, true)                   \
    X("libopenblas64", RD_RUNTIME_OPENBLAS, false)                 \
    X("libscipy_openblas", RD_RUNTIME_OPENBLAS, false)             \
    X("libscipy_openblas64", RD_RUNTIME_OPENBLAS, false)           \
    X("libmkl", RD_RUNTIME_MKL, true)                              \
    X("libblis", RD_RUNTIME_BLIS, true)                            \
    X("libtbb", RD_RUNTIME_TBB, false)                             \
    X("onnxruntime_genai", RD_RUNTIME_ONNXRUNTIME_GENAI, false)    \
    X("libctranslate2", RD_RUNTIME_CTRANSLATE2, false)             \
    X("libpaddle", RD_RUNTIME_PADDLE, false)                       \
    X("libllama", RD_RUNTIME_LLAMA_CPP, false)                     \
    X("xllamacpp", RD_RUNTIME_XLLAMACPP, false)                    \
    X("hnswlib", RD_RUNTIME_HNSWLIB, false)                        \
    X("cv2", RD_RUNTIME_CV2, false)                                \
    X("libjvm", RD_RUNTIME_JVM, false)

#endif

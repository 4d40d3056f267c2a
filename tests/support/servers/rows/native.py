"""Servers and bindings that are no Python: llama.cpp and what is made of it, and ONNX Runtime from other languages."""

import json

from runtimes import libonnxruntime
from support.runtimes import torch_lab
from support.servers import native
from support.servers.row import Program, Request, Row, Way

# As tests/servers/programs/units.py, with a unit for each line.
_REPEATS = """
once() { "$@" -m {here}/tiny.bin {here}/silence.wav >&2; }
once "$@"; echo {}
while read -r _; do
    start=$(date +%s%N); once "$@"
    echo "{\\"units\\": 1, \\"seconds\\": $((($(date +%s%N) - start) / 1000000))e-3}"
done
"""
# Two of them on one machine would take one port for gRPC.
_TORCHSERVE = """
export TS_GRPC_INFERENCE_PORT=$(($1 + 1)) TS_GRPC_MANAGEMENT_PORT=$(($1 + 2))
exec {here}/bin/torchserve --start --foreground --ncs --disable-token-auth --ts-config {here}/config.properties
"""
# How many threads only wait for requests is another matter: by default as many as the machine has CPUs.
_HTTP = ("--threads-http", "4")


def _post(path, **fields):
    return Request(path=path, body=json.dumps(fields).encode(), headers={"Content-Type": "application/json"})


def _program(registry, package, version, made, *command):
    return Program(registry=registry, package=package, version=version, made=made, command=command)


def _crate(name):
    return _program("crates.io", name, native.crate(name), native.rust, "{here}/crates", name, "{models}/model.onnx")


ROWS = (
    Row(
        name="llama.cpp's llama-server",
        program=_program(
            f"Debian {native.SUITE}",
            "llama.cpp-tools",
            native.LLAMA_CPP,
            native.llama_cpp,
            *("{here}/bin/llama-server", "-m", "{here}/tiny.gguf", "--host", "127.0.0.1", "--port", "{port}", *_HTTP),
        ),
        way=Way.PRESET,
        by="`LLAMA_ARG_THREADS`",
        variables=("LLAMA_ARG_THREADS",),
        container={"image": "ghcr.io/ggml-org/llama.cpp:server"},
        request=_post("/completion", prompt="hello world", n_predict=8),
        most=12,
        why="threads that wait for requests: --threads-http 4 in both",
    ),
    Row(
        name="Ollama",
        program=_program("Go", "github.com/ollama/ollama", native.OLLAMA, native.ollama, "{here}/bin/ollama", "serve"),
        way=Way.PRESET,
        by="`LLAMA_ARG_THREADS`, which its llama-server reads",
        variables=("LLAMA_ARG_THREADS",),
        container={"image": "ollama/ollama"},
        image_env={
            "HOME": "{work}",
            "OLLAMA_MODELS": "{here}/models",
            "OLLAMA_HOST": "127.0.0.1:{port}",
            "LLAMA_ARG_THREADS_HTTP": "4",
        },
        request=_post(
            "/api/generate",
            model="tiny",
            prompt="hello world",
            options={"num_predict": 8, "use_mmap": True},
            stream=False,
        ),
        most=40,
        why="with LLAMA_ARG_THREADS_HTTP=4 and Debian's llama-server in both",
    ),
    Row(
        name="llama-cpp-python's server",
        program=_program(
            "PyPI",
            "llama-cpp-python",
            native.LLAMA_CPP_PYTHON,
            native.llama_cpp_python,
            *("{here}/python", "-m", "llama_cpp.server", "--model", "{here}/tiny.gguf"),
            *("--host", "127.0.0.1", "--port", "{port}"),
        ),
        way=Way.PRESET,
        by="`N_THREADS`, `N_THREADS_BATCH`",
        variables=("N_THREADS", "N_THREADS_BATCH"),
        container={"command": ["python", "-m", "llama_cpp.server"]},
        request=_post("/v1/completions", prompt="hello world", max_tokens=8),
        most=12,
    ),
    Row(
        name="whisper.cpp",
        program=_program(
            f"Debian {native.SUITE}",
            "whisper.cpp-tools",
            native.WHISPER_CPP,
            native.whisper_cpp,
            *("sh", "-c", _REPEATS, "sh", "{here}/bin/whisper-cli"),
        ),
        way=Way.ADVICE,
        by="`-t`",
        advised=("-t", "2"),
        container={"image": "ghcr.io/ggml-org/whisper.cpp:main"},
        peak=True,
        most=4,
        why="four threads, or as many as CPUs; it knows no variable, and the last count is with -t 2",
    ),
    Row(
        name="Go (onnxruntime_go)",
        program=_program(
            "Go",
            "github.com/yalue/onnxruntime_go",
            native.GO_BINDING,
            native.go_binding,
            "{here}/onnx",
            "{models}/model.onnx",
        ),
        way=Way.SHIM,
        by="the session's options",
        image_env={"ORT_DYLIB_PATH": "{here}/libonnxruntime.so"},
        most=12,
    ),
    Row(
        name="Rust (ort, load-dynamic)",
        program=_crate("ort"),
        way=Way.SHIM,
        by="the session's options",
        image_env={"ORT_DYLIB_PATH": "{here}/libonnxruntime.so"},
        most=4,
    ),
    Row(
        name="Rust (candle)",
        program=_crate("candle-core"),
        way=Way.ITSELF,
        by="`RAYON_NUM_THREADS`",
        why="Rust's count of CPUs knows the limit",
        most=4,
    ),
    Row(
        name="Rust (tokenizers)",
        program=_crate("tokenizers"),
        way=Way.ITSELF,
        by="`RAYON_NUM_THREADS`",
        why="Rust's count of CPUs knows the limit",
        most=4,
    ),
    Row(
        name="Java (onnxruntime)",
        program=_program(
            "Maven",
            "com.microsoft.onnxruntime:onnxruntime",
            libonnxruntime.MAVEN_VERSIONS[-1],
            native.java,
            *("java", "-cp", "{here}:{here}/onnxruntime.jar", "Onnx", "{models}/model.onnx"),
        ),
        way=Way.SHIM,
        by="the session's options",
        most=30,
    ),
    Row(
        name="DJL with ONNX Runtime",
        program=_program(
            "Maven",
            "ai.djl.onnxruntime:onnxruntime-engine",
            native.DJL,
            native.djl,
            *("java", "-cp", "{here}:{here}/lib/*", "Djl", "{models}/model.onnx"),
        ),
        way=Way.SHIM,
        by="the session's options",
        most=30,
    ),
    Row(
        name="TorchServe",
        program=_program(
            "PyPI", "torchserve", native.TORCHSERVE, native.torchserve, "sh", "-c", _TORCHSERVE, "sh", "{port}"
        ),
        way=Way.VARIABLE,
        by="`OMP_NUM_THREADS`",
        variables=("OMP_NUM_THREADS",),
        container={"image": "pytorch/torchserve"},
        image_env={
            "PATH": "{here}/bin:/usr/bin:/bin",
            "TS_INFERENCE_ADDRESS": "http://127.0.0.1:{port}",
            "TS_MANAGEMENT_ADDRESS": "http://127.0.0.1:{port}",
            **dict.fromkeys(("TMPDIR", "LOG_LOCATION", "METRICS_LOCATION"), "{work}"),
        },
        request=Request(path="/predictions/m", processes=2),
        most=50,
        why="two workers, as many as its JVM counts CPUs; with Debian's PyTorch",
    ),
    Row(
        name="C++ (libtorch)",
        program=_program(
            "Maven", "ai.djl.pytorch:pytorch-native-cpu", torch_lab.LIBTORCH_VERSION, native.libtorch, "{here}/program"
        ),
        way=Way.VARIABLE,
        by="`OMP_NUM_THREADS`",
        variables=("OMP_NUM_THREADS",),
        most=3,
    ),
)

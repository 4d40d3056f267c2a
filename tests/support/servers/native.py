"""Programs of the table that are no scripts: Debian's of llama.cpp and whisper.cpp, and what is compiled here.

Each function returns the folder that a row names {here}. It is made once, in the cache, and raises UnavailableError.
Models have random weights or none: what they say is noise, but they are computed like any other.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import struct
import subprocess
import tomllib
import urllib.request
import wave
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, Final

from cluster.waiting import wait
from runtimes import fetching, libonnxruntime, pythons
from runtimes.fetching import fetch, tool
from support.runtimes import process_lab, torch_lab
from unavailable import UnavailableError

HOME: Final = fetching.CACHE / "servers"
SOURCES: Final = Path(__file__).parents[2] / "servers" / "programs" / "native"
SUITE: Final = "forky"
LLAMA_CPP: Final = "0.7.0"
WHISPER_CPP: Final = "1.9.5"
OLLAMA: Final = "0.32.0"
LLAMA_CPP_PYTHON: Final = "0.3.36"
TORCHSERVE: Final = "0.12.0"
GO_BINDING: Final = "1.27.0"
GGUF: Final = ("gguf==0.19.0", "numpy==2.4.6")
DJL: Final = "0.36.0"
BUILD_SECONDS: Final = 3600
_POM: Final = f"""<project>
<modelVersion>4.0.0</modelVersion><groupId>lab</groupId><artifactId>lab</artifactId><version>0</version>
<dependencies><dependency>
<groupId>ai.djl.onnxruntime</groupId><artifactId>onnxruntime-engine</artifactId><version>{DJL}</version>
</dependency></dependencies>
</project>
"""
# Addresses are told by variables.
_TORCHSERVE: Final = """enable_envvars_config=true
disable_system_metrics=true
enable_metrics_api=false
model_store={home}
load_models=m.mar
"""
# A model of the llama architecture with 256 tokens for bytes and some more.
_GGUF_PROGRAM: Final = """
import sys
import gguf
import numpy
path, layers, width, inner, words = sys.argv[1], *map(int, sys.argv[2:])
tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *(f"w{i}" for i in range(words))]
file = gguf.GGUFWriter(path, "llama")
file.add_context_length(2048)
file.add_embedding_length(width)
file.add_block_count(layers)
file.add_feed_forward_length(inner)
file.add_head_count(width // 64)
file.add_head_count_kv(width // 64)
file.add_layer_norm_rms_eps(1e-5)
file.add_rope_dimension_count(64)
file.add_vocab_size(len(tokens))
file.add_file_type(gguf.LlamaFileType.MOSTLY_F16)
file.add_tokenizer_model("llama")
file.add_token_list(tokens)
file.add_token_scores([-float(i) for i in range(len(tokens))])
file.add_token_types([2, 3, 3] + [6] * 256 + [1] * words)
file.add_unk_token_id(0)
file.add_bos_token_id(1)
file.add_eos_token_id(2)
random = numpy.random.default_rng(7)
def weights(name, *shape):
    values = random.standard_normal(shape, dtype=numpy.float32) * 0.02
    file.add_tensor(f"{name}.weight", values.astype(numpy.float16))
def norm(name):
    file.add_tensor(f"{name}.weight", numpy.ones(width, numpy.float32))
weights("token_embd", len(tokens), width)
weights("output", len(tokens), width)
norm("output_norm")
for layer in range(layers):
    norm(f"blk.{layer}.attn_norm")
    norm(f"blk.{layer}.ffn_norm")
    for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
        weights(f"blk.{layer}.{name}", width, width)
    weights(f"blk.{layer}.ffn_gate", inner, width)
    weights(f"blk.{layer}.ffn_up", inner, width)
    weights(f"blk.{layer}.ffn_down", width, inner)
file.write_header_to_file()
file.write_kv_data_to_file()
file.write_tensors_to_file()
file.close()
"""


# --- ggml -------------------------------------------------------------------------------------------------------------


def llama_cpp() -> Path:
    """Programs of llama.cpp in bin, and two models: tiny.gguf and, of 30 million weights, small.gguf."""

    def fill(home: Path) -> None:
        _debian(home, "llama.cpp-tools", LLAMA_CPP, "llama-server", "llama-quantize", "llama-bench")
        gguf_model(home / "tiny.gguf", 2, 128, 256, 16)
        gguf_model(home / "small.gguf", 8, 512, 1536, 4000)

    return _made("llama.cpp", fill, LLAMA_CPP, _GGUF_PROGRAM)


def gguf_model(path: Path, layers: int, width: int, inner: int, words: int) -> None:
    """Write a model with random weights. Raises UnavailableError."""
    python = pythons.venv("gguf", "3.11", GGUF)
    fetch(python, "-c", _GGUF_PROGRAM, path, *map(str, (layers, width, inner, words)))


def whisper_cpp() -> Path:
    """bin/whisper-cli, tiny.bin (a model without weights) and a second of silence in silence.wav."""

    def fill(home: Path) -> None:
        _debian(home, "whisper.cpp-tools", WHISPER_CPP, "whisper-cli")
        with (home / "tiny.bin").open("wb") as file:
            _whisper_model(file)
        with wave.open(str(home / "silence.wav"), "wb") as sound:
            sound.setnchannels(1)
            sound.setsampwidth(2)
            sound.setframerate(16000)
            sound.writeframes(bytes(2 * 16000))

    return _made("whisper.cpp", fill, WHISPER_CPP)


def _whisper_model(file: BinaryIO) -> None:
    """The header of the English `tiny` with one word, a space, and no weights, which whisper.cpp takes for zeros, as in its tests."""
    words, audio, text, mels = 51864, (1500, 384, 6, 4), (448, 384, 6, 4), 80
    file.write(struct.pack("<12i", 0x67676D6C, words, *audio, *text, mels, 1))
    bins = 201
    file.write(struct.pack("<2i", mels, bins) + bytes(4 * mels * bins))
    file.write(struct.pack("<2i", 1, 1) + b" ")


def _debian(home: Path, package: str, version: str, *programs: str) -> None:
    """bin/PROGRAM for programs of a package of SUITE, each a script that starts it with the libraries of its own tree."""
    tree = torch_lab.tree(SUITE, package, f"{package}-{version}")
    found = (tree / "version").read_text().rpartition("%3a")[2]
    if found != version:
        shutil.rmtree(tree)
        raise UnavailableError(f"Debian {SUITE} has {package} {found} by now, not {version}")
    libraries = tree / "usr/lib/x86_64-linux-gnu"
    # ggml looks for its variants, one for each kind of processor, beside the program: the kernel names the linker.
    for variant in (libraries / "ggml/backends0").glob("*.so"):
        if not (libraries / variant.name).exists():
            (libraries / variant.name).symlink_to(variant)
    path = ":".join(str(libraries / name) for name in ("", "llama", "pulseaudio", "blas", "lapack"))
    (home / "bin").mkdir()
    for name in programs:
        script = home / "bin" / name
        linker = f"{libraries}/ld-linux-x86-64.so.2 --argv0 {script} --library-path {path}"
        script.write_text(f'#!/bin/sh\nexec {linker} {tree}/usr/bin/{name} "$@"\n')
        script.chmod(0o755)


def ollama() -> Path:
    """bin/ollama, compiled from its module, with Debian's llama-server, and the model "tiny" in models."""
    llama = llama_cpp()

    def fill(home: Path) -> None:
        _build("go", "install", f"github.com/ollama/ollama@v{OLLAMA}", cwd=home, GOBIN=str(home / "bin"))
        (home / "lib" / "ollama").mkdir(parents=True)
        for name in ("llama-server", "llama-quantize"):
            (home / "lib" / "ollama" / name).symlink_to(llama / "bin" / name)
        _ollama_model(home, llama / "tiny.gguf")

    return _made("ollama", fill, OLLAMA, str(llama))


def llama_cpp_python() -> Path:
    """python, with llama-cpp-python and its server, which pip compiles, and the model tiny.gguf."""

    def fill(home: Path) -> None:
        pins = f"llama-cpp-python[server]=={LLAMA_CPP_PYTHON}", "numpy==2.4.6"
        python = pythons.venv(f"servers-llama-cpp-python-{LLAMA_CPP_PYTHON}", "3.12", pins)
        (home / "python").write_text(f'#!/bin/sh\nexec {python} "$@"\n')
        (home / "python").chmod(0o755)
        gguf_model(home / "tiny.gguf", 2, 128, 256, 16)

    return _made("llama-cpp-python", fill, LLAMA_CPP_PYTHON, _GGUF_PROGRAM)


def torchserve() -> Path:
    """bin/torchserve with Debian's torch, and config.properties of one model, m, of no weights."""
    programs = process_lab.torchserve()

    def fill(home: Path) -> None:
        (home / "bin").symlink_to(programs)
        handler = process_lab.PROGRAMS / "handler.py"
        archiver = (programs / "torch-model-archiver", "--model-name", "m", "--version", "1")
        _build(str(archiver[0]), *archiver[1:], "--handler", handler, "--export-path", home, cwd=home, TMPDIR=str(home))
        (home / "config.properties").write_text(_TORCHSERVE.format(home=home))

    return _made("torchserve", fill, _TORCHSERVE, TORCHSERVE)


def _ollama_model(home: Path, model: Path) -> None:
    (port,) = process_lab.free_ports(1)
    address = f"127.0.0.1:{port}"
    variables = {
        "HOME": str(home),
        "OLLAMA_MODELS": str(home / "models"),
        "OLLAMA_HOST": address,
        "PATH": "/usr/bin:/bin",
    }
    (home / "Modelfile").write_text(f"FROM {model}\n")

    def answers() -> bool:
        with urllib.request.urlopen(f"http://{address}/api/version", timeout=10):
            return True

    with (home / "log").open("w") as log:
        server = subprocess.Popen([home / "bin" / "ollama", "serve"], env=variables, stdout=log, stderr=log)
        try:
            wait(answers, "ollama answers", 60, refusals=(OSError,))
            create = [home / "bin" / "ollama", "create", "tiny", "-f", home / "Modelfile"]
            subprocess.run(create, env=variables, check=True, capture_output=True, timeout=120)
        finally:
            server.terminate()
            server.wait(30)


# --- bindings of ONNX Runtime, and others -----------------------------------------------------------------------------


def go_binding() -> Path:
    """onnx, a Go program, and libonnxruntime.so of the newest wheel."""

    def fill(home: Path) -> None:
        shutil.copy(SOURCES / "onnx.go", home)
        binding = f"github.com/yalue/onnxruntime_go v{GO_BINDING}"
        (home / "go.mod").write_text(f"module onnx\n\ngo 1.21\n\nrequire {binding}\n")
        _build("go", "mod", "tidy", cwd=home)
        _build("go", "build", "-o", "onnx", ".", cwd=home)
        _library(home)

    return _made("go", fill, "onnx.go", GO_BINDING)


def rust() -> Path:
    """crates, a program over crates of Rust, and libonnxruntime.so of the newest wheel."""

    def fill(home: Path) -> None:
        shutil.copy(SOURCES / "Cargo.toml", home)
        (home / "src").mkdir()
        shutil.copy(SOURCES / "main.rs", home / "src")
        # Of several hundred crates none is compiled again when the program is another.
        _build("cargo", "build", "--quiet", cwd=home, CARGO_TARGET_DIR=str(HOME / "cargo"))
        shutil.copy(HOME / "cargo" / "debug" / "servers", home / "crates")
        _library(home)

    return _made("rust", fill, "Cargo.toml", "main.rs")


def crate(name: str) -> str:
    """The version of a crate that `rust` is compiled with."""
    found = tomllib.loads((SOURCES / "Cargo.toml").read_text())["dependencies"][name]
    return (found if isinstance(found, str) else found["version"]).removeprefix("=")


def _library(home: Path) -> None:
    (home / "libonnxruntime.so").symlink_to(libonnxruntime.release(libonnxruntime.WHEEL_VERSION) / "libonnxruntime.so")


def java() -> Path:
    """Onnx.class, and onnxruntime.jar of Maven Central."""

    def fill(home: Path) -> None:
        jar = libonnxruntime.release(libonnxruntime.MAVEN_VERSIONS[-1]) / "onnxruntime.jar"
        (home / "onnxruntime.jar").symlink_to(jar)
        _build("javac", "-cp", "onnxruntime.jar", "-d", ".", SOURCES / "Onnx.java", cwd=home)

    return _made("java", fill, "Onnx.java", libonnxruntime.MAVEN_VERSIONS[-1])


def djl() -> Path:
    """Djl.class, and in lib DJL with its engine for ONNX Runtime and all that these need."""

    def fill(home: Path) -> None:
        (home / "pom.xml").write_text(_POM)
        fetch("mvn", "-q", "-B", "dependency:copy-dependencies", "-DoutputDirectory=lib", cwd=home)
        _build("javac", "-cp", "lib/*", "-d", ".", SOURCES / "Djl.java", cwd=home)

    return _made("djl", fill, "Djl.java", DJL)


def libtorch() -> Path:
    """program, in C++."""
    library = torch_lab.libtorch()

    def fill(home: Path) -> None:
        (openmp,) = library.glob("libgomp*")
        _build("g++", "-O1", "-fopenmp", "-c", SOURCES / "torch.cc", cwd=home)
        # In place of the machine's own OpenMP, the one that libtorch carries.
        linked = ("torch.o", openmp, library / "libtorch_cpu.so", library / "libc10.so", f"-Wl,-rpath,{library}")
        _build("g++", "-o", "program", *linked, cwd=home)

    return _made("libtorch", fill, "torch.cc", torch_lab.LIBTORCH_VERSION)


# --- all --------------------------------------------------------------------------------------------------------------


def _made(name: str, fill: Callable[[Path], None], source: str, *depends: str) -> Path:
    """The folder that `fill` has filled; another one once a source, or a version that it depends on, is another."""
    told = [path.read_text() if (path := SOURCES / one).is_file() else one for one in (source, *depends)]
    home = HOME / f"{name}-{hashlib.sha256(chr(0).join(told).encode()).hexdigest()[:8]}"
    with fetching.made(home) as folder:
        if folder:
            fill(folder)
    return home


def _build(program: str, *arguments: str | Path, cwd: Path, **variables: str) -> None:
    """Compile, which may fetch as well. Raises UnavailableError."""
    command = ("nice", tool(program), *arguments)
    done = subprocess.run(
        command,
        cwd=cwd,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=BUILD_SECONDS,
        check=False,
    )
    if done.returncode:
        raise UnavailableError(f"{program} {arguments[0]} failed: {done.stderr[-500:]}")

"""What the native shim's tests share: real libonnxruntimes, programs that use them, the preloaded library.

Programs are built once, below ~/.cache/raddle/maven.

native_caller.py starts the programs.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import platform
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest

import onnx_models
from native import build
from runtimes.fetching import fetch, made, tool
from runtimes.libonnxruntime import HOME, MAVEN_VERSIONS, OPENVINO_VERSION, headers, openvino, release
from runtimes.nodejs import node, package
from support.runtimes import shim_lab

SOURCES = Path(__file__).parents[2] / "runtimes" / "native"
NATIVE = Path(__file__).parents[3] / "runtime" / "native"
# onnxruntime-node -> the libonnxruntime that it carries.
NODE_VERSIONS = ("1.20.1", "1.30.0")
# A JVM that starts in 0.1 s and adds no threads of its own later.
JAVA = ("java", "-Xshare:auto", "-Xint", "-XX:+UseSerialGC", "-Xmx128m", "-XX:-UsePerfData")


class Program(NamedTuple):
    """A caller that can be started: its command line and the variables it needs."""

    kind: str
    version: str
    command: tuple[str, ...]
    env: dict[str, str]


def built(name: str, source: str, *command: str | Path) -> Path:
    """The file that a compiler makes of tests/runtimes/native/<source>: compiler, source, flags, -o.

    Made again when the source, the table of switches or the command changes.
    """
    tool(str(command[0]))
    text = (SOURCES / source).read_bytes() + (NATIVE / "keys.h").read_bytes() + "\0".join(map(str, command)).encode()
    target = HOME / "built" / f"{name}-{hashlib.sha256(text).hexdigest()[:12]}"
    with made(target) as folder:
        if folder:
            compiler, *rest = map(str, command)
            made_by = [compiler, str(SOURCES / source), *rest, "-o", str(folder / name)]
            subprocess.run(made_by, check=True, timeout=120)
    return target / name


def compiled(name: str, source: str, folder: Path, *flags: str, compiler: str = "gcc") -> Path:
    """A program that is linked to the libonnxruntime in `folder`."""
    links = (f"-L{folder}", "-lonnxruntime", "-ldl", "-lpthread", f"-Wl,-rpath,{folder}")
    includes = (f"-I{headers()}", f"-I{NATIVE}")
    return built(name, source, compiler, "-O1", "-Wall", "-Wextra", "-Werror", *includes, *flags, *links)


@functools.cache
def stub(compiler: str = "gcc") -> Path:
    """A folder with a libonnxruntime.so that only writes down what reaches it (stub.c)."""
    flags = ("-std=gnu2x", "-O1", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared", f"-I{headers()}", f"-I{NATIVE}")
    links = ("-Wl,-soname,libonnxruntime.so.1", "-lpthread")
    library = built(f"stub-{compiler}.so", "stub.c", compiler, *flags, *links)
    for link in ("libonnxruntime.so", "libonnxruntime.so.1"):
        with contextlib.suppress(FileExistsError):
            (library.parent / link).symlink_to(library.name)
    return library.parent


def row(kind: str) -> str:
    """Of the README's table of runtimes."""
    return {"java": "ONNX Runtime (Java)", "node": "ONNX Runtime (Node.js)"}.get(kind, "ONNX Runtime (C/C++)")


def program(kind: str, version: str) -> Program:
    """A caller of this kind (c, cpp, plugin, handle, java, node) with this version of ORT ("stub" for the stand-in)."""
    makers = {"c": _c, "cpp": _cpp, "plugin": _plugin, "handle": _handle, "java": _java, "node": _node}
    return makers[kind](version)


def _folder(version: str) -> Path:
    if version == OPENVINO_VERSION:
        return openvino()
    return stub() if version == "stub" else release(version)


def _c(version: str) -> Program:
    folder = _folder(version)
    # The provider's libraries find each other so.
    env = {"LD_LIBRARY_PATH": str(folder)} if version == OPENVINO_VERSION else {}
    return Program("c", version, (str(compiled("caller", "caller.c", folder)),), env)


def _cpp(version: str) -> Program:
    made_by = compiled("caller-cpp", "caller.cc", _folder(version), "-std=c++17", "-Wno-unused-result", compiler="g++")
    return Program("cpp", version, (str(made_by),), {})


def _plugin(version: str) -> Program:
    plugin = compiled("plugin.so", "caller.c", _folder(version), "-DPLUGIN", "-shared", "-fPIC")
    host = built("host", "host.c", "gcc", "-O1", "-ldl", "-Wl,--no-as-needed")
    return Program("plugin", version, (str(host),), {"CALLER_PLUGIN": str(plugin)})


def _handle(version: str) -> Program:
    flags = ("-O1", "-DBY_HANDLE", f"-I{headers()}", f"-I{NATIVE}", "-ldl", "-lpthread")
    library = _folder(version) / "libonnxruntime.so.1"
    return Program(
        "handle", version, (str(built("handle", "caller.c", "gcc", *flags)),), {"CALLER_LIBRARY": str(library)}
    )


def _java(version: str) -> Program:
    folder = release(version)
    # Compiled against the oldest, so that the same classes run with all.
    oldest = release(MAVEN_VERSIONS[0]) / "onnxruntime.jar"
    source = SOURCES / "Caller.java"
    target = HOME / "built" / f"java-{hashlib.sha256(source.read_bytes()).hexdigest()[:12]}"
    with made(target) as fresh:
        if fresh:
            fetch("javac", "-cp", oldest, "-d", fresh, source)
    path = f"{folder / 'onnxruntime.jar'}:{target}"
    command = (*JAVA, f"-Donnxruntime.native.path={folder}", "-cp", path, "Caller")
    return Program("java", version, command, {"CALLER_VERSION": version})


def _node(version: str) -> Program:
    env = {"CALLER_MODULES": str(package(f"onnxruntime-node@{version}")), "CALLER_VERSION": version}
    return Program("node", version, (node(), str(SOURCES / "caller.cjs")), env)


@functools.cache
def preload() -> Path:
    """The library that a container would preload; built where it is stale."""
    if platform.machine() != "x86_64":
        pytest.skip("the libraries in this lab are for x86-64")
    return build.library("x86_64")


# Of `model`. The second is 256 copies one after another, 16 MB, through a few steps; the first copy comes out.
STEPS = {
    "identities": "{ y0 = Identity(input) y1 = Identity(y0) y2 = Identity(y1) y3 = Identity(y2) }",
    "wide": "<int64[1] start = {0}, int64[1] end = {64}>"
    f" {{ wide = Concat <axis = 0> ({', '.join(['input'] * 256)}) once = Sigmoid(wide) twice = Tanh(once)"
    " both = Add(once, twice) y3 = Slice(both, start, end) }",
}


@functools.cache
def model(name: str = "chain") -> Path:
    """A model with the input and output of shim_lab's chain, at a place that all tests share.

    chain: shim_lab's own. identities: with nodes that any optimisation removes. wide: its arena needs tens of MB.
    """
    with made(HOME / "models-2") as folder:
        if folder:
            shim_lab.write_model(folder / "chain.onnx")
            for kind, steps in STEPS.items():
                graph = f"{kind} (float[64,256] input) => (float[64,256] y3) {steps}"
                onnx_models.write(folder / f"{kind}.onnx", graph)
    return HOME / "models-2" / f"{name}.onnx"

"""What the native shim's tests share: real libonnxruntimes, programs that use them, the preloaded library.

Libraries come from Maven Central (the Java package carries libonnxruntime for Linux) and from the newest wheel, headers
from Debian's development package; all is fetched and built once, below ~/.cache/raddle/maven. What this machine can't
have skips the test and says why.

native_caller.py starts the programs.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import hashlib
import itertools
import json
import platform
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from onnx import NodeProto, TensorProto, helper

from support import shim_lab

CACHE = Path.home() / ".cache" / "raddle" / "maven"
SOURCES = Path(__file__).parents[1] / "runtimes" / "native"
# Oldest and newest of Maven Central that a policy's users may have, the first with the global pool in Python (1.23) and
# with bounded spinning (1.26); later ones are in the wheel only.
MAVEN_VERSIONS = ("1.16.3", "1.20.0", "1.23.2", "1.26.0", "1.29.0")
WHEEL_VERSION = "1.31.1"
VERSIONS = (*MAVEN_VERSIONS, WHEEL_VERSION)
OPENVINO_VERSION = "1.24.1"
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


@contextlib.contextmanager
def made(folder: Path) -> Iterator[Path | None]:
    """The folder to fill, under a lock; None when it is there already. It counts as there once the body has ended."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_name(folder.name + ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if (folder / "ready").exists():
            yield None
            return
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        yield folder
        (folder / "ready").touch()


def fetch(*command: str | Path, cwd: Path | None = None) -> str:
    """Output of a package manager; skips the test where it can't get what it was asked for."""
    tool(str(command[0]))
    try:
        done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=600, check=False)
    except subprocess.TimeoutExpired as error:
        pytest.skip(str(error))
    if done.returncode:
        pytest.skip(f"{' '.join(map(str, command[:3]))} failed: {(done.stderr or done.stdout)[-300:]}")
    return done.stdout


@functools.cache
def release(version: str) -> Path:
    """A folder with libonnxruntime.so of this version, under every name that a program may ask for.

    From Maven Central it holds libonnxruntime4j_jni.so and onnxruntime.jar as well.
    """
    with made(CACHE / f"onnxruntime-{version}") as folder:
        if folder and version == WHEEL_VERSION:
            python = shim_lab.venv(f"ort-{version}", "3.11", [f"onnxruntime=={version}"])
            if python is None:
                pytest.skip("no CPython 3.11 here")
            (found,) = (python.parents[1] / "lib").glob("python3*/site-packages/onnxruntime/capi/libonnxruntime.so.*.*")
            shutil.copy(found, folder / "libonnxruntime.so")
        elif folder:
            artifact = f"com.microsoft.onnxruntime:onnxruntime:{version}"
            fetch("mvn", "-q", "-B", "dependency:get", f"-Dartifact={artifact}", "-Dtransitive=false", cwd=folder)
            fetch(
                "mvn",
                "-q",
                "-B",
                "dependency:copy",
                f"-Dartifact={artifact}",
                f"-DoutputDirectory={folder}",
                cwd=folder,
            )
            jar = (folder / f"onnxruntime-{version}.jar").rename(folder / "onnxruntime.jar")
            fetch("unzip", "-qo", "-j", jar, "ai/onnxruntime/native/linux-x64/*", "-d", folder)
        if folder:
            for name in ("libonnxruntime.so.1", f"libonnxruntime.so.{version}"):
                (folder / name).symlink_to("libonnxruntime.so")
    return CACHE / f"onnxruntime-{version}"


@functools.cache
def openvino() -> Path:
    """A folder with libonnxruntime.so of OPENVINO_VERSION and the OpenVINO provider, from Intel's wheel."""
    python = shim_lab.venv(f"ort-openvino-{OPENVINO_VERSION}", "3.11", [f"onnxruntime-openvino=={OPENVINO_VERSION}"])
    if python is None:
        pytest.skip("no CPython 3.11 here")
    (folder,) = (python.parents[1] / "lib").glob("python3*/site-packages/onnxruntime/capi")
    for name in ("libonnxruntime.so", "libonnxruntime.so.1"):
        with contextlib.suppress(FileExistsError):
            (folder / name).symlink_to(f"libonnxruntime.so.{OPENVINO_VERSION}")
    return folder


@functools.cache
def headers(suite: str = "trixie") -> Path:
    """The folder of onnxruntime_c_api.h and onnxruntime_cxx_api.h: 1.21 in Debian trixie, a later one in sid."""
    with made(CACHE / f"headers-{suite}") as folder:
        if folder:
            (folder / "lists" / "partial").mkdir(parents=True)
            (folder / "cache" / "archives" / "partial").mkdir(parents=True)
            where = debian_mirror()
            key = "/usr/share/keyrings/debian-archive-keyring.gpg"
            (folder / "sources.list").write_text(f"deb [signed-by={key}] {where} {suite} main\n")
            options = [
                f"-oDir::Etc::sourcelist={folder / 'sources.list'}",
                "-oDir::Etc::sourceparts=/dev/null",
                f"-oDir::State::lists={folder / 'lists'}",
                f"-oDir::Cache={folder / 'cache'}",
                "-oAPT::Sandbox::User=root",
            ]
            fetch("apt-get", *options, "-qq", "update")
            fetch("apt-get", *options, "-qq", "download", f"libonnxruntime-dev/{suite}", cwd=folder)
            (package,) = folder.glob("*.deb")
            fetch("dpkg-deb", "-x", package, folder / "package")
            shutil.rmtree(folder / "lists")
            shutil.rmtree(folder / "cache")
    return CACHE / f"headers-{suite}" / "package" / "usr" / "include" / "onnxruntime"


@functools.cache
def go_headers(module_version: str) -> Path:
    """The folder of the onnxruntime_c_api.h that Go's binding is compiled with: API 20 in v1.13.0, 24 in v1.27.0."""
    with made(CACHE / f"go-{module_version}") as folder:
        if folder:
            (folder / "go.mod").write_text("module lab\n\ngo 1.20\n")
            found = fetch(
                "go", "mod", "download", "-json", f"github.com/yalue/onnxruntime_go@{module_version}", cwd=folder
            )
            shutil.copy(Path(json.loads(found)["Dir"]) / "onnxruntime_c_api.h", folder)
            # Included at its end, and not in the module.
            (folder / "onnxruntime_ep_c_api.h").touch()
    return CACHE / f"go-{module_version}"


def debian_mirror() -> str:
    """Where this machine gets its own Debian packages."""
    form = "$(ORIGIN) $(REPO_URI)"
    listed = fetch("apt-get", "indextargets", "--format", form, "Identifier: Packages").splitlines()
    debian = [line.split()[1] for line in listed if line.startswith("Debian ") and "security" not in line]
    if not debian:
        pytest.skip("apt has no lists of Debian packages here; run apt-get update")
    return debian[0]


def tool(command: str) -> str:
    """The command's path, or the test is skipped: tools/scripts/packages installs what root may."""
    found = shutil.which(command)
    if found is None:
        pytest.skip(f"no {command} here")
    return found


def built(name: str, source: str, *command: str | Path) -> Path:
    """The file that a compiler makes of tests/runtimes/native/<source>: compiler, source, flags, -o.

    Made again when the source or the command changes.
    """
    tool(str(command[0]))
    text = (SOURCES / source).read_bytes() + "\0".join(map(str, command)).encode()
    target = CACHE / "built" / f"{name}-{hashlib.sha256(text).hexdigest()[:12]}"
    with made(target) as folder:
        if folder:
            compiler, *rest = map(str, command)
            made_by = [compiler, str(SOURCES / source), *rest, "-o", str(folder / name)]
            subprocess.run(made_by, check=True, timeout=120)
    return target / name


def compiled(name: str, source: str, folder: Path, *flags: str, compiler: str = "gcc") -> Path:
    """A program that is linked to the libonnxruntime in `folder`."""
    links = (f"-L{folder}", "-lonnxruntime", "-ldl", "-lpthread", f"-Wl,-rpath,{folder}")
    return built(name, source, compiler, "-O1", "-Wall", "-Wextra", "-Werror", f"-I{headers()}", *flags, *links)


@functools.cache
def stub(compiler: str = "gcc") -> Path:
    """A folder with a libonnxruntime.so that only writes down what reaches it (stub.c)."""
    flags = ("-std=gnu2x", "-O1", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared", f"-I{headers()}")
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
    flags = ("-O1", "-DBY_HANDLE", f"-I{headers()}", "-ldl", "-lpthread")
    library = _folder(version) / "libonnxruntime.so.1"
    return Program(
        "handle", version, (str(built("handle", "caller.c", "gcc", *flags)),), {"CALLER_LIBRARY": str(library)}
    )


def _java(version: str) -> Program:
    folder = release(version)
    # Compiled against the oldest, so that the same classes run with all.
    oldest = release(MAVEN_VERSIONS[0]) / "onnxruntime.jar"
    source = SOURCES / "Caller.java"
    target = CACHE / "built" / f"java-{hashlib.sha256(source.read_bytes()).hexdigest()[:12]}"
    with made(target) as fresh:
        if fresh:
            fetch("javac", "-cp", oldest, "-d", fresh, source)
    path = f"{folder / 'onnxruntime.jar'}:{target}"
    command = (*JAVA, f"-Donnxruntime.native.path={folder}", "-cp", path, "Caller")
    return Program("java", version, command, {"CALLER_VERSION": version})


def _node(version: str) -> Program:
    tool("node")
    with made(CACHE.parent / "npm" / f"onnxruntime-node-{version}") as folder:
        if folder:
            package = f"onnxruntime-node@{version}"
            # Its install script fetches a CUDA build from elsewhere; the CPU library is in the package.
            fetch("npm", "install", "--ignore-scripts", "--no-audit", "--no-fund", "--prefix", folder, package)
    modules = CACHE.parent / "npm" / f"onnxruntime-node-{version}" / "node_modules"
    env = {"CALLER_MODULES": str(modules), "CALLER_VERSION": version}
    return Program("node", version, ("node", str(SOURCES / "caller.cjs")), env)


@functools.cache
def preload() -> Path:
    """The library that a container would preload; built where it is stale."""
    if platform.machine() != "x86_64":
        pytest.skip("the libraries in this lab are for x86-64")
    try:
        from native import build
    except ImportError as error:
        pytest.skip(f"no builder of the native shim: {error}")
    try:
        return build.library("x86_64")
    except build.Unavailable as error:
        pytest.skip(str(error))


@functools.cache
def model(name: str = "chain") -> Path:
    """A model with the input and output of shim_lab's chain, at a place that all tests share.

    chain: shim_lab's own. identities: with nodes that any optimisation removes. wide: its arena needs tens of MB.
    """
    with made(CACHE / "models-1") as folder:
        if folder:
            shim_lab.write_model(folder / "chain.onnx")
            _write_model(folder / "identities.onnx", _identities())
            _write_model(folder / "wide.onnx", _wide())
    return CACHE / "models-1" / f"{name}.onnx"


def _identities() -> list[NodeProto]:
    names = ["input", *(f"y{layer}" for layer in range(4))]
    return [helper.make_node("Identity", [given], [made_of]) for given, made_of in itertools.pairwise(names)]


def _wide() -> list[NodeProto]:
    """256 copies one after another, 16 MB, through a few steps; the first copy comes out."""
    return [
        helper.make_node("Concat", ["input"] * 256, ["wide"], axis=0),
        helper.make_node("Sigmoid", ["wide"], ["once"]),
        helper.make_node("Tanh", ["once"], ["twice"]),
        helper.make_node("Add", ["once", "twice"], ["both"]),
        helper.make_node("Slice", ["both", "start", "end"], ["y3"]),
    ]


def _write_model(path: Path, nodes: list[NodeProto]) -> None:
    rows = [64, 256]
    bounds = [helper.make_tensor(name, TensorProto.INT64, [1], [row]) for name, row in (("start", 0), ("end", 64))]
    graph = helper.make_graph(
        nodes,
        path.stem,
        [helper.make_tensor_value_info("input", TensorProto.FLOAT, rows)],
        [helper.make_tensor_value_info("y3", TensorProto.FLOAT, rows)],
        bounds if path.stem == "wide" else [],
    )
    made_of = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path.write_bytes(made_of.SerializeToString())

"""What the native shim's tests share: real libonnxruntimes, programs that use them, the preloaded library.

Libraries come from Maven Central (the Java package carries libonnxruntime for Linux) and from the newest wheel, headers
from Debian's development package; all is fetched and built once, below ~/.cache/raddle/maven. What this machine can't
have skips the test and says why.

A caller is a program of tests/runtimes/native that is told what to do line by line and answers each line. While it
waits, it is looked at from outside, by /proc: the same eyes for C, C++, Java and Node.js.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import hashlib
import itertools
import json
import os
import platform
import select
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Self

import pytest
import shim_lab
from onnx import NodeProto, TensorProto, helper

CACHE = Path.home() / ".cache" / "raddle" / "maven"
SOURCES = Path(__file__).parent / "runtimes" / "native"
# Oldest and newest of Maven Central that a policy's users may have, the first with the global pool in Python (1.23) and
# with bounded spinning (1.26); 1.31.1 is in the wheel only.
MAVEN_VERSIONS = ("1.16.3", "1.20.0", "1.23.2", "1.26.0", "1.29.0")
WHEEL_VERSION = "1.31.1"
VERSIONS = (*MAVEN_VERSIONS, WHEEL_VERSION)
OPENVINO_VERSION = "1.24.1"
# onnxruntime-node -> the libonnxruntime that it carries.
NODE_VERSIONS = ("1.20.1", "1.30.0")
# A JVM that starts in 0.1 s and adds no threads of its own later.
JAVA = ("java", "-Xshare:auto", "-Xint", "-XX:+UseSerialGC", "-Xmx128m", "-XX:-UsePerfData")
TIMEOUT_S = 60
IDLE_S = 0.15


class Program(NamedTuple):
    """A caller that can be started: its command line and the variables it needs."""

    kind: str
    version: str
    command: tuple[str, ...]
    env: dict[str, str]


class Thread(NamedTuple):
    """A thread as the kernel shows it: `cpus` is the list of those that it may run on."""

    tid: int
    name: str
    cpus: str


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
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=600, check=False)
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
            where = _debian_mirror()
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


def _debian_mirror() -> str:
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


def under(plan: str | None, **extra: str) -> dict[str, str]:
    """The environment of a container with the native shim and this plan ("v=1;" is added); None: the shim alone."""
    found = {"LD_PRELOAD": str(preload()), **extra}
    return found if plan is None else {**found, "RADDLE_PLAN": f"v=1;{plan}".rstrip(";")}


class Caller:
    """A running caller.

    with Caller(program("c", "1.20.0"), under("intra=2")) as caller:
        pool = caller.session()
    """

    def __init__(
        self,
        chosen: Program,
        env: Mapping[str, str],
        *,
        cpus: Sequence[int] | None = None,
        prefix: Sequence[str] = (),
        before: Callable[[], object] | None = None,
    ) -> None:
        def prepare() -> None:
            if cpus is not None:
                os.sched_setaffinity(0, cpus)
            if before is not None:
                before()

        self.program = chosen
        self._errors = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115  # closed by __exit__
        self._process = subprocess.Popen(
            [*prefix, *chosen.command],
            env=shim_lab.environment({"CALLER_MODEL": str(model()), **chosen.env, **env}),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            # So that its children end with it.
            start_new_session=True,
            # The tests start no threads that hold locks.
            preexec_fn=prepare,  # noqa: PLW1509
        )
        self._read = b""
        self.exit_code: int | None = None
        self.greeting = self._answer()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()
        self._errors.close()

    def end(self) -> int:
        """Ends the program by ending its input, as a pipe's reader ends; its exit status."""
        if self.exit_code is None:
            try:
                self._process.communicate(timeout=TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self._kill()
                raise
            self.exit_code = self._process.returncode
        return self.exit_code

    def _kill(self) -> None:
        os.killpg(self.pid, signal.SIGKILL)
        self._process.wait()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def stderr(self) -> str:
        """Everything written there so far."""
        self._errors.seek(0)
        return self._errors.read()

    @property
    def lines(self) -> list[str]:
        """Raddle's own lines on standard error."""
        return [line for line in self.stderr.splitlines() if line.startswith("raddle: ")]

    def _answer(self) -> str:
        assert self._process.stdout is not None
        while True:
            line, newline, rest = self._read.partition(b"\n")
            if newline:
                self._read = rest
                if line.startswith(b"= "):
                    return line[2:].decode(errors="replace")
                continue
            ready, _, _ = select.select([self._process.stdout], [], [], TIMEOUT_S)
            more = os.read(self._process.stdout.fileno(), 65536) if ready else b""
            if not more:
                self._kill()
                how = "ended" if ready else "hangs"
                raise AssertionError(f"{self.program} {how} ({self._process.wait()}):\n{self.stderr}")
            self._read += more

    def ask(self, command: str) -> str:
        """The answer to one command: "ok" or "error <text>"."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{command}\n".encode())
        self._process.stdin.flush()
        return self._answer()

    def do(self, *commands: str) -> None:
        """Each must be answered by ok."""
        for command in commands:
            answer = self.ask(command)
            assert answer == "ok", (command, answer, self.stderr)

    def session(self, options: str | None = None, *, name: str = "s", verb: str = "session") -> list[Thread]:
        """Makes and runs a session with these options ("intra=2 ..."; None: no options object); its pool's threads."""
        if options is not None:
            self.do(f"options {name} {options}".rstrip())
        before = self.tids()
        self.do(f"{verb} {name} {'-' if options is None else name}", f"run {name}")
        return self.settled(self.tids() - before)

    def pool(self) -> list[Thread]:
        """All threads that the shim made, by their names."""
        return [thread for thread in self.settled(self.tids()) if thread.name.startswith("ort-")]

    def tids(self) -> set[int]:
        """Numbers of all threads."""
        return {int(task.name) for task in Path(f"/proc/{self.pid}/task").iterdir()}

    def settled(self, pool: Iterable[int]) -> list[Thread]:
        """These threads, once each has run: a thread takes its name and its CPUs after birth."""
        pool = sorted(pool)
        deadline = time.monotonic() + 5
        while any(self._switches(tid) == 0 for tid in pool) and time.monotonic() < deadline:
            time.sleep(0.001)
        return [self.thread(tid) for tid in pool]

    def thread(self, tid: int) -> Thread:
        """One thread's name and CPUs."""
        status = self._status(tid)
        return Thread(tid, status["Name"], status["Cpus_allowed_list"])

    def _status(self, tid: int) -> dict[str, str]:
        lines = Path(f"/proc/{self.pid}/task/{tid}/status").read_text().splitlines()
        return {key: value.strip() for key, _, value in (line.partition(":") for line in lines)}

    def _switches(self, tid: int) -> int:
        status = self._status(tid)
        return int(status["voluntary_ctxt_switches"]) + int(status["nonvoluntary_ctxt_switches"])

    def rss_kb(self) -> int:
        """Resident memory."""
        return int(self._status(self.pid)["VmRSS"].split()[0])

    def mapped(self) -> set[str]:
        """Names of the libraries in its memory."""
        lines = Path(f"/proc/{self.pid}/maps").read_text().splitlines()
        return {Path(line.split(None, 5)[5]).name for line in lines if ".so" in line}

    def idle_cpu_s(self, pool: Iterable[Thread], name: str = "s") -> float:
        """CPU time of the pool's threads in the time after a run: the least of three, for threads that must sleep."""
        return min(self._after_runs(pool, name))

    def busy_cpu_s(self, pool: Iterable[Thread], name: str = "s") -> float:
        """The same, the most of three, for threads that must spin: others use this machine too."""
        return max(self._after_runs(pool, name))

    def _after_runs(self, pool: Iterable[Thread], name: str) -> Iterator[float]:
        for _ in range(3):
            self.do(f"run {name}")
            before = self._cpu_s(pool)
            time.sleep(IDLE_S)
            yield self._cpu_s(pool) - before

    def _cpu_s(self, pool: Iterable[Thread]) -> float:
        return sum(int(Path(f"/proc/{self.pid}/task/{t.tid}/schedstat").read_text().split()[0]) for t in pool) / 1e9

"""The runners of a model, in Python, Node.js and C, in real ONNX Runtimes: what a candidate sets reaches each."""

import contextlib
import platform
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from support import tiny_models
from support.runtimes import torch_lab

from native import build
from raddle_operator.cli.offline import container, for_everything
from raddle_operator.local.container import Container
from raddle_operator.objects.policy import policy_from_object
from raddle_operator.results.candidate import Candidate
from raddle_tuner.trials import inputs, models, programs
from raddle_tuner.trials.load import LoadSpec
from raddle_tuner.trials.programs import TrialError
from runtimes import fetching, libonnxruntime, nodejs

pytestmark = [pytest.mark.runtime, pytest.mark.matrix]

# numpy's name of a type -> ONNX's.
TYPES = {
    "float16": TensorProto.FLOAT16,
    "float32": TensorProto.FLOAT,
    "float64": TensorProto.DOUBLE,
    "int8": TensorProto.INT8,
    "int16": TensorProto.INT16,
    "int32": TensorProto.INT32,
    "int64": TensorProto.INT64,
    "uint8": TensorProto.UINT8,
    "uint16": TensorProto.UINT16,
    "uint32": TensorProto.UINT32,
    "uint64": TensorProto.UINT64,
    "bool": TensorProto.BOOL,
    "str": TensorProto.STRING,
}
NOTHING = Container(cpus=None, variables={}, mounts=(), notes=())


def library():
    return libonnxruntime.release(libonnxruntime.WHEEL_VERSION) / "libonnxruntime.so.1"


@pytest.fixture(params=models.RUNNERS)
def runner(request):
    """A runner with a real runtime; skipped where this machine can't have it."""
    if request.param == "node":
        nodejs.node()
        return models.Runner(language="node", runtime=nodejs.package(f"onnxruntime-node@{nodejs.NEWEST}"))
    if request.param == "c":
        return models.Runner(language="c", runtime=library())
    return models.Runner()


@pytest.fixture
def model(tmp_path):
    # Of a size at which ONNX Runtime has several threads work.
    return tiny_models.write(tmp_path, side=64)


def under(**settings):
    """What a container with limits.cpu 2 gets for a candidate."""
    spec = Candidate.of({path.replace("_", "."): value for path, value in settings.items()}).over({"podSelector": {}})
    obj = {"apiVersion": "raddle.dev/v1alpha1", "kind": "InferenceThreading", "spec": spec}
    policy = policy_from_object({**obj, "metadata": {"name": "test", "namespace": "default"}})
    return container("2", for_everything(policy), Path("/"))


@contextlib.contextmanager
def started(runner, model, tmp_path, given=NOTHING, instances=1, arrays=None, **options):
    folder = tmp_path / "inputs"
    folder.mkdir(exist_ok=True)
    models.write_inputs(folder, inputs.made(inputs.read(model)) if arrays is None else arrays)
    command = runner.command(model, folder, **options)
    with programs.runners(given, command, instances, lambda _: None) as program:
        yield program


def asked(program, seconds=0.02):
    with program.caller.offered(LoadSpec(rate=None, seconds=seconds)) as seen_at_end:
        return seen_at_end()


@pytest.mark.parametrize(
    ("threads", "spinning", "said"),
    # One thread has nobody to spin for.
    [(1, "Never", ""), (2, "Never", "spinning off"), (2, "Always", "spinning default")],
)
def test_threads_and_spinning_of_a_candidate_reach_the_session(runner, model, tmp_path, threads, spinning, said):
    given = under(threads_intraOp=threads, threads_spinning=spinning)
    with started(runner, model, tmp_path, given) as program:
        assert program.said["runtime"] == "onnxruntime"
        assert program.said["threads"] == threads
        line = re.search(r"raddle: onnxruntime ([\d.]+): (.*)", program.processes.output())
        assert line[1] == program.said["version"]
        assert f"intra_op={threads}" in line[2]
        assert said in line[2]


def test_without_a_policy_the_session_has_the_runtimes_own_threads(runner, model, tmp_path):
    with started(runner, model, tmp_path) as program:
        assert program.said["threads"] >= 1
        assert program.said["providers"] == ["CPUExecutionProvider"]
        assert program.processes.output() == ""


@pytest.mark.parametrize("instances", [1, 2])
def test_each_instance_answers_one_request_at_a_time(runner, model, tmp_path, instances):
    with started(runner, model, tmp_path, instances=instances) as program:
        seen = asked(program, seconds=0.1)
        assert (seen.missed, seen.refused) == (0, {})
        assert len(seen.latencies_ms) > instances


@pytest.mark.parametrize("io_binding", [False, True])
def test_inputs_of_every_type_and_shape_are_given(runner, tmp_path, io_binding):
    if io_binding and "ioBinding" not in models.can(runner.language, tmp_path):
        pytest.skip(f"the runner in {runner.language} has no I/O binding")
    # Python's I/O binding takes no strings.
    types = {name: kind for name, kind in TYPES.items() if name != "str" or not io_binding}
    shapes = {name: [2, 3] for name in types} | {"int64": [], "float32": [0, 4]}
    nodes, given, taken = [], [], []
    for name, kind in types.items():
        nodes.append(helper.make_node("Identity", [f"an input, {name}"], [f"{name} out"]))
        given.append(helper.make_tensor_value_info(f"an input, {name}", kind, shapes[name]))
        taken.append(helper.make_tensor_value_info(f"{name} out", kind, shapes[name]))
    graph = helper.make_graph(nodes, "types", given, taken)
    path = tmp_path / "types.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10), path)
    with started(runner, path, tmp_path, io_binding=io_binding) as program:
        assert asked(program).missed == 0


def test_strings_come_as_they_are(runner, tmp_path):
    # Gather fails for an index that is none, and the index is made of the text.
    nodes = [
        helper.make_node(
            "LabelEncoder",
            ["text"],
            ["place"],
            domain="ai.onnx.ml",
            keys_strings=["", "über"],
            values_int64s=[0, 1],
            default_int64=9,
        ),
        helper.make_node("Gather", ["places", "place"], ["y"]),
    ]
    text = helper.make_tensor_value_info("text", TensorProto.STRING, [2])
    places = helper.make_tensor_value_info("places", TensorProto.FLOAT, [2])
    graph = helper.make_graph(
        nodes, "texts", [text, places], [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2])]
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 2)]
    path = tmp_path / "texts.onnx"
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=10), path)
    floats = np.zeros(2, np.float32)
    with started(runner, path, tmp_path, arrays={"text": np.array(["über", ""]), "places": floats}) as program:
        assert asked(program).missed == 0
    with (
        pytest.raises(TrialError, match="out of data bounds"),
        started(runner, path, tmp_path, arrays={"text": np.array(["uber", ""]), "places": floats}),
    ):
        pass


def test_a_model_that_does_not_load_says_why(runner, tmp_path):
    path = tmp_path / 'a "model".onnx'
    path.write_bytes(b"no model")
    with pytest.raises(TrialError, match=r'a "model"\.onnx'), started(runner, path, tmp_path, arrays={}):
        pass


def test_inputs_that_do_not_fit_are_said(runner, model, tmp_path):
    arrays = {"x": np.ones((1, 2, 3), np.float32)}
    with pytest.raises(TrialError, match="invalid dimensions"), started(runner, model, tmp_path, arrays=arrays):
        pass


# --- TorchScript ----------------------------------------------------------------------------------------------------

FORKS = """
import sys, torch
class Forks(torch.nn.Module):
    def forward(self, x, y):
        other = torch.jit.fork(torch.matmul, x, y)
        return torch.matmul(y, x) + torch.jit.wait(other)
torch.jit.save(torch.jit.script(Forks()), sys.argv[1])
"""
SHAPES = {"x": (400, 400), "y": (400, 400)}


@pytest.fixture(scope="module")
def torch():
    """The runner of a Python that has torch."""
    return models.Runner(runtime=torch_lab.installed().python)


@pytest.fixture(scope="module")
def script(torch, tmp_path_factory):
    folder = tmp_path_factory.mktemp("script")
    (folder / "forks.py").write_text(FORKS)
    subprocess.run([torch.runtime, folder / "forks.py", folder / "forks.pt"], check=True)
    return folder / "forks.pt"


@pytest.mark.parametrize(("threads", "beside"), [(2, 1), (1, 2)])
def test_both_pools_of_a_candidate_reach_torch(torch, script, tmp_path, threads, beside):
    arrays = inputs.asked(script, None, SHAPES)
    parallel = {"threads_executionMode": "Parallel", "threads_interOp": beside} if beside > 1 else {}
    given = under(threads_intraOp=threads, **parallel)
    with started(torch, script, tmp_path, given, arrays=arrays) as program:
        assert (program.said["runtime"], program.said["forks"], models.can(torch.language, script)) == (
            "torch",
            1,
            ("instances",),
        )
        assert f"intra_op={threads}, inter_op={beside}" in program.processes.output()
        assert asked(program).missed == 0


def test_a_missing_input_of_a_script_is_named(torch, script, tmp_path):
    arrays = inputs.asked(script, None, {"x": (4, 4)})
    with pytest.raises(TrialError, match="argument 'y'"), started(torch, script, tmp_path, arrays=arrays):
        pass


def test_a_python_without_torch_is_named(script, tmp_path):
    arrays = inputs.asked(script, None, SHAPES)
    wanted = f"No module named 'torch' ({sys.executable})"
    with pytest.raises(TrialError, match=re.escape(wanted)), started(models.Runner(), script, tmp_path, arrays=arrays):
        pass


# --- C --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "said"),
    [
        (f"/lib/{platform.machine()}-linux-gnu/libc.so.6", "is no ONNX Runtime: it has no OrtGetApiBase"),
        (__file__, "invalid ELF header"),
    ],
)
def test_what_is_no_onnxruntime_is_said(model, tmp_path, path, said):
    runner = models.Runner(language="c", runtime=Path(path))
    with pytest.raises(TrialError, match=said), started(runner, model, tmp_path):
        pass


@pytest.mark.parametrize("version", libonnxruntime.VERSIONS)
def test_the_runner_in_c_takes_every_release(model, tmp_path, version):
    if version in libonnxruntime.MAVEN_VERSIONS and platform.machine() != "x86_64":
        pytest.skip("the libraries from Maven Central are unpacked for x86-64 only")
    runtime = libonnxruntime.release(version) / "libonnxruntime.so"
    with started(models.Runner(language="c", runtime=runtime), model, tmp_path, io_binding=True) as program:
        assert program.said["version"] == version
        assert asked(program).missed == 0


@pytest.mark.parametrize("architecture", build.ARCHITECTURES)
def test_the_runner_in_c_asks_for_no_glibc_after_2_17(architecture):
    program = build.runner(architecture)
    said = subprocess.run([fetching.tool("readelf"), "-W", "-V", program], capture_output=True, text=True, check=True)
    versions = {tuple(map(int, found.split("."))) for found in re.findall(r"GLIBC_([\d.]+)", said.stdout)}
    assert versions
    assert max(versions) <= (2, 17)


@pytest.mark.parametrize("architecture", build.ARCHITECTURES)
def test_the_runner_in_c_says_how_it_is_called(architecture):
    emulator = [] if architecture == platform.machine() else [fetching.tool(f"qemu-{architecture}-static")]
    libraries = ["-L", f"/usr/{architecture}-linux-gnu"] if emulator else []
    command = [*emulator, *libraries, build.runner(architecture)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr[:17]) == (2, "run-model LIBRARY")


def test_the_runner_in_c_runs_with_an_older_glibc(model, tmp_path):
    # Debian bullseye's 2.31: dlopen is in a library of its own there.
    root = torch_lab.tree("bullseye", "libstdc++6", "libstdcxx-bullseye")
    libraries = [root / below / "x86_64-linux-gnu" for below in ("lib", "usr/lib")]
    linker = [str(libraries[0] / "ld-linux-x86-64.so.2"), "--library-path", ":".join(map(str, libraries))]

    class Older(models.Runner):
        def command(self, *arguments, **options):
            return [*linker, *super().command(*arguments, **options)]

    with started(Older(language="c", runtime=library()), model, tmp_path) as program:
        maps = Path(f"/proc/{min(program.processes.pids())}/maps").read_text()
        assert f"{libraries[0]}/libdl-2.31.so" in maps
        assert asked(program).missed == 0

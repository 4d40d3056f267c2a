"""`raddle analyze`: what a model is made of, before any trial. The models are made here, and run in real processes."""

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import onnx
import psutil
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper
from support.runtimes import torch_lab

from cluster import waiting
from load import models
from raddle_operator.cli import main
from raddle_tuner.analysis import analysis, cuda_graphs, graph, measure, measured, node_times, onnx_model, scaling
from raddle_tuner.analysis.graph import Node
from raddle_tuner.commands.analyze import document, text
from raddle_tuner.trials import inputs
from raddle_tuner.trials.inputs import InputError

ROOT = Path(__file__).parents[2]
FLOAT = TensorProto.FLOAT


def info(name, shape, kind=FLOAT):
    return helper.make_tensor_value_info(name, kind, shape)


def saved(path, nodes, inputs, outputs, weights=(), domains=(), **kwargs):
    made = helper.make_graph(nodes, "model", inputs, outputs, list(weights))
    opsets = [helper.make_opsetid(domain, version) for domain, version in (("", 17), *domains)]
    onnx.save(helper.make_model(made, opset_imports=opsets, ir_version=10), path, **kwargs)
    return path


def square(name, side=64):
    rng = np.random.default_rng(1)
    return numpy_helper.from_array(rng.standard_normal((side, side), dtype=np.float32), name)


def wide(path, branches, **kwargs):
    """`branches` products side by side, then their sum."""
    nodes = [helper.make_node("MatMul", ["x", f"w{n}"], [f"m{n}"], name=f"branch{n}") for n in range(branches)]
    nodes.append(helper.make_node("Sum", [f"m{n}" for n in range(branches)], ["y"], name="sum"))
    weights = [square(f"w{n}") for n in range(branches)]
    return saved(path, nodes, [info("x", [8, 64])], [info("y", [8, 64])], weights, **kwargs)


def loop(path):
    body = helper.make_graph(
        [helper.make_node("Identity", ["on"], ["on_out"]), helper.make_node("Add", ["state", "x"], ["state_out"])],
        "body",
        [info("i", [], TensorProto.INT64), info("on", [], TensorProto.BOOL), info("state", [2])],
        [info("on_out", [], TensorProto.BOOL), info("state_out", [2])],
    )
    weights = [numpy_helper.from_array(np.array(3), "trips"), numpy_helper.from_array(np.array(True), "begin")]
    nodes = [
        helper.make_node("Relu", ["x"], ["positive"], name="first"),
        helper.make_node("Loop", ["trips", "begin", "positive"], ["y"], name="decode", body=body),
    ]
    return saved(path, nodes, [info("x", ["n"])], [info("y", ["n"])], weights)


def strings(path):
    node = helper.make_node("StringNormalizer", ["text"], ["y"], case_change_action="LOWER", locale="C")
    types = [info(name, ["n"], TensorProto.STRING) for name in ("text", "y")]
    return saved(path, [node], types[:1], types[1:])


def any_shape(path):
    return saved(path, [helper.make_node("Relu", ["x"], ["y"], name="only")], [info("x", None)], [info("y", None)])


def run(*arguments, status=0):
    result = CliRunner().invoke(main, ["analyze", *map(str, arguments)])
    assert result.exit_code == status, result.output
    return result.output


def once(path):
    """What a round with one thread shows."""
    arrays = inputs.made(onnx_model.read(path).inputs)
    return measure.measured(path, arrays, [1], most_rounds=1)


def as_json(*arguments):
    return json.loads(run(*arguments, "-o", "json"))


def nodes(*needs):
    return [Node(name=str(place), kind="Op", needs=tuple(found)) for place, found in enumerate(needs)]


graphs = st.integers(1, 12).flatmap(
    lambda count: st.tuples(
        st.tuples(*(st.sets(st.integers(0, max(0, n - 1)), max_size=3 if n else 0) for n in range(count))),
        st.lists(st.integers(1, 9).map(float), min_size=count, max_size=count),
    )
)


@pytest.mark.parametrize(
    ("needs", "weights", "width", "threads"),
    [
        ([[], [0], [1]], [1, 2, 3], 1, 1),
        ([[], [0], [0], [0], [1, 2, 3]], [1, 4, 4, 4, 1], 14 / 6, 3),
        # A long stem does not make four equal branches useless.
        ([[], [0], [0], [0], [0]], [4, 1, 1, 1, 1], 8 / 5, 4),
        ([[], []], [100, 1], 1.01, 2),
        ([], [], 1, 1),
    ],
    ids=["chain", "diamond", "stem", "uneven", "empty"],
)
def test_width_is_the_work_by_the_critical_path(needs, weights, width, threads):
    made = graph.graph(nodes(*needs), weights)
    assert made.width == pytest.approx(width)
    if width > 1.05 or threads == 1:
        assert graph.useful_threads(made) == threads


@given(graphs)
def test_threads_shorten_a_graph_to_between_its_critical_path_and_its_work(given_graph):
    needs, weights = given_graph
    made = graph.graph(nodes(*needs), weights)
    for threads in (1, 2, 3, 12):
        length = graph.length_with(made.nodes, weights, threads)
        assert max(made.length, made.work / threads) - 1e-9 <= length <= made.work / threads + made.length + 1e-9
    assert graph.length_with(made.nodes, weights, 1) == pytest.approx(made.work)
    assert graph.length_with(made.nodes, weights, graph.useful_threads(made)) <= made.length * 1.05 + 1e-9


@given(st.floats(0, 1), st.floats(0.1, 100), st.sets(st.integers(2, 128), min_size=1, max_size=3))
def test_the_serial_share_of_amdahls_own_times_is_found_again(share, one, counts):
    times = {1: one} | {n: one * (share + (1 - share) / n) for n in counts}
    assert scaling.serial_share(times) == pytest.approx(share, abs=1e-6)


@pytest.mark.parametrize(("share", "paying"), [(0.0, None), (0.1, 11), (0.25, 5), (1.0, 2)])
def test_threads_pay_while_each_is_used_by_half(share, paying):
    assert scaling.paying_threads(share) == paying


def test_without_a_second_count_nothing_is_said_of_scaling():
    assert scaling.serial_share({1: 5.0}) is None


def event(kind, start, took, **args):
    return {"cat": "Node", "name": f"{kind}_kernel_time", "ts": start, "dur": took, "args": {"op_name": kind, **args}}


RUN = {"cat": "Session", "name": "model_run", "ts": 0, "dur": 1}


def test_the_time_of_a_loop_contains_that_of_the_nodes_inside():
    first = [event("Relu", 0, 0), event("Add", 12, 20), event("Add", 40, 30), event("Loop", 0, 100), RUN]
    second = [event("Relu", 0, 4), event("Add", 12, 40), event("Add", 60, 10), event("Loop", 4, 90), RUN]
    found = node_times.read([*first, *second], warm_up=0)
    assert found.nodes == (("Relu", 0.0), ("Loop", 0.09))
    assert found.kinds == pytest.approx({"Relu": 0.0, "Add": 0.03, "Loop": 0.04})


def test_runs_that_go_round_more_often_leave_the_fastest_one():
    short = [event("Add", 2, 5), event("Loop", 0, 10), RUN]
    long = [event("Add", 2, 5), event("Add", 8, 5), event("Loop", 0, 20), RUN]
    assert node_times.read([*long, *short], warm_up=0).nodes == (("Loop", 0.01),)


def test_a_profile_without_a_whole_run_has_no_times():
    assert node_times.read([event("Add", 0, 1)]) is None


def rounds(*times):
    return [node_times.NodeTimes(nodes=(("Add", time),), kinds={"Add": time}, arena_bytes=None) for time in times]


def test_of_rounds_the_median_counts():
    found = node_times.of_rounds(rounds(3.0, 1.0, 2.0))
    assert (found.nodes, found.kinds) == ((("Add", 2.0),), {"Add": 2.0})


def test_rounds_that_did_other_steps_leave_the_fastest_one():
    other = node_times.NodeTimes(nodes=(("Mul", 5.0),), kinds={"Mul": 5.0}, arena_bytes=None)
    assert node_times.of_rounds([*rounds(3.0, 4.0), other]).kinds == {"Add": 3.0}


some_rounds = st.lists(st.floats(0.1, 9), min_size=4, max_size=5, unique=True)


@given(some_rounds, some_rounds)
def test_rounds_that_do_not_overlap_are_told_apart_and_the_same_ones_are_not(one, other):
    assert scaling.told_apart(one, other) == scaling.told_apart(other, one)
    assert scaling.told_apart(one, [time + max(one) for time in other])
    assert not scaling.told_apart(one, one)


def test_one_round_of_five_that_was_slowed_down_hides_no_clear_difference():
    quiet = [3.0, 3.1, 3.2, 3.3, 3.4]
    assert scaling.told_apart(quiet, [1.0, 1.1, 1.2, 1.3, 3.15])
    assert not scaling.told_apart(quiet, [2.9, 3.05, 3.15, 3.25, 3.35])


def measured_as(*, one, two):
    """What is measured of a network of one node whose rounds take so long with one and with two threads."""
    times = {1: one, 2: two}
    return measured.Measured(
        version="1.31.1",
        nodes=(Node(name="only", kind="Add", needs=()),),
        kinds={"Add": 1},
        runs={n: measured.RunTime(rounds_ms=tuple(took), median_ms=max(took), count=9) for n, took in times.items()},
        profiles={n: tuple(rounds(*took)) for n, took in times.items()},
        memory=measured.Memory(loaded_bytes=1, running_bytes=1, arena_bytes=None),
    )


def test_what_the_rounds_differ_by_as_much_among_themselves_is_not_told_apart(tmp_path):
    model = onnx_model.read(any_shape(tmp_path / "any.onnx"))
    noisy = analysis.of_onnx(model, measured_as(one=[2.0, 3.0, 2.2, 2.8], two=[2.4, 1.0, 1.5, 2.9]))
    assert not noisy.told_apart(2)
    assert document.document(noisy)["runs"]["2"]["toldApart"] is False
    assert document.document(noisy)["kinds"][0]["toldApart"] is False
    facts = dict(text.facts(noisy))
    assert facts["a run takes"] == "2.5 ms with 1 thread, 1.95 ms with 2 threads (not distinguishable)"
    assert facts["threads"].startswith("1 and 2 are not distinguishable")
    quiet = analysis.of_onnx(model, measured_as(one=[2.0, 3.0, 2.2, 2.8], two=[1.4, 1.0, 1.5, 1.3]))
    assert dict(text.facts(quiet))["a run takes"].endswith("1.35 ms with 2 threads (1.85 times as fast)")


def test_a_node_needs_what_the_graph_inside_it_reads(tmp_path):
    found = onnx_model.read(loop(tmp_path / "loop.onnx"))
    assert [(node.name, node.needs) for node in found.nodes] == [("first", ()), ("decode", (0,))]
    assert found.kinds == {"Relu": 1, "Loop": 1, "Identity": 1, "Add": 1}
    assert found.control_flow == (("Loop", "decode"),)


def test_control_flow_and_dynamic_shapes_forbid_cuda_graphs(tmp_path):
    control, shapes = cuda_graphs.obstacles(onnx_model.read(loop(tmp_path / "loop.onnx")))
    assert control.startswith("control flow (Loop)")
    assert shapes.startswith("dynamic shapes (x: n)")


def test_operators_that_only_the_cpu_has_forbid_cuda_graphs(tmp_path):
    found = cuda_graphs.obstacles(onnx_model.read(strings(tmp_path / "strings.onnx")))
    assert "operators that run only on the CPU (StringNormalizer)" in found[0]
    assert "inputs that a GPU can't take (text string [n])" in found[1]


def test_nothing_forbids_cuda_graphs_of_a_plain_network(tmp_path):
    assert cuda_graphs.obstacles(onnx_model.read(models.SMALL.file(tmp_path))) == ()


def test_weights_in_other_files_are_counted_and_must_be_there(tmp_path):
    path = wide(tmp_path / "model.onnx", 2, save_as_external_data=True, location="weights", size_threshold=0)
    found = onnx_model.read(path)
    assert found.weights_bytes == found.external_bytes == 2 * 64 * 64 * 4
    (tmp_path / "weights").unlink()
    with pytest.raises(InputError, match="weight w0 is stored in weights, which is not in the model's folder"):
        onnx_model.read(path)


@pytest.mark.runtime
def test_branches_side_by_side_are_told_from_a_chain(tmp_path):
    model = onnx_model.read(wide(tmp_path / "wide.onnx", 4))
    assert analysis.of_onnx(model, None).graph.width == pytest.approx(5 / 2)
    assert analysis.of_onnx(model, None).max_inter_op == 4
    chain = as_json(models.SMALL.file(tmp_path))
    assert chain["graph"]["width"] == pytest.approx(1)
    assert chain["parallel"].pop("gainsOfRounds") == [1.0] * 5
    parallel = {"canPay": False, "gainAtMost": 1.0, "toldApart": True, "maxInterOp": 1, "forks": None}
    assert chain["parallel"] == parallel
    assert chain["graph"]["unit"] == "ms"
    assert len(chain["runs"]["1"]["roundsMs"]) == 5
    assert chain["runs"]["1"]["ms"] > 0
    assert {kind["name"] for kind in chain["kinds"]} >= {"Conv", "GlobalAveragePool"}


@pytest.mark.runtime
def test_a_model_with_a_loop_is_profiled_with_the_nodes_inside(tmp_path):
    svg = tmp_path / "path.svg"
    found = as_json(loop(tmp_path / "loop.onnx"), "--shape", "x=2", "--svg", svg)
    assert {kind["name"] for kind in found["kinds"]} == {"Relu", "Loop", "Identity", "Add"}
    assert found["graph"]["unit"] == "ms"
    assert found["dynamic"] == {"x": ["n"]}
    assert found["controlFlow"] == [{"kind": "Loop", "where": "decode"}]
    titles = [title.text for title in ET.parse(svg).iter("{http://www.w3.org/2000/svg}title")]
    assert re.fullmatch(r"Loop decode, [\d.]+ ms", titles[-1])


@pytest.mark.runtime
def test_weights_in_other_files_and_strings_are_run(tmp_path):
    path = wide(tmp_path / "external.onnx", 2, save_as_external_data=True, location="weights", size_threshold=0)
    assert set(once(path).kinds) == {"MatMul", "Sum"}
    assert set(once(strings(tmp_path / "strings.onnx")).kinds) == {"StringNormalizer"}


@pytest.mark.runtime
def test_the_page_shows_the_model_that_its_command_makes(tmp_path):
    page = (ROOT / "docs" / "how-to" / "analyze-a-model.md").read_text()
    program, name = re.search(r"\$ python (examples/\S+) (\S+)\n", page).groups()
    subprocess.run([sys.executable, ROOT / program, tmp_path / name], check=True)
    assert f"$ raddle analyze {name} " in page
    model, ran = onnx_model.read(tmp_path / name), once(tmp_path / name)
    facts = dict(text.facts(analysis.of_onnx(model, ran)))
    for fact in ("inputs", "dynamic", "control flow", "CUDA graphs"):
        assert re.search(rf"^{fact} +{re.escape(facts[fact])}$", page, re.MULTILINE)
    shown = dict(re.findall(r"^(\w[\w ]*?)  +(\S.*)$", page.partition("\nKIND ")[0], re.MULTILINE))
    assert list(shown) == list(facts)
    picture = (ROOT / "docs" / "images" / "critical-path.svg").read_text()
    assert f">{shown['graph']}. Parallel {shown['Parallel']}</desc>" in picture
    for node in ran.nodes:
        assert re.search(rf"^{node.name} +{node.kind} +[\d.]+ ms ", page, re.MULTILINE)
    for kind, count in ran.kinds.items():
        assert re.search(rf"^{kind} +{count} +\d+ %", page, re.MULTILINE)


def test_without_inputs_each_node_counts_alike_and_the_text_says_why(tmp_path):
    said = run(any_shape(tmp_path / "any.onnx"))
    assert "note: nothing was run: input x is float of any shape; give --shape x=1,3,224,224" in said
    assert "1 wide: work 1 nodes by critical path 1 nodes" in said


@pytest.mark.runtime
def test_an_unknown_operator_is_bad_input(tmp_path):
    node = helper.make_node("Own", ["x"], ["y"], domain="com.example")
    path = saved(tmp_path / "own.onnx", [node], [info("x", [1])], [info("y", [1])], domains=[("com.example", 1)])
    assert re.search("ONNX Runtime can't load it.*com.example", run(path, status=2), re.DOTALL)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--shape", "z=1"], "no input is named z; the model has x"),
        (["--shape", "x"], "is not a shape; write NAME=1,3,224,224"),
        (["--shape", "x=1", "--inputs", "{model}"], "--shape and --inputs exclude each other"),
        (["--inputs", "{model}"], "is not an .npz file of plain arrays"),
    ],
)
def test_inputs_that_do_not_fit_are_bad_input(tmp_path, arguments, said):
    path = wide(tmp_path / "model.onnx", 2)
    assert said in run(path, *(one.format(model=path) for one in arguments), status=2)


def test_what_is_no_model_is_bad_input(tmp_path):
    (tmp_path / "text.onnx").write_text("no model")
    assert "is not an ONNX model" in run(tmp_path / "text.onnx", status=2)
    (tmp_path / "text.pt").write_text("no model")
    said = run(tmp_path / "text.pt", status=2)
    assert re.search("reading a TorchScript model requires torch|is not a TorchScript model", said)


def branch(path):
    """An If that takes a product or a sum, as the input says."""
    branches = {
        name: helper.make_graph([helper.make_node(kind, ["x", "x"], [name])], name, [], [info(name, [4, 4])])
        for name, kind in (("then_branch", "MatMul"), ("else_branch", "Add"))
    }
    node = helper.make_node("If", ["flag"], ["y"], name="either", **branches)
    return saved(path, [node], [info("flag", [], TensorProto.BOOL), info("x", [4, 4])], [info("y", [4, 4])])


def scan(path):
    """A Scan that sums up the rows."""
    body = helper.make_graph(
        [helper.make_node("Add", ["sum", "row"], ["sum_out"]), helper.make_node("Identity", ["sum_out"], ["so_far"])],
        "body",
        [info("sum", [4]), info("row", [4])],
        [info("sum_out", [4]), info("so_far", [4])],
    )
    node = helper.make_node("Scan", ["first", "x"], ["last", "y"], name="rows", num_scan_inputs=1, body=body)
    return saved(path, [node], [info("first", [4]), info("x", [3, 4])], [info("last", [4]), info("y", [3, 4])])


@pytest.mark.runtime
@pytest.mark.parametrize(("make", "kinds"), [(branch, {"If", "MatMul"}), (scan, {"Scan", "Add", "Identity"})])
def test_a_branch_and_a_scan_are_run_with_the_nodes_inside(tmp_path, make, kinds):
    found = once(make(tmp_path / "model.onnx"))
    (profile,) = found.profiles[1]
    assert set(profile.kinds) == kinds
    assert [kind for kind, _ in profile.nodes] == [node.kind for node in found.nodes]


def large(path, rows=8_500_000):
    """A look-up in a table above 2 GiB beside the file; none of it takes room."""
    table = TensorProto(name="table", data_type=FLOAT, dims=[rows, 64], data_location=TensorProto.EXTERNAL)
    for key, value in (("location", "table"), ("offset", "0"), ("length", str(rows * 256))):
        table.external_data.add(key=key, value=value)
    with (path.parent / "table").open("wb") as file:
        file.truncate(rows * 256)
    node = helper.make_node("Gather", ["table", "ids"], ["y"])
    return saved(path, [node], [info("ids", [8], TensorProto.INT64)], [info("y", [8, 64])], [table])


@pytest.mark.runtime
def test_a_model_above_2_gib_is_run():
    # A tmpfs has no pages for what was never written, not even while it is read.
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        path = large(Path(folder) / "model.onnx")
        assert onnx_model.read(path).external_bytes > 1 << 31
        assert set(once(path).kinds) == {"Gather"}


@pytest.mark.runtime
def test_weights_that_were_cut_off_are_bad_input(tmp_path):
    path = wide(tmp_path / "model.onnx", 2, save_as_external_data=True, location="weights", size_threshold=0)
    os.truncate(tmp_path / "weights", 100)
    said = run(path, status=2)
    assert "ONNX Runtime can't load it" in said
    assert "out of bounds" in said


@pytest.mark.runtime
def test_a_signal_ends_the_analysis_and_leaves_nothing(tmp_path):
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    path = models.SMALL.file(tmp_path)
    # A shell that starts the tests in the background has them ignore it.
    command = ["env", "--default-signal=INT", sys.executable, "-c", "from raddle_operator.cli import main; main()"]
    process = subprocess.Popen(
        [*command, "analyze", path], env={**os.environ, "TMPDIR": str(temporary)}, stdout=subprocess.PIPE
    )
    started = waiting.wait(lambda: psutil.Process(process.pid).children(recursive=True), "a process that runs it")
    assert list(temporary.iterdir())
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=60) == (b"", None)
    assert process.returncode == 128 + signal.SIGINT
    assert not [one for one in started if one.is_running()]
    assert not list(temporary.iterdir())


@pytest.mark.runtime
def test_a_model_that_fails_with_its_inputs_says_so(tmp_path):
    node = helper.make_node("Gather", ["table", "ids"], ["y"])
    table = numpy_helper.from_array(np.zeros((1, 2), np.float32), "table")
    path = saved(tmp_path / "gather.onnx", [node], [info("ids", [8], TensorProto.INT64)], [info("y", [8, 2])], [table])
    arrays = {"ids": np.full(8, 7)}
    with pytest.raises(measure.RunError, match="indices element out of data bounds"):
        measure.measured(path, arrays, [1])


SCRIPT = """
import sys, torch
class Forks(torch.nn.Module):
    def forward(self, x):
        other = torch.jit.fork(torch.relu, x)
        return torch.tanh(x) + torch.jit.wait(other)
torch.jit.save(torch.jit.script(Forks()), sys.argv[1])
from raddle_operator.cli import main
main(["analyze", sys.argv[1], "-o", "json"])
"""


@pytest.mark.runtime
def test_what_torchscript_forks_runs_side_by_side(tmp_path):
    (tmp_path / "forks.py").write_text(SCRIPT)
    python = torch_lab.installed().python
    minor = "import sys; print(*sys.version_info[:2], sep='.')"
    theirs, ours = (subprocess.check_output([one, "-c", minor], text=True).strip() for one in (python, sys.executable))
    if theirs != ours:
        pytest.skip(f"the Python that has torch is {theirs}, and can't have the packages of this {ours}")
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [python, tmp_path / "forks.py", tmp_path / "forks.pt"]
    ended = subprocess.run(list(map(str, command)), env=env, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    found = json.loads(ended.stdout)
    parallel = {"canPay": True, "gainAtMost": 1.5, "gainsOfRounds": [], "toldApart": None, "maxInterOp": 2, "forks": 1}
    assert found["parallel"] == parallel
    assert [kind["name"] for kind in found["kinds"]] == ["aten::add", "aten::relu", "aten::tanh"]

"""Real ONNX Runtime in C, C++, Java and Node.js under the preloaded library: the kernel says what became of the plan."""

import onnx
import pytest
from support.runtimes import native_lab, shim_lab
from support.runtimes.native_caller import CALLERS, started

from runtimes import libonnxruntime

pytestmark = pytest.mark.runtime

CPUS = shim_lab.two_cpus()

EVERYONE = (
    *CALLERS,
    ("cpp", "1.23.2"),
    ("plugin", "1.20.0"),
    ("java", "1.23.2"),
    *[("node", version) for version in native_lab.NODE_VERSIONS],
)
PLAN = "intra_op=2;inter_op=1;spinning=never;execution_mode=sequential"


def bounded(version):
    return tuple(map(int, version.split(".")[:2])) >= (1, 26)


@pytest.mark.parametrize(("kind", "version"), EVERYONE)
def test_every_session_gets_the_planned_threads_by_name_and_they_sleep(kind, version, proven):
    with started(kind, version, PLAN) as caller:
        own = caller.session("", name="own")
        default = caller.session(None, name="default")
        assert [thread.name for thread in caller.pool()] == ["ort-intra/1"] * 2
        assert len(own) >= 1
        assert len(default) >= 1
        assert caller.sleeps(caller.pool(), "own")
        said = f"raddle: onnxruntime {version}: intra_op=2, inter_op=1, spinning off, affinity none"
        if kind == "node":
            # The package's number is not always its library's.
            said = said.replace(version, caller.lines[0].split()[2].rstrip(":"))
        assert caller.lines == [said]
        assert caller.end() == 0
    proven(kind, version, "counts", "spinning")


@pytest.mark.parametrize(("kind", "version"), EVERYONE)
def test_without_a_plan_nothing_is_changed(kind, version):
    with started(kind, version, None) as caller:
        caller.session("intra=3 entry.session.intra_op.allow_spinning=0")
        assert caller.pool() == []
        assert caller.lines == []
        assert caller.end() == 0


@pytest.mark.parametrize(("kind", "version"), CALLERS)
def test_spinning_stays_where_the_plan_says_always(kind, version, proven):
    with started(kind, version, "intra_op=2;spinning=always") as caller:
        caller.session("")
        assert caller.spins(caller.pool(), 0.005)
    proven(kind, version, "spinning")


@pytest.mark.parametrize(("kind", "version"), CALLERS)
def test_spinning_is_bounded_where_the_release_can_bound_it(kind, version, proven):
    with started(kind, version, "intra_op=2;spinning=bounded;spin_duration_us=200") as short:
        short.session("")
        assert short.sleeps(short.pool())
        said = (
            "spinning 200 us"
            if bounded(version)
            else "spinning off (planned bounded, which onnxruntime supports since 1.26)"
        )
        assert said in short.lines[0]
    if bounded(version):
        with started(kind, version, "intra_op=2;spinning=bounded;spin_duration_us=150000") as long:
            long.session("")
            assert long.spins(long.pool(), 0.01)
    proven(kind, version, "spinning")


@pytest.mark.parametrize(("kind", "version"), CALLERS)
def test_a_parallel_plan_gives_inter_op_threads_of_their_own(kind, version, proven):
    with started(kind, version, "intra_op=2;inter_op=2;execution_mode=parallel;spinning=never") as caller:
        caller.session("")
        assert sorted(thread.name for thread in caller.pool()) == ["ort-inter/1", "ort-intra/1"]
        assert caller.sleeps(caller.pool())
    proven(kind, version, "execution mode")


@pytest.mark.parametrize(("kind", "version"), CALLERS)
def test_a_sequential_plan_makes_no_inter_op_threads_where_the_code_asks_for_parallel_and_is_overridden(
    kind, version, proven
):
    with started(kind, version, f"{PLAN};existing_values=override") as caller:
        caller.session("parallel=1 inter=4 intra=4")
        assert [thread.name for thread in caller.pool()] == ["ort-intra/1"]
    proven(kind, version, "execution mode")


@pytest.mark.parametrize(("kind", "version"), CALLERS)
def test_the_graph_level_is_the_planned_one(kind, version, proven, tmp_path):
    nodes = {}
    variables = {"CALLER_MODEL": str(native_lab.model("identities"))}
    for level in ("disable", "all"):
        written = tmp_path / f"{level}.onnx"
        with started(kind, version, f"intra_op=1;graph_optimization_level={level}", variables=variables) as caller:
            caller.session(f"optimized={written}")
        nodes[level] = len(onnx.load(written).graph.node)
    assert nodes["disable"] == 4
    assert nodes["all"] < 4
    with started(kind, version, "intra_op=1;graph_optimization_level=all", variables=variables) as caller:
        caller.session(f"graph=0 optimized={tmp_path / 'own.onnx'}")
    assert len(onnx.load(tmp_path / "own.onnx").graph.node) == 4
    proven(kind, version, "graph level")


def test_a_providers_own_threads_are_the_planned_ones(proven):
    """OpenVINO's pool, from an option that the plan adds to those that the code passes."""
    version = libonnxruntime.OPENVINO_VERSION

    def workers(plan, options):
        with started("c", version, f"intra_op=1;{plan}".rstrip(";")) as caller:
            caller.do("options a intra=1", f"provider a OpenVINO device_type=CPU {options}".rstrip())
            before = caller.tids()
            caller.do("session s a", "run s")
            return len(caller.tids() - before)

    default, planned = workers("", ""), workers("openvino.num_of_threads=1", "")
    assert planned == default - 1
    assert workers("openvino.num_of_threads=1", "num_of_threads=2") == default
    assert workers("openvino.num_of_threads=1;existing_values=override", "num_of_threads=2") == planned
    proven("c", version, "provider options")


def test_options_keep_their_own_values_for_a_second_session_and_a_copy(proven):
    """The application may use its object again, read it, copy it."""
    with started("c", "1.31.1", PLAN) as caller:
        caller.do("options a", "session s a", "run s", "clone a b", "session t b", "run t", "session u a", "run u")
        assert [thread.name for thread in caller.pool()] == ["ort-intra/1"] * 3
        caller.do("options c intra=3", "clone c d", "drop c", "session v d", "run v")
        assert len(caller.pool()) == 5
        caller.do("release s", "release t", "release u")
        assert len(caller.pool()) == 2
        caller.do("array w -", "run w")
        assert len(caller.pool()) == 3
        assert caller.end() == 0
    proven("c", "1.31.1", "counts")


@pytest.mark.parametrize(
    "plan",
    [
        PLAN,
        f"{PLAN};global_thread_pool=1;shared_allocator=1",
        f"intra_op=2;affinity=core;exclusive_cpus=2;cpus={CPUS[0]},{CPUS[1]}",
    ],
)
def test_sessions_of_many_threads_leave_nothing_behind(plan):
    with started("c", "1.31.1", plan) as caller:
        caller.session("", name="before")
        tids = caller.tids()
        caller.do("options a", "storm a 4")
        assert caller.tids() == tids
        caller.do("session s a", "run s")
        assert caller.end() == 0


def test_an_applications_own_thread_functions_are_left_alone():
    with started("c", "1.31.1", PLAN) as caller:
        assert [thread.name for thread in caller.session("own=1")] == ["application"]
        assert caller.end() == 0


def test_a_child_process_makes_its_own_sessions_after_a_fork():
    with started("c", "1.31.1", PLAN) as caller:
        caller.session("", name="parent")
        caller.do("fork", "env", "session s -", "run s")
        assert caller.end() == 0


def test_a_program_that_asks_the_library_by_handle_is_left_alone_and_runs():
    """Go, C# and Rust's load-dynamic find ORT so; a preloaded symbol is not asked for."""
    with started("handle", "1.31.1", PLAN) as caller:
        caller.session("intra=3 entry.session.intra_op.allow_spinning=0")
        assert (caller.pool(), caller.lines) == ([], [])
        assert caller.end() == 0

"""Real ONNX Runtime in C, C++, Java and Node.js under the preloaded library: the kernel says what became of the plan."""

import os

import native_lab
import onnx
import pytest
import shim_lab
from native_lab import Caller, program, under

from raddle import env

pytestmark = pytest.mark.runtime

CPUS = sorted(os.sched_getaffinity(0))[:2]
if len(CPUS) < 2:
    pytest.skip("needs two CPUs: a pool of one has no threads to count", allow_module_level=True)

C = [("c", version) for version in native_lab.VERSIONS]
CALLERS = [
    *C,
    ("cpp", "1.23.2"),
    ("cpp", "1.31.1"),
    ("plugin", "1.20.0"),
    ("java", "1.16.3"),
    ("java", "1.23.2"),
    ("java", "1.29.0"),
    ("node", "1.20.1"),
    ("node", "1.30.0"),
]
FEW = [*C, ("cpp", "1.31.1"), ("java", "1.16.3"), ("java", "1.29.0")]
GLOBAL = [*FEW, ("node", "1.30.0")]
RUNTIMES = {"java": "ONNX Runtime (Java)"}
PLAN = "intra=2;inter=1;spin=never;mode=sequential"
INTRA = "session.intra_op."


@pytest.fixture
def proven(proves):
    """proven(kind, version, control); Node.js has a row, and a shim, of its own."""

    def note(kind, version, *controls):
        for control in controls if kind != "node" else ():
            proves(RUNTIMES.get(kind, "ONNX Runtime (C/C++)"), version, control)

    return note


def started(kind, version, plan, *, variables=None, cpus=CPUS, make_env="env", before=None):
    """A caller under this plan that has its environment."""
    caller = Caller(program(kind, version), under(plan, **(variables or {})), cpus=cpus, before=before)
    caller.do(make_env)
    return caller


def bounded(version):
    return tuple(map(int, version.split(".")[:2])) >= (1, 26)


@pytest.mark.parametrize(("kind", "version"), CALLERS)
def test_every_session_gets_the_planned_threads_by_name_and_they_sleep(kind, version, proven):
    with started(kind, version, PLAN) as caller:
        own = caller.session("", name="own")
        default = caller.session(None, name="default")
        assert [thread.name for thread in caller.pool()] == ["ort-intra/1"] * 2
        assert len(own) >= 1
        assert len(default) >= 1
        assert caller.idle_cpu_s(caller.pool(), "own") < 0.004
        said = f"raddle: onnxruntime {version}: intra_op=2, inter_op=1, spinning off, affinity none"
        if kind == "node":
            # The package's number is not always its library's.
            said = said.replace(version, caller.lines[0].split()[2].rstrip(":"))
        assert caller.lines == [said]
        assert caller.end() == 0
    proven(kind, version, "counts", "spinning")


@pytest.mark.parametrize(("kind", "version"), CALLERS)
def test_without_a_plan_nothing_is_changed(kind, version):
    with started(kind, version, None) as caller:
        caller.session("intra=3 entry.session.intra_op.allow_spinning=0")
        assert caller.pool() == []
        assert caller.lines == []
        assert caller.end() == 0


@pytest.mark.parametrize(("kind", "version"), FEW)
def test_spinning_stays_where_the_plan_says_always(kind, version, proven):
    with started(kind, version, "intra=2;spin=always") as caller:
        caller.session("")
        assert caller.busy_cpu_s(caller.pool()) > 0.005
    proven(kind, version, "spinning")


@pytest.mark.parametrize(("kind", "version"), FEW)
def test_spinning_is_bounded_where_the_release_can_bound_it(kind, version, proven):
    with started(kind, version, "intra=2;spin=bounded;spin_us=200") as short:
        short.session("")
        assert short.idle_cpu_s(short.pool()) < 0.004
        said = (
            "spinning 200 us"
            if bounded(version)
            else "spinning off (planned bounded, which onnxruntime can since 1.26)"
        )
        assert said in short.lines[0]
    if bounded(version):
        with started(kind, version, "intra=2;spin=bounded;spin_us=150000") as long:
            long.session("")
            assert long.busy_cpu_s(long.pool()) > 0.01
    proven(kind, version, "spinning")


@pytest.mark.parametrize(("kind", "version"), FEW)
def test_a_parallel_plan_gives_inter_op_threads_of_their_own(kind, version, proven):
    with started(kind, version, "intra=2;inter=2;mode=parallel;spin=never") as caller:
        caller.session("")
        assert sorted(thread.name for thread in caller.pool()) == ["ort-inter/1", "ort-intra/1"]
        assert caller.idle_cpu_s(caller.pool()) < 0.004
    proven(kind, version, "execution mode")


@pytest.mark.parametrize(("kind", "version"), FEW)
def test_a_sequential_plan_makes_no_inter_op_threads_where_the_code_asks_for_parallel_and_is_overridden(
    kind, version, proven
):
    with started(kind, version, f"{PLAN};existing=override") as caller:
        caller.session("parallel=1 inter=4 intra=4")
        assert [thread.name for thread in caller.pool()] == ["ort-intra/1"]
    proven(kind, version, "execution mode")


@pytest.mark.parametrize(("kind", "version"), FEW)
def test_the_graph_level_is_the_planned_one(kind, version, proven, tmp_path):
    nodes = {}
    variables = {"CALLER_MODEL": str(native_lab.model("identities"))}
    for level in ("disable", "all"):
        written = tmp_path / f"{level}.onnx"
        with started(kind, version, f"intra=1;graph={level}", variables=variables) as caller:
            caller.session(f"optimized={written}")
        nodes[level] = len(onnx.load(written).graph.node)
    assert nodes["disable"] == 4
    assert nodes["all"] < 4
    with started(kind, version, "intra=1;graph=all", variables=variables) as caller:
        caller.session(f"graph=0 optimized={tmp_path / 'own.onnx'}")
    assert len(onnx.load(tmp_path / "own.onnx").graph.node) == 4
    proven(kind, version, "graph level")


@pytest.mark.parametrize(("kind", "version"), FEW)
def test_each_thread_has_a_core_of_its_own_in_an_exclusive_cpuset(kind, version, proven):
    with started(kind, version, "intra=2;spin=never;aff=core;excl=2") as caller:
        caller.session("", name="first")
        (first,) = caller.pool()
        assert first.cpus in map(str, CPUS)
        assert "affinity core" in caller.lines[0]
        # A second session's workers share no core with the first one's.
        caller.session("", name="second")
        (second,) = [thread for thread in caller.pool() if thread.tid != first.tid]
        assert second.cpus != first.cpus
        assert "pthread_setaffinity_np" not in caller.stderr
    proven(kind, version, "affinity")


@pytest.mark.parametrize(("kind", "version"), FEW)
def test_affinity_to_a_numa_node_is_its_whole_share(kind, version, proven):
    with started(kind, version, "intra=2;spin=never;aff=numa;excl=2") as caller:
        caller.session("")
        (thread,) = caller.pool()
        assert thread.cpus == f"{CPUS[0]}-{CPUS[1]}"
    proven(kind, version, "affinity")


@pytest.mark.parametrize("version", ["1.16.3", "1.31.1"])
def test_no_thread_is_pinned_where_the_cpus_are_not_the_exclusive_ones_or_the_code_pins(version):
    for plan, options in (
        ("aff=core;excl=4", ""),
        ("aff=core;excl=2;streams=2;workers=2", ""),
        ("aff=core", ""),
        ("aff=core;excl=2", f"entry.session.intra_op_thread_affinities={CPUS[0] + 1}-{CPUS[1] + 1} intra=2"),
    ):
        with started("c", version, f"intra=2;spin=never;{plan}") as caller:
            caller.session(options)
            assert {caller.thread(tid).cpus for tid in caller.tids()} == {f"{CPUS[0]}-{CPUS[1]}"}, plan


@pytest.mark.parametrize("version", native_lab.VERSIONS)
def test_a_pool_stays_on_the_cpus_that_the_process_was_given(version, proven):
    with started("c", version, "intra=2;spin=never", cpus=CPUS[:1]) as caller:
        caller.session()
        assert caller.pool() == []
        assert "intra_op=1 (planned 2, cut to cpuset of 1)" in caller.lines[0]
    with started("c", version, "intra=2;min=2;spin=never", cpus=CPUS[:1]) as caller:
        caller.session()
        assert [thread.cpus for thread in caller.pool()] == [str(CPUS[0])]
    proven("c", version, "counts")


@pytest.mark.parametrize(("kind", "version"), [("c", "1.31.1"), ("java", "1.29.0"), ("node", "1.30.0")])
def test_a_plan_that_is_too_big_for_the_quota_is_cut(kind, version, proven):
    with (
        shim_lab.cgroup("cpu", cfs_quota_us="50000", cfs_period_us="100000") as join,
        started(kind, version, "intra=2;inter=1;spin=bounded;spin_us=200", before=join) as caller,
    ):
        caller.session("")
        assert caller.pool() == []
        assert "intra_op=1 (planned 2, cut to quota 0.5), inter_op=1, spinning off" in caller.lines[0]
        assert caller.end() == 0
    proven(kind, version, "counts")


@pytest.mark.parametrize(("kind", "version"), GLOBAL)
def test_one_global_pool_serves_every_session_and_sleeps(kind, version, proven):
    with started(kind, version, f"{PLAN};global=1") as caller:
        caller.session("", name="s")
        caller.session(None, name="t")
        caller.session("", name="u")
        assert [thread.name for thread in caller.pool()] == ["ort-gintra/1"]
        assert caller.idle_cpu_s(caller.pool()) < 0.004
        assert caller.end() == 0
    proven(kind, version, "global pool")


@pytest.mark.parametrize(("kind", "version"), GLOBAL)
def test_a_session_that_asks_for_its_own_pool_still_loads_beside_a_global_one(kind, version, proven):
    with started(kind, version, f"{PLAN};global=1") as caller:
        caller.session("", name="s")
        caller.session("intra=3", name="own")
        caller.do("run s")
        assert "ort-gintra/1" in {thread.name for thread in caller.pool()}
    proven(kind, version, "global pool")


@pytest.mark.parametrize(("kind", "version"), [call for call in GLOBAL if call[0] != "node"])
def test_a_global_pool_of_the_codes_own_gets_the_plan_where_it_sets_nothing(kind, version, proven):
    with started(kind, version, PLAN, make_env="env intra=0") as caller:
        caller.session("shared=1")
        assert [thread.name for thread in caller.pool()] == ["ort-gintra/1"]
        assert caller.idle_cpu_s(caller.pool()) < 0.004
    with started(kind, version, PLAN, make_env="env intra=3 spin=0") as caller:
        caller.session("shared=1")
        assert sorted(thread.name for thread in caller.pool()) == ["ort-gintra/1", "ort-gintra/2"]
    proven(kind, version, "global pool", "existing values")


@pytest.mark.parametrize("version", ["1.16.3", "1.31.1"])
def test_a_global_pool_is_pinned_like_any_other(version, proven):
    with started("c", version, "intra=2;spin=never;global=1;aff=core;excl=2") as caller:
        caller.session("")
        assert [thread.cpus in map(str, CPUS) for thread in caller.pool()] == [True]
    proven("c", version, "affinity")


@pytest.mark.parametrize(("kind", "version"), FEW)
@pytest.mark.parametrize("existing", ["respect", "override"])
def test_a_count_in_the_code_wins_unless_the_policy_overrides(kind, version, existing, proven):
    with started(kind, version, f"intra=2;spin=never;existing={existing}") as caller:
        workers = []
        for name, options in (("zero", "intra=0"), ("minus", "intra=-1"), ("three", "intra=3"), ("one", "intra=1")):
            before = len(caller.pool())
            caller.session(options, name=name)
            workers.append(len(caller.pool()) - before)
    assert workers == ([1, 1, 2, 0] if existing == "respect" else [1, 1, 1, 1])
    proven(kind, version, "existing values")


@pytest.mark.parametrize(("kind", "version"), FEW)
def test_spinning_in_the_code_wins_unless_the_policy_overrides(kind, version, proven):
    own = f"entry.{INTRA}allow_spinning=1"
    with started(kind, version, PLAN) as caller:
        caller.session(own)
        assert caller.busy_cpu_s(caller.pool()) > 0.005
        assert "spinning as in the code" in caller.lines[0]
    with started(kind, version, f"{PLAN};existing=override") as caller:
        caller.session(own)
        assert caller.idle_cpu_s(caller.pool()) < 0.004
    proven(kind, version, "existing values")


@pytest.mark.parametrize(
    ("kind", "version"), [("c", "1.16.3"), ("c", "1.31.1"), ("java", "1.16.3"), ("java", "1.29.0")]
)
@pytest.mark.parametrize("existing", ["respect", "override"])
@pytest.mark.parametrize(("value", "respected"), [("", 1), ("2", 1), ("3", 2)])
def test_a_count_in_the_environment_wins_unless_the_policy_overrides(kind, version, existing, value, respected, proven):
    variables = {env.ORT_INTRA: value}
    with started(kind, version, f"intra=2;spin=never;existing={existing}", variables=variables) as caller:
        caller.session("")
        assert len(caller.pool()) == (respected if existing == "respect" else 1)
        assert ("(set in the environment)" in caller.lines[0]) == (existing == "respect" and value == "3")
    proven(kind, version, "existing values")


@pytest.mark.parametrize(("kind", "version"), FEW)
def test_variables_that_are_all_empty_change_nothing(kind, version, proven):
    """As in a copied pod, whose annotations are gone."""
    empty = dict.fromkeys((env.PLAN, env.ORT_INTRA, env.ORT_INTER, env.OMP, "RADDLE_LOG", "RADDLE_REPORT"), "")
    with started(kind, version, None, variables=empty) as caller:
        assert len(caller.session("intra=3")) == 2
        assert (caller.pool(), caller.lines) == ([], [])
    proven(kind, version, "existing values")


@pytest.mark.parametrize("version", native_lab.NODE_VERSIONS)
def test_beside_nodes_own_shim_there_is_one_plan_and_one_line(version, tmp_path):
    shim = shim_lab.mount(tmp_path) / "node" / "raddle.cjs"
    with started("node", version, PLAN, variables={"NODE_OPTIONS": f"--require={shim}"}) as caller:
        caller.session("")
        assert [thread.name for thread in caller.pool()] == ["ort-intra/1"]
        assert caller.idle_cpu_s(caller.pool()) < 0.004
        (line,) = caller.lines
        assert "intra_op=2, inter_op=1, spinning off" in line


def test_beside_pythons_own_shim_it_changes_nothing(tmp_path):
    """The wheel's ORT is inside its extension module, where no preloaded symbol reaches."""
    variables = under(PLAN, **shim_lab.python_path(shim_lab.mount(tmp_path)))
    found = shim_lab.probe(shim_lab.THIS_PYTHON, native_lab.model(), [{}, {"intra": 3}], env=variables)
    assert [session["pool"] for session in found["sessions"]] == [1, 2]
    assert len(found["stderr"].splitlines()) == 1


def test_a_providers_own_threads_are_the_planned_ones(proven):
    """OpenVINO's pool, from an option that the plan adds to those that the code passes."""
    version = native_lab.OPENVINO_VERSION

    def workers(plan, options):
        with started("c", version, f"intra=1;{plan}".rstrip(";")) as caller:
            caller.do("options a intra=1", f"provider a OpenVINO device_type=CPU {options}".rstrip())
            before = caller.tids()
            caller.do("session s a", "run s")
            return len(caller.tids() - before)

    default, planned = workers("", ""), workers("openvino.num_of_threads=1", "")
    assert planned == default - 1
    assert workers("openvino.num_of_threads=1", "num_of_threads=2") == default
    assert workers("openvino.num_of_threads=1;existing=override", "num_of_threads=2") == planned
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


@pytest.mark.parametrize("plan", [PLAN, f"{PLAN};global=1;shared_arena=1", "intra=2;aff=core;excl=2"])
def test_sessions_of_many_threads_leave_nothing_behind(plan):
    with started("c", "1.31.1", plan) as caller:
        caller.session("", name="before")
        tids = caller.tids()
        caller.do("options a", "storm a 4")
        assert caller.tids() == tids
        caller.do("session s a", "run s")
        assert caller.end() == 0


def test_two_processes_of_one_program_share_the_cpus_and_neither_pins_its_threads():
    """Workers that somebody started beside each other, and of which the plan knows nothing."""
    with (
        started("c", "1.31.1", "intra=2;aff=core;excl=2") as one,
        started("c", "1.31.1", "intra=2;aff=core;excl=2") as two,
    ):
        one.session("")
        two.session("")
        assert (one.pool(), two.pool()) == ([], [])
        lines = one.lines + two.lines
        # The first of them speaks for both.
        assert len(lines) == 1
        assert "intra_op=1 (planned 2, cut to cpuset of 2, shared by 2 workers)" in lines[0]


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

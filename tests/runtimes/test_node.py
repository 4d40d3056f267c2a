"""What a plan says is what a Node.js process does: every control, in real versions of onnxruntime-node."""

import re
import shutil

import pytest
from support.runtimes import native_lab, node_lab, shim_lab
from support.runtimes.node_lab import (
    BEFORE_EXTRA,
    NEWEST,
    OLDEST,
    RUNTIME,
    VERSIONS,
    application,
    convolution,
    plan,
    run,
    sums,
)

from raddle.cpus import cpuset

pytestmark = pytest.mark.runtime


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("shape", node_lab.SHAPES)
def test_every_shape_of_process_has_the_planned_threads(proves, shape, version):
    seen = run(application(version) / shape, {}, {"interOpNumThreads": 0}, text=plan())
    # The caller is one of the two, and the workers may run where the process may.
    assert [session["cpus"] for session in seen.sessions] == [[cpuset.format_list(cpuset.of(shim_lab.two_cpus()))]] * 2
    assert len(seen.lines) == 1
    assert seen.lines[0].startswith(f"raddle: onnxruntime {version}: intra_op=2, inter_op=1, spinning ")
    proves(RUNTIME, version, "counts")


@pytest.mark.parametrize("version", VERSIONS)
def test_a_plan_of_more_threads_than_fit_is_cut_down_with_a_reason(version):
    seen = run(application(version) / "app.cjs", {}, text=plan(intra_op=16), buffer=True)
    assert seen.threads == [1]
    assert "intra_op=2 (planned 16, cut to CPU affinity of 2)" in seen.lines[0]


@pytest.mark.parametrize("version", VERSIONS)
def test_parallel_mode_has_a_second_pool(proves, version):
    parallel = run(application(version) / "app.cjs", {}, text=plan(execution_mode="parallel", inter_op=2))
    sequential = run(
        application(version) / "app.cjs",
        {"executionMode": "parallel", "interOpNumThreads": 2},
        text=plan(existing_values="override"),
    )
    assert (parallel.threads, sequential.threads) == ([2], [1])
    proves(RUNTIME, version, "execution mode")


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(("level", "nodes"), [("disable", 3), ("basic", 2), ("extended", 1)])
def test_the_graph_is_optimized_to_the_planned_level(proves, version, level, nodes):
    """The default level puts the second node back, in another form."""
    verbose = {"logSeverityLevel": 0}
    planned = run(application(version) / "app.cjs", verbose, text=plan(graph_optimization_level=level), **convolution())
    stock = node_lab.stock(application(version) / "app.cjs", verbose, **convolution())
    assert [re.findall(r"Number of nodes: (\d+)", seen.stderr) for seen in (planned, stock)] == [[str(nodes)], ["2"]]
    proves(RUNTIME, version, "graph level")


@pytest.mark.parametrize("version", VERSIONS)
def test_the_arena_is_made_only_where_the_plan_leaves_it(proves, version):
    def kept_mib(**fields):
        """Memory that a run with 16 MiB of values in between leaves behind."""
        return run(application(version) / "app.cjs", {}, text=plan(**fields), **sums()).sessions[0]["keptMiB"]

    assert kept_mib() > 15
    assert kept_mib(cpu_mem_arena=1) > 15
    assert kept_mib(cpu_mem_arena=0) < 8
    proves(RUNTIME, version, "memory")


# --- spinning -------------------------------------------------------------------------------------------------------


def idle_ms(version, text, *, options=None, **arguments):
    """CPU time in the pauses between six runs."""
    seen = run(application(version) / "app.cjs", options or {}, text=text, idle=True, **arguments)
    return seen.sessions[0]["idleMs"], seen


@pytest.mark.parametrize("version", VERSIONS)
def test_workers_spin_only_as_planned(proves, version):
    stock, _ = idle_ms(version, None)
    always, _ = idle_ms(version, plan(spinning="always"))
    never, _ = idle_ms(version, plan(spinning="never"))
    bounded, seen = idle_ms(version, plan(spinning="bounded", spin_duration_us=100))
    assert always * 2 > stock
    assert never * 3 < always
    assert bounded * 3 < always
    assert ("spinning 100 us" if version == NEWEST else "spinning off (planned bounded, which") in seen.lines[0]
    proves(RUNTIME, version, "spinning")


@pytest.mark.parametrize(
    "extra",
    [{"session": {"intra_op": {"allow_spinning": "1"}}}, {"session.intra_op.allow_spinning": "1"}],
    ids=["nested", "flat"],
)
def test_spinning_that_the_code_asks_for_stays_under_respect_only(extra):
    respected, seen = idle_ms(NEWEST, plan(), options={"extra": extra})
    overridden, _ = idle_ms(NEWEST, plan(existing_values="override"), options={"extra": extra})
    assert "spinning as in the code (set in the code)" in seen.lines[0]
    assert overridden * 3 < respected


def test_the_codes_other_entries_stay_beside_ours():
    """This one makes ONNX Runtime refuse the session, so it is there."""
    refused = {"extra": {"session": {"dynamic_block_base": "x"}}}
    seen = run(application(NEWEST) / "app.cjs", refused, text=plan())
    stock = run(application(NEWEST) / "app.cjs", refused)
    assert seen.sessions == stock.sessions
    assert "error" in stock.sessions[0]


# --- affinity -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("kind", ["numa", "core"])
def test_on_exclusive_cpus_each_worker_is_tied_as_planned(proves, version, kind):
    first, second = shim_lab.two_cpus()
    both = [cpuset.format_list(cpuset.of((first, second)))]
    text = plan(affinity=kind, exclusive_cpus=2, smt=1, cpus=f"{first},{second}")
    seen = run(application(version) / "app.cjs", {}, {}, text=text)
    # The caller has the first. A second session never shares a core of the first.
    expected, later = (both, both) if kind == "numa" else ([str(second)], both)
    assert [session["cpus"] for session in seen.sessions] == [expected, later]
    assert f"affinity {kind}" in seen.lines[0]
    assert "pthread_setaffinity_np" not in seen.stderr
    proves(RUNTIME, version, "affinity")


def test_a_string_of_the_codes_brings_its_own_count_or_goes_with_it():
    one = min(shim_lab.two_cpus())
    options = {"extra": {"session": {"intra_op_thread_affinities": f"{one + 1};{one + 1}"}}}
    respected = run(application(NEWEST) / "app.cjs", options, text=plan())
    overridden = run(application(NEWEST) / "app.cjs", options, text=plan(existing_values="override"))
    assert respected.sessions[0]["cpus"] == [str(one)] * 2
    assert overridden.sessions[0]["cpus"] == [cpuset.format_list(cpuset.of(shim_lab.two_cpus()))]
    assert "affinity none (the code's value is overridden)" in overridden.lines[0]


# --- where it doesn't work ------------------------------------------------------------------------------------------


def test_what_no_session_can_be_made_of_fails_as_it_would_without_us():
    seen = run(application(NEWEST) / "app.cjs", {}, text=plan(), model="/nowhere.onnx")
    stock = run(application(NEWEST) / "app.cjs", {}, model="/nowhere.onnx")
    assert seen.sessions == stock.sessions
    assert "error" in stock.sessions[0]
    assert seen.lines == []


def test_results_are_the_same():
    values = {
        session["first"]
        for text in (None, plan())
        for session in run(application(NEWEST) / "app.cjs", text=text).sessions
    }
    assert len(values) == 1


# --- what sessions share --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
def test_all_sessions_of_a_process_have_one_pool_where_the_plan_says_so(proves, version):
    """Its threads come with the environment, before the first session."""
    seen = run(application(version) / "app.cjs", {}, {}, {"intraOpNumThreads": 3}, text=plan(global_thread_pool=1))
    assert seen.threads == [0, 0, 2]
    assert seen.found[0]["names"].count("ort-gintra/1") == 1
    assert "intra_op=2 (the process's global thread pool)" in seen.lines[0]
    proves(RUNTIME, version, "global pool")


@pytest.mark.parametrize("version", VERSIONS)
def test_sessions_share_one_arena_where_the_plan_says_so(proves, version):
    """Each needs 16 MiB for a run, and finds what the one before has left."""

    def kept_mib(**fields):
        sessions = run(application(version) / "app.cjs", *[{}] * 8, text=plan(**fields), **sums()).sessions
        return sum(session["keptMiB"] for session in sessions)

    assert kept_mib() > 2 * kept_mib(shared_allocator=1)
    proves(RUNTIME, version, "memory")


# --- providers ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [version for version in VERSIONS if version != OLDEST])
def test_options_of_a_provider_that_the_code_asks_for_are_the_planned_ones(proves, tmp_path, version):
    """The provider itself is a stand-in. What loads it was in the package before its install script came to fetch both."""
    for release in (BEFORE_EXTRA, version):
        node_lab.bundle(release, tmp_path)
    flags = ("-std=c++17", "-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror")
    provider = native_lab.built("cuda-provider.so", "cuda_provider.cc", "g++", *flags)
    shutil.copy(provider, tmp_path / "libonnxruntime_providers_cuda.so")
    told = tmp_path / "told"

    def run_with(text):
        told.write_text("")
        variables = {"PROVIDER_OPTIONS": str(told)}
        options = {"executionProviders": [{"name": "cuda", "deviceId": 0}]}
        program = application(version) / "bundled.cjs"
        seen = run(program, options, text=text, env=variables, bundle=str(tmp_path), check=False)
        return told.read_text().split(), [line for line in seen.stderr.splitlines() if line.startswith("Error: ")]

    planned, failure = run_with(plan(cuda__cudnn_conv_algo_search="HEURISTIC"))
    assert planned == ["cudnn_conv_algo_search=HEURISTIC"]
    assert ([], failure) == run_with(None)
    proves(RUNTIME, version, "provider options")

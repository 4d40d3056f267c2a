"""Whose value wins in Node.js: the code's, the environment's or the plan's, as the policy's existingValues says."""

import pytest
from support.runtimes import shim_lab
from support.runtimes.node_lab import NEWEST, RUNTIME, VERSIONS, application, convolution, plan, run

from raddle import env

pytestmark = pytest.mark.runtime

# What the code sets: nothing, 0, a count of its own, and -1, which the binding refuses before anybody sees it.
CODE = ({}, {"intraOpNumThreads": 0}, {"intraOpNumThreads": 3}, {"intraOpNumThreads": -1})
REFUSED = None
# The plan says 4 threads, and a session's new threads are one less than its count.
TABLE = [
    ("respect", {}, [3, 3, 2, REFUSED]),
    ("respect", {env.ORT_INTRA: "4"}, [3, 3, 2, REFUSED]),
    ("respect", {env.ORT_INTRA: "2"}, [1, 1, 2, REFUSED]),
    ("respect", {env.ORT_INTRA: "0"}, [3, 3, 2, REFUSED]),
    ("override", {}, [3, 3, 3, REFUSED]),
    ("override", {env.ORT_INTRA: "4"}, [3, 3, 3, REFUSED]),
    ("override", {env.ORT_INTRA: "2"}, [3, 3, 3, REFUSED]),
]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(("existing", "environ", "threads"), TABLE)
def test_counts_in_code_and_environment(proves, version, existing, environ, threads):
    text = plan(intra=4, min=4, existing=existing)
    assert run(application(version) / "app.cjs", *CODE, text=text, env=environ).threads == threads
    proves(RUNTIME, version, "existing values")


# Both counts are the one that OMP_NUM_THREADS has, which Raddle has put there; but for a count that isn't, one that
# somebody else put there, and one below the plan's: where it is the code's own after all, it gets no more.
@pytest.mark.parametrize(
    ("fields", "environ", "code", "threads"),
    [
        ({"omp": 4}, {env.OMP: "4"}, 4, 1),
        ({"env_intra": 3}, {env.ORT_INTRA: "3"}, 3, 1),
        ({"omp": 4}, {env.OMP: "4"}, 3, 2),
        ({"omp": 4}, {env.OMP: "3"}, 3, 2),
        ({"omp": 1}, {env.OMP: "1"}, 1, 0),
        # The count without a shim differs from that with one.
        ({"env_intra": 1}, {env.ORT_INTRA: "1"}, 0, 1),
        ({"env_intra": 1}, {env.ORT_INTRA: "3"}, 0, 2),
    ],
)
def test_a_count_that_the_code_copies_from_raddles_own_variable_is_the_plans(fields, environ, code, threads):
    counts = {"intraOpNumThreads": code, "interOpNumThreads": code}
    assert run(application(NEWEST) / "app.cjs", counts, text=plan(**fields), env=environ).threads == [threads]


# Two CPUs; the threads that want one are the caller and the pool's workers, however many those came to be.
@pytest.mark.parametrize(
    ("options", "environ", "stopped"),
    [
        ({}, {}, False),
        ({"intraOpNumThreads": 3}, {}, True),
        ({}, {env.ORT_INTRA: "8"}, True),
        ({"executionMode": "parallel", "interOpNumThreads": 2}, {}, True),
    ],
)
def test_spinning_is_decided_by_the_pools_that_there_are(options, environ, stopped):
    text = plan(spin="bounded", spin_us=200, inter=None, mode=None)
    (line,) = run(application(NEWEST) / "app.cjs", options, text=text, env=environ).lines
    assert ("spinning off (planned bounded, stopped: cpuset of 2)" in line) == stopped
    assert ("spinning 200 us" in line) != stopped


# Endless is ONNX Runtime's own spinning: nothing is said to it, in versions that can bound it and in others.
@pytest.mark.parametrize("version", VERSIONS[1:])
@pytest.mark.parametrize(("excl", "endless"), [(2, True), (1, False), (3, False)])
def test_on_the_cpus_that_the_plan_calls_exclusive_and_no_others_spinning_has_no_end(version, excl, endless):
    text = plan(spin="bounded", spin_us=200, excl=excl, excl_always=1)
    (line,) = run(application(version) / "app.cjs", {}, text=text).lines
    assert ("spinning default" in line) == endless


def test_a_plan_may_be_above_the_quota_and_never_above_the_cpuset():
    with shim_lab.cgroup("cpu", cfs_quota_us="100000") as enter:
        counts = [
            run(application(NEWEST) / "app.cjs", {}, text=plan(**fields), before=enter).threads
            for fields in ({}, {"over_quota": 1}, {"over_quota": 1, "intra": 4})
        ]
    assert counts == [[0], [1], [1]]


def test_what_the_binding_refuses_it_refuses_with_the_same_words():
    refused = (
        {"intraOpNumThreads": -1},
        {"intraOpNumThreads": "2"},
        {"executionMode": "PARALLEL"},
        {"extra": {"a": 1}},
    )
    respected = run(application(NEWEST) / "app.cjs", *refused, text=plan(mode="parallel"))
    assert respected.sessions == run(application(NEWEST) / "app.cjs", *refused).sessions


@pytest.mark.parametrize("existing", ["respect", "override"])
@pytest.mark.parametrize("version", VERSIONS)
def test_the_mode_that_code_names_stays_under_respect(version, existing):
    text = plan(mode="parallel", inter=2, existing=existing)
    seen = run(application(version) / "app.cjs", {"executionMode": "sequential"}, {}, text=text)
    assert seen.threads == ([1, 2] if existing == "respect" else [2, 2])


def test_code_that_asks_for_parallel_under_a_sequential_plan_gets_a_second_pool_as_large_as_the_first():
    """One inter-op thread, which the plan has for sequential sessions, would quietly turn it off."""
    seen = run(application(NEWEST) / "app.cjs", {"executionMode": "parallel"}, text=plan())
    assert seen.threads == [2]


def test_the_graph_level_that_code_names_stays_under_respect():
    options = {"graphOptimizationLevel": "all", "logSeverityLevel": 1}

    def fused(existing):
        seen = run(
            application(NEWEST) / "app.cjs", options, text=plan(graph="basic", existing=existing), **convolution()
        )
        return "ConvActivationFusion modified: 1" in seen.stderr

    assert fused("respect")
    assert not fused("override")


@pytest.mark.parametrize("version", VERSIONS)
def test_every_variable_of_ours_resolving_to_nothing_leaves_the_process_as_it_was(version):
    """A pod whose annotations somebody removed: the kubelet gives empty values."""
    empty = {env.PLAN: "", env.ORT_INTRA: "", env.ORT_INTER: "", "RADDLE_LOG": ""}
    seen = run(application(version) / "app.cjs", {}, {"intraOpNumThreads": 3}, text="", env=empty)
    stock = run(application(version) / "app.cjs", {}, {"intraOpNumThreads": 3})
    assert (seen.threads, seen.lines) == (stock.threads, [])


@pytest.mark.parametrize("providers", [{}, {"executionProviders": ["cpu"]}, {"executionProviders": [{"name": "cpu"}]}])
def test_the_rest_of_the_codes_options_reaches_the_binding(providers):
    """The program freezes its options, or onnxruntime-common hands on a Proxy; the plan's are in front all the same."""
    options = {"intraOpNumThreads": 3, **providers}
    refused = {"logId": 1, **providers}
    seen = run(application(NEWEST) / "app.cjs", options, refused, text=plan(arena=0))
    assert seen.threads == [2, None]
    assert "logId must be a string" in seen.sessions[1]["error"]

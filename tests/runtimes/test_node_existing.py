"""Whose value wins in Node.js: the code's, the environment's or the plan's, as the policy's existingValues says."""

import pytest
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
    text = plan(intra_op=4, min_intra_op=4, existing_values=existing)
    assert run(application(version) / "app.cjs", *CODE, text=text, env=environ).threads == threads
    proves(RUNTIME, version, "existing values")


@pytest.mark.parametrize("environ", [{}, {env.ORT_INTRA: "1"}])
def test_a_count_that_code_sets_in_the_environment_is_its_own_also_where_it_is_what_raddle_sets(environ):
    text = plan(intra_op=2, min_intra_op=2, intra_op_without_shim=1)
    folder = application(NEWEST)
    assert run(folder / "app.cjs", {}, text=text, env=environ).threads == [0 if environ else 1]
    hook = ["--require", str(folder / "setting.cjs")]
    assert run(folder / "app.cjs", {}, text=text, env=environ, arguments=hook).threads == [0]


def test_what_the_binding_refuses_it_refuses_with_the_same_words():
    refused = (
        {"intraOpNumThreads": -1},
        {"intraOpNumThreads": "2"},
        {"executionMode": "PARALLEL"},
        {"extra": {"a": 1}},
    )
    respected = run(application(NEWEST) / "app.cjs", *refused, text=plan(execution_mode="parallel"))
    assert respected.sessions == run(application(NEWEST) / "app.cjs", *refused).sessions


@pytest.mark.parametrize("existing", ["respect", "override"])
@pytest.mark.parametrize("version", VERSIONS)
def test_the_mode_that_code_names_stays_under_respect(version, existing):
    text = plan(execution_mode="parallel", inter_op=2, existing_values=existing)
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
            application(NEWEST) / "app.cjs",
            options,
            text=plan(graph_optimization_level="basic", existing_values=existing),
            **convolution(),
        )
        return "ConvActivationFusion modified: 1" in seen.stderr

    assert fused("respect")
    assert not fused("override")


@pytest.mark.parametrize("providers", [{}, {"executionProviders": ["cpu"]}, {"executionProviders": [{"name": "cpu"}]}])
def test_the_rest_of_the_codes_options_reaches_the_binding(providers):
    """The program freezes its options, or onnxruntime-common hands on a Proxy; the plan's are in front all the same."""
    options = {"intraOpNumThreads": 3, **providers}
    refused = {"logId": 1, **providers}
    seen = run(application(NEWEST) / "app.cjs", options, refused, text=plan(cpu_mem_arena=0))
    assert seen.threads == [2, None]
    assert "logId must be a string" in seen.sessions[1]["error"]

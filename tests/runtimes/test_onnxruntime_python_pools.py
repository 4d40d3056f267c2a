"""Counts, execution mode, graph level and spinning, each in every release: threads, models and CPU time are looked at."""

import pytest
from support.runtimes import ort_lab, shim_lab
from support.runtimes.ort_lab import ROW, at_least, version

from runtimes import pythons

pytestmark = ort_lab.MARKS

INTRA, INTER = "session.intra_op.", "session.inter_op."
IDLE_S = 0.25
# A pool that spins as ONNX Runtime does by itself burns 3 to 500 ms after each answer, by the CPU; one that may not none.
BURNS_S, FEWER = 0.002, 4
PLAIN = {"idle_s": IDLE_S}


@pytest.fixture(scope="module", params=pythons.RELEASES)
def release(request):
    return request.param


@pytest.fixture(scope="module")
def seen(release, lab):
    """What became of each plan: {"never": ..., ...}; each makes the sessions that its test asks for."""

    def optimized(level, **options):
        path = str(lab.folder / f"{release}-{level}.onnx")
        return {"model": str(lab.levels), "optimized": path, "idle_s": 0, **options}

    profile = {"profile": str(lab.folder / release), "model": str(lab.levels), "idle_s": 0}
    stopping = "session.force_spinning_stop=1"
    return lab.probes(
        release,
        {
            "never": (
                "intra_op=2;inter_op=2;execution_mode=parallel;graph_optimization_level=disable;spinning=never",
                # The application's own options object, then default options.
                [PLAIN, None, optimized("disable"), profile],
            ),
            "bounded": (
                "intra_op=2;inter_op=1;execution_mode=sequential;graph_optimization_level=basic;spinning=bounded;spin_duration_us=300",
                [PLAIN, optimized("basic"), profile],
            ),
            "always": ("intra_op=2;graph_optimization_level=extended;spinning=always", [PLAIN, optimized("extended")]),
            "stopping": (f"intra_op=2;spinning=always;{stopping};{INTRA}spin_backoff_max=8", [PLAIN]),
            "override": (
                "intra_op=2;graph_optimization_level=basic;spinning=never;existing_values=override",
                [optimized("code", graph="ORT_DISABLE_ALL")],
            ),
        },
        idle_s=IDLE_S,
    )


def spinning(found):
    """The three entries of the intra-op pool."""
    entries = found["effective"]["entries"]
    return {key[len(INTRA) :]: value for key, value in entries.items() if key.startswith(INTRA)}


@pytest.fixture(scope="module")
def burnt_s(seen):
    """CPU time after an answer where workers always spin."""
    return seen["always"]["sessions"][0]["idle_cpu_s"]


def test_a_pool_has_exactly_the_planned_threads(release, seen, proves):
    proves(ROW, version(release), "counts")
    # One thread of each pool is the caller.
    assert [session["pool"] for session in seen["never"]["sessions"]] == [1 + 1] * 4
    assert [session["pool"] for session in seen["bounded"]["sessions"]] == [1] * 3


def test_it_is_said_in_one_line(release, seen):
    said = "intra_op=2, inter_op=2, spinning off, affinity none"
    assert seen["never"]["stderr"] == f"raddle: onnxruntime {version(release)}: {said}\n"


def test_nodes_run_on_the_inter_op_pool_only_in_parallel_mode(release, seen, proves):
    proves(ROW, version(release), "execution mode")
    assert seen["bounded"]["sessions"][-1]["nodes_run_by_caller"]
    assert not seen["never"]["sessions"][-1]["nodes_run_by_caller"]


@pytest.mark.parametrize(("plan", "level"), [("never", "disable"), ("bounded", "basic"), ("always", "extended")])
def test_the_model_is_optimized_as_far_as_the_plan_says(release, lab, seen, plan, level, proves):
    proves(ROW, version(release), "graph level")
    assert seen[plan]["records"][0]["effective"]["graphOptimizationLevel"] == level
    assert shim_lab.operators(lab.folder / f"{release}-{level}.onnx") == shim_lab.LEVELS[level]


def test_override_optimizes_further_than_the_code_says(release, lab, seen):
    assert seen["override"]["sessions"][0]["after"]["graph"] == "ORT_DISABLE_ALL"
    assert shim_lab.operators(lab.folder / f"{release}-code.onnx") == shim_lab.LEVELS["basic"]


def test_workers_that_may_not_spin_sleep_after_an_answer(release, seen, burnt_s, proves):
    proves(ROW, version(release), "spinning")
    own, default, *_ = seen["never"]["sessions"]
    assert spinning(own) == spinning(default) == {"allow_spinning": "0"}
    assert own["effective"]["entries"][INTER + "allow_spinning"] == "0"
    assert max(own["idle_cpu_s"], default["idle_cpu_s"]) < burnt_s / FEWER


def test_workers_that_always_spin_burn_cpu_time_after_an_answer(release, seen, burnt_s, proves):
    proves(ROW, version(release), "spinning")
    assert spinning(seen["always"]["sessions"][0]) == {}
    assert burnt_s > BURNS_S


def test_bounded_spinning_is_short_or_none_where_the_release_can_not_bound_it(release, seen, burnt_s, proves):
    proves(ROW, version(release), "spinning")
    found, record = seen["bounded"]["sessions"][0], seen["bounded"]["records"][0]
    assert found["idle_cpu_s"] < burnt_s / FEWER
    if at_least(release, "1.26"):
        assert spinning(found) == {"spin_duration_us": "300"}
        assert (record["effective"]["spinning"], record["effective"]["spinDurationUs"]) == ("bounded", 300)
    else:
        assert spinning(found) == {"allow_spinning": "0"}
        assert record["because"]["spinning"] == "planned bounded, which onnxruntime supports since 1.26"


def test_spinning_stops_with_the_last_run_where_that_is_planned(release, seen, burnt_s, proves):
    proves(ROW, version(release), "spinning")
    found, record = seen["stopping"]["sessions"][0], seen["stopping"]["records"][0]
    assert found["effective"]["entries"]["session.force_spinning_stop"] == "1"
    assert found["idle_cpu_s"] < burnt_s / FEWER
    if at_least(release, "1.26"):
        assert spinning(found) == {"spin_backoff_max": "8"}
        assert record["effective"]["configEntries"] == {
            INTRA + "spin_backoff_max": "8",
            "session.force_spinning_stop": "1",
        }
    else:
        assert record["because"]["configEntries"] == INTRA + "spin_backoff_max: onnxruntime supports it since 1.26"

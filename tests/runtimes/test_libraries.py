"""Real libraries that have no variable for their threads: the plan's count where the code says none."""

import json
import os

import pytest
from support.runtimes import libraries_lab
from support.runtimes.libraries_lab import OWN, said

from raddle import env

pytestmark = pytest.mark.runtime

CPUS = len(os.sched_getaffinity(0))
PLAN = "v=1;intra=1;omp=1;spin=never"
OVERRIDE = PLAN + ";existing=override"


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    return libraries_lab.write_models(tmp_path_factory.mktemp("models"))


@pytest.mark.parametrize(
    ("name", "stock", "planned", "own", "overridden"),
    [
        ("hnswlib", [CPUS] * 2, [1] * 2, [OWN] * 4, [1] * 4),
        # Zero means all CPUs.
        ("usearch", [0] * 3, [1] * 3, [OWN] * 3, [1] * 3),
        ("cv2", CPUS, 1, OWN, OWN),
    ],
)
def test_a_count_that_the_code_does_not_set_is_the_plan_s(name, stock, planned, own, overridden, models, mounted):
    without = said(name, models)
    assert (without["threads"], without["own"], without["stderr"]) == (stock, own, "")
    found = said(name, models, PLAN, mounted)
    assert (found["threads"], found["own"]) == (planned, own)
    (line,) = found["stderr"].splitlines()
    assert line.startswith(f"raddle: {name}")
    assert line.endswith(": threads=1")
    assert said(name, models, OVERRIDE, mounted)["own"] == overridden


def test_a_model_of_onnxruntime_genai_s_gets_the_plan_s_threads_with_and_without_a_configuration(models, mounted):
    without = said("onnxruntime_genai", models)
    one, two = (said("onnxruntime_genai", models, f"v=1;intra={n};min={n};spin=never", mounted) for n in (1, 2))
    assert two["threads"] == [count + 1 for count in one["threads"]]
    assert one["own"] == two["own"] == without["own"]
    # What a folder without a model leads to is said by the library alone.
    assert one["missing"] == without["missing"]
    assert one["stderr"] == "raddle: onnxruntime_genai 0.18.0: threads=1\n"


def test_the_workers_of_a_ctranslate2_model_share_the_planned_threads(models, mounted):
    two = {env.OMP: "2"}
    plan = "v=1;intra=2;omp=2;min=2"
    # Two workers with two threads each, or with one.
    assert (
        said("ctranslate2", models, **two)["threads"] - said("ctranslate2", models, plan, mounted, **two)["threads"]
        == 2
    )
    # What the code says, and a variable that is not the plan's.
    assert (
        said("ctranslate2", models, plan, mounted, own=1, **two)["own"]
        == said("ctranslate2", models, own=1, **two)["own"]
    )
    assert (
        said("ctranslate2", models, "v=1;intra=1;omp=1", mounted, **two)["threads"]
        == said("ctranslate2", models, **two)["threads"]
    )


def test_opencv_s_own_variable_is_somebody_s_decision(models, mounted):
    assert said("cv2", models, PLAN, mounted, OPENCV_FOR_THREADS_NUM="2")["threads"] == min(2, CPUS)


def test_what_a_library_got_is_in_the_report(models, mounted, tmp_path):
    said("hnswlib", models, PLAN, mounted, RADDLE_REPORT=str(tmp_path))
    report = json.loads(next(tmp_path.iterdir()).read_text())
    assert report["runtimes"] == {"hnswlib": {"version": "", "intra": 1}}
    assert [(one["runtime"], one["effective"]) for one in report["sessions"]] == [("hnswlib", {"intra": 1})]

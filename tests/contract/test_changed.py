"""Which tests `make test-changed` chooses."""

import functools

import pytest

import changed


@functools.cache
def graph():
    files = changed.modules()
    return files, changed.graph(files)


@pytest.mark.parametrize(
    ("path", "chosen", "not_chosen"),
    [
        ("runtime/raddle/planning/policy.py", "tests/raddle/test_policy.py", "tests/raddle/test_cpuset.py"),
        # Through others, and through a process that a tool of the tests starts.
        ("runtime/raddle/cpus/cpuset.py", "tests/raddle/test_planner.py", "tests/chart/test_values_reference.py"),
        ("operator/raddle_operator/webhook/server.py", "tests/integration", "tests/raddle/test_planner.py"),
        ("tests/support/reviews.py", "tests/fuzz/test_fuzz_reviews.py", "tests/raddle/test_planner.py"),
        ("tests/raddle/test_cpuset.py", "tests/raddle/test_cpuset.py", "tests/raddle/test_planner.py"),
        ("runtime/native/door.c", "tests/native", "tests/raddle/test_planner.py"),
        ("benchmarks/regret.json", "tests/benchmarks", "tests/raddle/test_planner.py"),
        ("runtime/raddle/planning/planner.py", "tests/benchmarks/test_regret.py", "tests/raddle/test_cpuset.py"),
        ("charts/raddle/values.yaml", "tests/chart", "tests/raddle/test_planner.py"),
    ],
)
def test_a_change_chooses_the_tests_that_reach_it_and_no_others(path, chosen, not_chosen):
    assert (changed.ROOT / path).exists()
    found = changed.chosen([path], *graph())
    assert chosen in found
    assert not_chosen not in found


def test_every_folder_that_the_table_names_exists():
    named = {test for _, tests in changed.OTHERS for test in tests}
    assert not [test for test in named if not (changed.ROOT / test).exists()]


def test_a_file_below_a_chosen_folder_is_not_named_again():
    found = changed.chosen(["runtime/native/door.c", "tests/native/test_door.py"], *graph())
    assert [test for test in found if test.startswith("tests/native")] == ["tests/native"]

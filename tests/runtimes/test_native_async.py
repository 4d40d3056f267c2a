"""RunAsync in C under the preloaded library: it works in a session that has one thread by the plan, and only there.

ONNX Runtime refuses it in a session without worker threads (InferenceSession::RunAsync).
"""

import pytest
from support.runtimes.native_caller import started

from cluster.waiting import settled
from runtimes import libonnxruntime

pytestmark = pytest.mark.runtime

VERSIONS = ("1.16.3", "1.23.2", libonnxruntime.WHEEL_VERSION)
REFUSED = "error intra op thread pool must have at least one thread for RunAsync"
OURS = "by ort-async"
END_S = 5


def left(caller, tids):
    """Threads beside these, once those that end have had the time for it."""
    return settled(lambda: caller.tids() - tids, set(), END_S)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_run_calls_back_with_the_right_values_where_the_plan_gives_one_thread(version, proves):
    with started("c", version, "intra_op=1;inter_op=1;spinning=never") as caller:
        caller.session("")
        tids = caller.tids()
        assert caller.ask("async s 1") == OURS
        # One after another in a thread of ours, as many as there are.
        assert caller.ask("async s 200") == OURS
        caller.do("release s")
        assert left(caller, tids) == set()
        assert caller.end() == 0
    proves("ONNX Runtime (C/C++)", version, "counts")


@pytest.mark.parametrize("version", VERSIONS)
def test_a_count_of_one_in_the_code_gets_onnx_runtimes_own_error(version):
    for plan in (None, "intra_op=1", "intra_op=2", "intra_op=1;existing_values=override"):
        with started("c", version, plan) as caller:
            caller.session("intra=1")
            assert caller.ask("async s 1") == REFUSED


@pytest.mark.parametrize("version", VERSIONS)
def test_two_threads_run_it_themselves(version):
    with started("c", version, "intra_op=2;inter_op=1") as caller:
        caller.session("")
        assert caller.ask("async s 20") == "by ort-intra/1"
        assert caller.end() == 0
    with started("c", version, "intra_op=1") as caller:
        caller.session("intra=2")
        assert caller.ask("async s 20").startswith("by ")
        assert caller.ask("async s 20") != OURS


@pytest.mark.parametrize("version", VERSIONS)
def test_a_count_that_the_plan_overrides_with_one_does_not_break_it(version):
    with started("c", version, "intra_op=1;existing_values=override") as caller:
        caller.session("intra=2")
        assert caller.ask("async s 1") == OURS


@pytest.mark.parametrize("version", VERSIONS)
def test_a_run_that_fails_calls_back_with_the_same_error_as_in_a_session_of_two_threads(version):
    answers = []
    for plan in ("intra_op=1", "intra_op=2"):
        with started("c", version, plan) as caller:
            caller.session("")
            answers.append(caller.ask("async s 3 nowhere"))
            assert caller.ask("async s 1").startswith("by ")
            assert caller.end() == 0
    assert answers[0] == answers[1]
    assert "nowhere" in answers[0], answers


def test_a_pool_of_the_process_that_has_one_thread_by_the_plan_does_not_break_it():
    with started("c", "1.23.2", "intra_op=1;global_thread_pool=1;global_intra_op=1") as caller:
        caller.session("")
        assert caller.ask("async s 20") == OURS
        assert caller.end() == 0


def test_many_sessions_have_runs_of_their_own():
    with started("c", "1.23.2", "intra_op=1") as caller:
        for name in ("a", "b", "c"):
            caller.session("", name=name)
        assert [caller.ask(f"async {name} 5") for name in ("a", "b", "c", "a")] == [OURS] * 4
        caller.do("release a", "session d -")
        assert caller.ask("async d 5") == OURS
        assert caller.end() == 0


def test_a_child_process_makes_runs_of_its_own_after_a_fork():
    with started("c", "1.23.2", "intra_op=1") as caller:
        caller.session("")
        assert caller.ask("async s 5") == OURS
        caller.do("fork", "env", "session t -")
        assert caller.ask("async t 5") == OURS
        assert caller.end() == 0

"""The global thread pool, the shared arena and the arena's switches in every release: threads and resident memory."""

import pytest
from support.runtimes import ort_lab
from support.runtimes.ort_lab import ROW, at_least, version

pytestmark = ort_lab.MARKS

GLOBAL_POOL = "the process's global thread pool"
SINCE = "onnxruntime supports it since 1.23"
# A run of the wide model takes two blocks of 8 MiB, of the wider one two of 40 MiB: glibc gives back above 32 only.
COLUMNS, WIDER_COLUMNS = 2048, 10240
BLOCKS_MB, WIDER_BLOCKS_MB = 16, 80
SESSIONS = 8
WITH_GLOBAL_POOLS = [release for release in ort_lab.RELEASES if at_least(release, "1.23")]
IDLE_S = 0.25


@pytest.fixture(scope="module")
def seen(release, lab):
    idle = {"idle_s": IDLE_S}
    shared = "intra_op=2;min_intra_op=2;inter_op=1;global_thread_pool=1;"
    # SessionOptions of the application's own, default ones, and some that ask for a pool of their own.
    mixed = [idle, None, {}, {"use_per_session_threads": True} if at_least(release, "1.23") else {}]
    wide = [{"model": str(lab.wide(COLUMNS))}] * SESSIONS
    # The arena's first block is never given back.
    wider = {"model": str(lab.wide(WIDER_COLUMNS)), "small_first": True}
    only_with_global_pools = {
        "one": ("intra_op=1;inter_op=1;spinning=never;global_thread_pool=1", mixed[:3]),
        "counts": (shared + "spinning=always", [{"intra": 3}, None, {"intra": 3}]),
    }
    return lab.probes(
        release,
        {
            "always": (shared + "spinning=always", mixed),
            "never": (shared + "spinning=never", mixed),
            **(only_with_global_pools if at_least(release, "1.23") else {}),
            "separate arenas": ("intra_op=1", wide),
            "one arena": ("intra_op=1;shared_allocator=1", wide),
            "no arena": ("intra_op=1;cpu_mem_arena=0;mem_pattern=0;shared_allocator=1;arena_shrinkage=1", [{}, None]),
            "kept": ("intra_op=1", [wider]),
            "shrunk": (
                "intra_op=1;arena_shrinkage=1",
                [wider, {**wider, "run_options": {}}, {**wider, "by": "iobinding"}],
            ),
        },
    )


def pools(found):
    return [session["pool"] for session in found["sessions"]]


def test_all_sessions_share_one_pool_where_it_may_spin(release, seen, proves):
    found, record = seen["always"], seen["always"]["records"][-1]
    if not at_least(release, "1.23"):
        assert pools(found) == [1, 1, 1, 1]
        assert (record["effective"]["globalThreadPool"], record["because"]["globalThreadPool"]) == (False, SINCE)
        return
    proves(ROW, version(release), "global pool")
    # The threads do not grow with the number of sessions.
    assert pools(found) == [1, 0, 0, 0]
    assert [session["effective"]["use_per_session_threads"] for session in found["sessions"]] == [False] * 4
    assert found["sessions"][0]["after"]["use_per_session_threads"]
    assert record["effective"]["globalThreadPool"]
    assert record["because"]["intraOp"] == GLOBAL_POOL
    said = f"intra_op=2 ({GLOBAL_POOL}), inter_op=1, spinning default, affinity none"
    assert found["stderr"] == f"raddle: onnxruntime {version(release)}: {said}\n"


def test_sessions_keep_pools_of_their_own_where_a_shared_one_would_not_stop_spinning(release, seen, proves):
    found, record = seen["never"], seen["never"]["records"][-1]
    assert pools(found) == [1, 1, 1, 1]
    # What the shared pool would have burnt after each answer.
    assert found["sessions"][0]["idle_cpu_s"] < seen["always"]["sessions"][0]["idle_cpu_s"] / 4
    if at_least(release, "1.23"):
        proves(ROW, version(release), "global pool")
        assert record["because"]["globalThreadPool"] == "its spinning can't be stopped from Python"


@pytest.mark.parametrize("release", WITH_GLOBAL_POOLS, indirect=True)
def test_a_pool_of_one_thread_has_nothing_that_could_spin(release, seen):
    found = seen["one"]
    assert pools(found) == [0, 0, 0]
    assert found["sessions"][0]["idle_cpu_s"] < seen["always"]["sessions"][0]["idle_cpu_s"] / 4
    assert found["records"][0]["effective"]["globalThreadPool"]


@pytest.mark.parametrize("release", WITH_GLOBAL_POOLS, indirect=True)
def test_a_count_in_the_code_is_kept_until_another_session_has_made_the_pool(release, seen):
    found, records = seen["counts"], seen["counts"]["records"]
    assert pools(found) == [2, 1, 0]
    reasons = [record["because"].get("globalThreadPool") for record in records]
    assert reasons == ["set in the code", None, "created before a session whose own counts can't be kept"]


def test_eight_sessions_hold_one_arena_s_memory_where_it_is_shared(release, seen, proves):
    proves(ROW, version(release), "memory")
    grown_mb = {
        name: seen[name]["sessions"][-1]["rss_mb"] - seen[name]["sessions"][0]["rss_mb"]
        for name in ("separate arenas", "one arena")
    }
    assert grown_mb["separate arenas"] > (SESSIONS - 1) * BLOCKS_MB * 0.8
    assert grown_mb["one arena"] < BLOCKS_MB * 2
    assert [record["effective"]["sharedAllocator"] for record in seen["one arena"]["records"]] == [True] * SESSIONS


def test_the_arena_and_memory_patterns_are_switched_off_by_the_plan(release, seen, proves):
    proves(ROW, version(release), "memory")
    found = seen["no arena"]
    for session, record in zip(found["sessions"], found["records"], strict=True):
        switches = (session["effective"]["enable_cpu_mem_arena"], session["effective"]["enable_mem_pattern"])
        assert switches == (False, False)
        assert (record["effective"]["cpuMemArena"], record["effective"]["memPattern"]) == (False, False)
        # Shrinking what isn't there would fail each run.
        assert record["because"]["sharedAllocator"] == record["because"]["arenaShrinkage"] == "the session has no arena"
    after = found["sessions"][0]["after"]
    assert (after["enable_cpu_mem_arena"], after["enable_mem_pattern"]) == (True, True)


def test_memory_is_given_back_after_each_run_where_that_is_planned(release, seen, proves):
    proves(ROW, version(release), "memory")
    kept_mb = seen["kept"]["sessions"][0]["rss_mb"]
    own_options = seen["shrunk"]["sessions"][1]
    assert own_options["run_entry"] == "cpu:0"
    for session in seen["shrunk"]["sessions"]:
        assert session["rss_mb"] < kept_mb - WIDER_BLOCKS_MB / 2
    assert seen["shrunk"]["records"][0]["effective"]["arenaShrinkage"]

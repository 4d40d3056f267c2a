"""The global pools, the shared arena and shrinking where ONNX Runtime does not do as it should: a stand-in."""

import sys
import types

import pytest

from raddle import log
from raddle.adapters.onnxruntime import shrink
from raddle.adapters.onnxruntime.sharing import BY_THE_APPLICATION, Sharing
from raddle.process.resolution import Effective

# The stand-ins' frames are onnxruntime's own to the adapter.
__name__ = "onnxruntime.stand_in"

ALREADY = "An allocator for this device has already been registered for sharing."


def wanted(intra=2, spin="always"):
    effective = Effective()
    effective.intra_op = effective.global_intra_op = intra
    effective.inter_op, effective.spinning = 1, spin
    return effective


class Binding(types.SimpleNamespace):
    """onnxruntime.capi._pybind_state, as far as it is shared; refuses what it is told to."""

    def __init__(self, pools="", arena=""):
        super().__init__(
            made=[],
            OrtAllocatorType=types.SimpleNamespace(ORT_ARENA_ALLOCATOR="arena"),
            OrtMemType=types.SimpleNamespace(DEFAULT="default"),
            OrtMemoryInfo=lambda *args: args,
            OrtArenaCfg=lambda *args: args,
        )

        def made(refusal):
            def call(*args):
                if refusal:
                    raise RuntimeError(refusal)
                self.made.append(args)

            return call

        self.set_global_thread_pool_sizes = made(pools)
        self.create_and_register_allocator = made(arena)


def sharing(binding, *, override=False, **values):
    return Sharing(binding, lambda: wanted(**values), override=override)


def test_the_pools_are_made_once_for_all_sessions():
    binding = Binding()
    shared = sharing(binding)
    assert [shared.join_pool(wanted(), own_counts="") for _ in range(3)] == [""] * 3
    # From here on there is no other way: ONNX Runtime refuses sessions with pools of their own.
    assert shared.join_pool(wanted(), own_counts="set in the code") == ""
    assert binding.made == [(2, 1)]


@pytest.mark.parametrize(
    ("values", "own_counts", "reason"),
    [
        ({"spin": "never"}, "", "its spinning can't be stopped from Python"),
        ({"spin": "bounded"}, "", "its spinning can't be stopped from Python"),
        ({"spin": None}, "", "its spinning can't be stopped from Python"),
        ({"intra": None}, "", "no count is planned"),
        ({}, "set in the code", "set in the code"),
        ({"spin": "never", "intra": 1}, "", ""),
    ],
)
def test_the_pools_are_made_only_where_they_do_no_harm(values, own_counts, reason):
    binding = Binding()
    shared = sharing(binding)
    assert shared.join_pool(wanted(**values), own_counts=own_counts) == reason
    assert bool(binding.made) is (reason == "")
    # Another session may still be fit for them.
    assert shared.join_pool(wanted(), own_counts="") == ""


def test_pools_that_can_not_be_made_are_not_asked_for_again():
    shared = sharing(Binding(pools="out of threads"))
    assert [shared.join_pool(wanted(), own_counts="") for _ in range(2)] == ["out of threads"] * 2
    assert shared.sizes is None


def test_the_application_s_own_pools_are_its_own():
    binding = Binding()
    shared = sharing(binding)
    shared.replace([binding, None, types.SimpleNamespace()])
    binding.set_global_thread_pool_sizes(intra_op_num_threads=7, inter_op_num_threads=-1)
    assert binding.made == [(7, 1)]
    assert shared.join_pool(wanted(), own_counts="") == BY_THE_APPLICATION


def test_a_failure_of_the_application_s_own_pools_is_the_application_s():
    binding = Binding(pools="out of threads")
    sharing(binding).replace([binding])
    with pytest.raises(RuntimeError, match="out of threads"):
        binding.set_global_thread_pool_sizes(7)


@pytest.mark.parametrize(("arena", "reason"), [("", ""), (ALREADY, BY_THE_APPLICATION), ("no memory", "no memory")])
def test_the_arena_is_registered_once_or_not_used(arena, reason):
    binding = Binding(arena=arena)
    shared = sharing(binding)
    assert [shared.join_arena() for _ in range(2)] == [reason] * 2
    assert len(binding.made) == (reason == "")


def test_an_application_s_second_arena_is_no_error_of_its_own():
    binding = Binding()
    shared = sharing(binding)
    assert shared.join_arena() == ""
    refusing = Binding(arena=ALREADY)
    register = shared._registering(refusing.create_and_register_allocator)
    assert register("memory", "settings") is None
    assert any("create_and_register_allocator comes too late" in line for line in log.complaints)
    with pytest.raises(RuntimeError, match="no memory"):
        shared._registering(Binding(arena="no memory").create_and_register_allocator)("memory", "settings")


class RunOptions:
    def __init__(self):
        self.entries = {}

    def add_run_config_entry(self, key, value):
        self.entries[key] = value

    def get_run_config_entry(self, key):
        if key not in self.entries:
            raise RuntimeError(key)
        return self.entries[key]


class Session:
    """Keeps what its runs are called with; without an arena it refuses to shrink one."""

    def __init__(self, *, arena=True):
        self.arena = arena
        self.raddle_shrinks = True
        self.entries = []

    def run(self, outputs, inputs, options):
        entry = options.entries.get(shrink.KEY) if options is not None else None
        if entry and not self.arena:
            raise RuntimeError("Did not find an arena based allocator in the memory arena shrink list: cpu:0")
        if inputs in ("bad", "shrink"):
            raise ValueError(inputs + " input")
        self.entries.append(entry)
        return outputs


run = shrink.wrappers(types.SimpleNamespace(RunOptions=RunOptions), Session)["run"]


def test_each_run_shrinks_with_the_application_s_options_or_with_none():
    session, own = Session(), RunOptions()
    own.add_run_config_entry("other", "kept")
    for options in (None, own, own):
        assert run(session, "outputs", "inputs", options) == "outputs"
    assert session.entries == ["cpu:0"] * 3
    assert own.entries == {"other": "kept", shrink.KEY: "cpu:0"}


def test_the_application_s_own_wish_is_kept():
    session, own = Session(), RunOptions()
    own.add_run_config_entry(shrink.KEY, "")
    run(session, "outputs", "inputs", own)
    assert session.entries == [""]


def test_a_session_that_has_no_arena_after_all_runs_as_it_would_have():
    session, own = Session(arena=False), RunOptions()
    assert run(session, "outputs", "inputs", own) == "outputs"
    assert run(session, "outputs", "inputs", None) == "outputs"
    assert session.entries == ["", None]
    assert not session.raddle_shrinks


def test_options_that_two_sessions_share_shrink_nothing_once_one_of_them_has_no_arena():
    with_arena, without, own = Session(), Session(arena=False), RunOptions()
    without.raddle_shrinks = False
    for session in (with_arena, without, with_arena):
        assert run(session, "outputs", "inputs", own) == "outputs"
    assert (with_arena.entries, without.entries) == (["cpu:0", ""], [""])


def test_the_application_s_own_wish_for_an_arena_that_is_not_there_fails_as_without_us():
    session, own = Session(arena=False), RunOptions()
    own.add_run_config_entry(shrink.KEY, "cpu:0")
    with pytest.raises(RuntimeError, match="shrink list"):
        run(session, "outputs", "inputs", own)
    assert own.entries == {shrink.KEY: "cpu:0"}


def test_an_error_of_a_run_is_the_application_s():
    session = Session()
    with pytest.raises(ValueError, match="bad input"):
        run(session, "outputs", "bad", None)
    assert session.raddle_shrinks


def test_an_entry_of_ours_is_known_as_ours_where_a_signal_handler_raises_right_after_it_was_written():
    class Interrupted(RunOptions):
        def add_run_config_entry(self, key, value):
            super().add_run_config_entry(key, value)
            if value:
                raise TimeoutError("the limit")

    session, own = Session(arena=False), Interrupted()
    with pytest.raises(TimeoutError):
        run(session, "outputs", "inputs", own)
    assert run(session, "outputs", "inputs", own) == "outputs"
    assert session.entries == [""]


def test_what_another_thread_raises_while_an_entry_is_asked_for_reaches_the_application():
    class Interrupted(RunOptions):
        def get_run_config_entry(self, key):
            raise RuntimeError

    session, own = Session(), Interrupted()
    with pytest.raises(RuntimeError):
        run(session, "outputs", "inputs", own)
    assert (session.entries, own.entries) == ([], {})


def test_a_session_that_is_not_shrunk_fails_with_its_own_words():
    session = Session()
    session.raddle_shrinks = False
    with pytest.raises(ValueError, match="shrink"):
        run(session, "outputs", "shrink", None)


def test_no_python_code_runs_where_run_options_are_dropped_since_what_a_handler_raises_there_is_lost():
    own, ran = RunOptions(), []
    run(Session(), "outputs", "inputs", own)
    sys.setprofile(lambda frame, event, _: event == "call" and ran.append(frame.f_code.co_name))
    del own
    sys.setprofile(None)
    assert ran == []


def test_a_version_without_run_options_entries_is_left_alone():
    assert shrink.wrappers(types.SimpleNamespace(RunOptions=object), Session) == {}

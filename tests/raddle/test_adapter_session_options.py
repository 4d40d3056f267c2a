"""What is changed on one SessionOptions, and how a session is made when that does not work: a stand-in for ORT."""

import enum
import threading
import types

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raddle import env, keys, log
from raddle.adapters import onnxruntime, version_of
from raddle.adapters.onnxruntime.affinity import MAX_AFFINITY_TEXT, affinity_text
from raddle.cpus import cpuset
from raddle.report import record

# The stand-ins' frames are onnxruntime's own to the adapter.
__name__ = "onnxruntime.stand_in"


@pytest.mark.parametrize(
    ("groups", "text"),
    [
        ((), ""),
        ((0b1,), "1"),
        ((0b11,), "1-2"),
        ((0b1011,), "1,2,4"),
        ((0b10, 0b100), "2;3"),
        ((0b1111, 0b11110000, 1 << 9 | 1 << 20), "1-4;5-8;10,21"),
        ((0b1, 0), ""),
        ((-1,), ""),
        ((1 << 1023,), "1024"),
        ((1 << 1024,), ""),
        ((0x5555 << 500,) * 40, ""),
    ],
)
def test_affinity_is_written_in_ort_s_words_or_not_at_all(groups, text):
    assert affinity_text(groups) == text


@given(st.lists(st.integers(1, (1 << 256) - 1), min_size=1, max_size=40))
def test_each_worker_s_group_is_a_range_or_a_list_of_the_same_cpus(groups):
    text = affinity_text(tuple(groups))
    if not text:
        return
    assert len(text) <= MAX_AFFINITY_TEXT
    parts = text.split(";")
    assert not any("-" in part and "," in part for part in parts)
    # The kernel's list form, one CPU up.
    assert [cpuset.parse_list(part) >> 1 for part in parts] == groups


class Mode(enum.Enum):
    ORT_SEQUENTIAL = 0
    ORT_PARALLEL = 1


class Level(enum.Enum):
    ORT_DISABLE_ALL = 0
    ORT_ENABLE_BASIC = 1
    ORT_ENABLE_EXTENDED = 2
    ORT_ENABLE_ALL = 99


class Options:
    def __init__(self):
        self.intra_op_num_threads = 0
        self.inter_op_num_threads = 0
        self.execution_mode = Mode.ORT_SEQUENTIAL
        self.graph_optimization_level = Level.ORT_ENABLE_ALL
        self.use_per_session_threads = True
        for _, attribute, _, initial in keys.SWITCHES:
            setattr(self, attribute, initial)
        self.entries = {}

    def add_session_config_entry(self, key, value):
        self.entries[key] = value

    def get_session_config_entry(self, key):
        if key not in self.entries:
            raise RuntimeError(key)
        return self.entries[key]


class Session:
    """Keeps what it was constructed with; refuses the counts in `refused`."""

    refused: tuple[int, ...] = ()

    def __init__(self, options, model, is_path, read_config):
        self.intra = options.intra_op_num_threads
        self.entries = dict(options.entries)
        if model == "no such file":
            raise ValueError("no such file")
        if self.intra in self.refused:
            raise RuntimeError("thread creation failed")

    def initialize_session(self, providers, provider_options, disabled):
        return "initialized"

    def get_providers(self):
        return ["CPUExecutionProvider"]


def runtime(**members):
    """A module as onnxruntime.capi._pybind_state is to the adapter."""
    module = types.ModuleType("onnxruntime.capi._pybind_state")
    module.InferenceSession = type("InferenceSession", (Session,), members)
    module.SessionOptions = Options
    module.get_default_session_options = Options
    module.ExecutionMode = Mode
    module.GraphOptimizationLevel = Level
    return module


def spinning_off(options):
    return options.entries.get("session.intra_op.allow_spinning") == "0"


@pytest.fixture(autouse=True)
def quiet(monkeypatch):
    monkeypatch.setenv("RADDLE_LOG", "0")
    monkeypatch.setenv(log.ANNOUNCED, "onnxruntime")


# min=2 keeps the count on a machine with one CPU, and beside other pytest workers, which are sibling workers too.
def test_the_code_s_options_are_as_before_once_the_session_is_made():
    module = runtime()
    onnxruntime.install(
        module, "v=1;intra_op=2;min_intra_op=2;inter_op=1;execution_mode=parallel;graph_optimization_level=basic"
    )
    options = Options()
    session = module.InferenceSession(options, b"", False, False)
    assert session.intra == 2
    assert vars(options) == vars(Options())


def test_a_session_that_fails_with_the_plan_s_values_is_made_with_its_own():
    module = runtime(refused=(2,))
    onnxruntime.install(module, "v=1;intra_op=2;min_intra_op=2;spinning=never")
    options = Options()
    session = module.InferenceSession(options, b"", False, False)
    assert session.intra == 0
    assert options.intra_op_num_threads == 0
    assert session.entries["session.intra_op.allow_spinning"] == "1"
    assert any("thread creation failed" in line for line in log.complaints)


def test_a_session_of_default_options_that_fails_is_made_with_new_default_options():
    module = runtime(refused=(2,))
    onnxruntime.install(module, "v=1;intra_op=2;min_intra_op=2;spinning=never")
    session = module.InferenceSession(module.get_default_session_options(), b"", False, False)
    assert (session.intra, session.entries) == (0, {})


def test_a_failure_that_is_the_code_s_own_is_raised_as_it_is():
    module = runtime()
    onnxruntime.install(module, "v=1;intra_op=2;min_intra_op=2;spinning=never")
    before = list(log.complaints)
    with pytest.raises(ValueError, match="no such file") as raised:
        module.InferenceSession(Options(), "no such file", True, False)
    assert raised.value.__context__ is None
    assert log.complaints == before


def test_override_gives_the_code_s_affinity_back_when_the_session_fails():
    key = "session.intra_op_thread_affinities"
    module = runtime(refused=(2,))
    onnxruntime.install(module, "v=1;intra_op=2;min_intra_op=2;existing_values=override")
    options = Options()
    options.intra_op_num_threads = 3
    options.add_session_config_entry(key, "1;2")
    session = module.InferenceSession(options, b"", False, False)
    assert (session.intra, session.entries) == (3, {key: "1;2"})


def test_an_options_object_used_again_is_not_taken_for_the_code_s_own_wish():
    module = runtime()
    onnxruntime.install(module, "v=1;intra_op=2;min_intra_op=2;spinning=never")
    options = Options()
    for _ in range(2):
        module.InferenceSession(options, b"", False, False)
        assert spinning_off(options)
    assert record.sessions[-1]["because"].get("spinning") is None


def test_a_session_in_the_process_s_global_pool_keeps_its_values():
    module = runtime()
    onnxruntime.install(module, "v=1;intra_op=2;min_intra_op=2;spinning=never")
    options = Options()
    options.use_per_session_threads = False
    session = module.InferenceSession(options, b"", False, False)
    assert (session.intra, session.entries) == (0, {})


@pytest.mark.parametrize(
    "missing", ["InferenceSession", "SessionOptions", "ExecutionMode", "get_default_session_options"]
)
def test_a_runtime_that_is_not_as_expected_is_left_alone(missing):
    module = runtime()
    original = module.InferenceSession
    delattr(module, missing)
    onnxruntime.install(module, "v=1;intra_op=2;min_intra_op=2;execution_mode=sequential")
    if missing != "InferenceSession":
        session = (module.InferenceSession if hasattr(module, "InferenceSession") else original)(
            Options(), b"", False, False
        )
        assert session.intra == 0


@pytest.mark.parametrize("text", ["", "nonsense", "v=9;intra_op=2", "v=1;intra_op=0"])
def test_a_plan_that_can_not_be_read_leaves_the_runtime_alone(text):
    module = runtime()
    original = module.InferenceSession
    onnxruntime.install(module, text)
    assert module.InferenceSession is original


def test_two_threads_that_share_an_options_object_do_not_see_each_other_s_edits():
    together = []

    class Slow(Session):
        def __init__(self, options, *rest):
            together.append(options.intra_op_num_threads)
            super().__init__(options, *rest)

    module = runtime()
    module.InferenceSession = Slow
    onnxruntime.install(module, "v=1;intra_op=2;min_intra_op=2;spinning=never")
    options = Options()
    threads = [threading.Thread(target=module.InferenceSession, args=(options, b"", False, False)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert together == [2] * 8
    assert options.intra_op_num_threads == 0


def test_the_record_of_sessions_is_bounded():
    module = runtime()
    onnxruntime.install(module, "v=1;intra_op=1")
    for _ in range(record.MAX_SESSIONS + 10):
        module.InferenceSession(Options(), b"", False, False)
    assert len(record.sessions) == record.MAX_SESSIONS


@pytest.mark.parametrize(
    ("version", "found"), [("1.31.1", (1, 31)), ("1.20.0.dev20260901", (1, 20)), ("", ()), ("x.y", ()), ("2", (2,))]
)
def test_a_version_is_read_as_far_as_it_is_numbers(version, found):
    assert version_of(version) == found


def test_a_session_that_fails_in_the_global_pool_is_made_there_with_its_own_values():
    """Once the pool is there, ONNX Runtime takes no session that asks for pools of its own."""

    class Strict(Session):
        def __init__(self, options, *rest):
            if options.use_per_session_threads and pools:
                raise RuntimeError("use_per_session_threads must be false when using a global thread pool")
            super().__init__(options, *rest)
            if options.graph_optimization_level == Level.ORT_ENABLE_BASIC:
                raise RuntimeError("no such level here")

    pools = []
    module = runtime()
    module.InferenceSession = Strict
    module.set_global_thread_pool_sizes = lambda *sizes: pools.append(sizes)
    onnxruntime.install(
        module, "v=1;intra_op=2;min_intra_op=2;spinning=always;global_thread_pool=1;graph_optimization_level=basic"
    )
    options = Options()
    session = module.InferenceSession(options, b"", False, False)
    assert isinstance(session, Strict)
    assert pools == [(2, 1)]
    assert vars(options) == vars(Options())
    assert any("no such level here" in line for line in log.complaints)


AFFINITY = "session.intra_op_thread_affinities"
FIELDS = st.fixed_dictionaries(
    {},
    optional={
        **{key: st.integers(low, min(high, 8)) for key, (low, high) in keys.NUMBERS.items() if low <= 8},
        **{key: st.sampled_from(words) for key, words in keys.WORDS.items()},
    },
)
CODE = st.fixed_dictionaries(
    {
        "intra_op_num_threads": st.sampled_from([-1, 0, 1, 3]),
        "inter_op_num_threads": st.sampled_from([-1, 0, 2]),
        "execution_mode": st.sampled_from(Mode),
        "graph_optimization_level": st.sampled_from(Level),
        "use_per_session_threads": st.booleans(),
        **{attribute: st.booleans() for _, attribute, _, _ in keys.SWITCHES},
        "entries": st.dictionaries(st.sampled_from([*keys.ENTRIES]), st.sampled_from(["0", "1"]), max_size=3)
        | st.just({AFFINITY: "1;2"}),
    }
)


class Strict(Session):
    """Refuses what ONNX Runtime refuses: affinity that does not fit the count, pools of its own beside global ones."""

    pools: tuple[int, ...] = ()

    def __init__(self, options, *rest):
        affinity = options.entries.get(AFFINITY)
        if options.use_per_session_threads and type(self).pools:
            raise RuntimeError("use_per_session_threads must be false when using a global thread pool")
        if affinity and options.use_per_session_threads and options.intra_op_num_threads > 1:
            groups = affinity.rstrip(";").split(";")
            if len(groups) != options.intra_op_num_threads - 1:
                raise RuntimeError("Number of affinities does not equal to thread_pool_size minus one")
        super().__init__(options, *rest)
        self.attributes = {name: value for name, value in vars(options).items() if name != "entries"}


@given(fields=FIELDS, code=CODE)
def test_whatever_plan_and_code_say_a_session_is_made_and_the_options_are_as_before(fields, code):
    log.complaints.clear()
    module = runtime()
    module.InferenceSession = type("InferenceSession", (Strict,), {})
    native = module.InferenceSession
    module.set_global_thread_pool_sizes = lambda *sizes: setattr(native, "pools", sizes)
    module.create_and_register_allocator = lambda *args: None
    module.OrtMemoryInfo = module.OrtArenaCfg = lambda *args: args
    module.OrtAllocatorType = types.SimpleNamespace(ORT_ARENA_ALLOCATOR=0)
    module.OrtMemType = types.SimpleNamespace(DEFAULT=0)
    module.RunOptions = object
    onnxruntime.install(module, env.encode(fields))
    assert module.InferenceSession is not native
    for again in range(2):
        options = Options()
        vars(options).update({**code, "entries": dict(code["entries"])})
        fits = AFFINITY not in code["entries"] or code["intra_op_num_threads"] not in (2, *range(4, 9))
        session = module.InferenceSession(options, b"", False, False)
        assert isinstance(session, native)
        assert session.initialize_session(["CPUExecutionProvider"], [{}], set()) == "initialized"
        # The application's object says what it said.
        assert {**vars(options), "entries": 0} == {**vars(Options()), **code, "entries": 0}
        respected = fields.get("existing_values") != "override"
        if respected:
            assert {key: options.entries[key] for key in code["entries"]} == code["entries"]
        if respected and fits and code["use_per_session_threads"] and not native.pools:
            counts = ("intra_op_num_threads", "inter_op_num_threads")
            assert all(session.attributes[name] == code[name] for name in counts if code[name] > 0), again
    assert not [line for line in log.complaints if "is not configured" in line]

"""The plan's provider options beside the application's, and an onnxruntime that does not take them: a stand-in."""

import sys
import weakref

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raddle import log
from raddle.adapters.onnxruntime.providers import Providers, gpu_asked, merge

# The stand-ins' frames are onnxruntime's own to the adapter.
__name__ = "onnxruntime.stand_in"

CUDA, CPU = "CUDAExecutionProvider", "CPUExecutionProvider"
OPTIONS = st.dictionaries(st.sampled_from("abc"), st.text(max_size=3), max_size=3)


@given(OPTIONS, OPTIONS)
def test_of_two_values_the_code_s_is_kept_or_the_plan_s(code, planned):
    respected, overridden = merge(code, planned, override=False), merge(code, planned, override=True)
    assert respected.keys() == overridden.keys() == code.keys() | planned.keys()
    assert all(respected[key] == value for key, value in code.items())
    assert all(overridden[key] == value for key, value in planned.items())


class Native:
    """A native session that knows some options of CUDA, says which it does not, and is initialized once at most."""

    def __init__(self, known, error):
        self.known = known
        self.error = error
        self.registered = False

    def initialize_session(self, names, options, disabled):
        if self.registered:
            raise RuntimeError("Provider has already been registered")
        self.registered = True
        for key in dict(zip(names, options, strict=True)).get(CUDA, {}):
            if key not in self.known:
                raise self.error(key)
        return options


class Application:
    """onnxruntime.InferenceSession, whose native sessions know some options of CUDA."""

    def __init__(self, *known, error=lambda key: ValueError(f'Unknown provider option: "{key}".')):
        self.known = known
        self.error = error
        self.made = weakref.WeakSet()
        self.living = []

    def _create_inference_session(self, providers, *args):
        native = Native(self.known, self.error)
        self.living.append(len(self.made))
        self.made.add(native)
        return providers.initialize(Native.initialize_session, native, args)


def created(application, args, planned, *, override=False):
    """What `Providers.initialize` returned to the session that was created."""
    providers = Providers(planned, override=override)
    create = providers.attempting(Application._create_inference_session)
    return create(application, providers, *args)


def test_only_an_option_that_this_onnxruntime_does_not_know_is_left_out():
    args = ([CUDA, CPU], [{"device_id": "1"}, {}], set())
    planned = {CUDA: {"sdpa_kernel": "1", "use_tf32": "0", "fuse_conv_bias": "1"}}
    result, used, why = created(Application("device_id", "use_tf32"), args, planned)
    assert result == [{"use_tf32": "0", "device_id": "1"}, {}]
    assert used == {CUDA: {"use_tf32": "0", "device_id": "1"}}
    assert why == "not known to this onnxruntime: sdpa_kernel, fuse_conv_bias"


def test_where_that_is_not_the_reason_the_application_s_own_options_are_used():
    application = Application("device_id", error=lambda _: RuntimeError("CUDA failure 35 at {0:.0}here"))
    result, used, why = created(application, ([CUDA], [{"device_id": "1"}], set()), {CUDA: {"use_tf32": "0"}})
    assert (result, used) == ([{"device_id": "1"}], {CUDA: {"device_id": "1"}})
    assert why == "no session could be created with them: use_tf32"
    assert any("CUDA failure 35" in line for line in log.complaints)


def test_a_failure_that_is_the_application_s_own_is_raised_as_it_is():
    with pytest.raises(ValueError, match='Unknown provider option: "mine"') as caught:
        created(Application(), ([CUDA], [{"mine": "1"}], set()), {CUDA: {"use_tf32": "0"}})
    assert caught.value.__context__ is None


def test_a_model_that_can_not_be_loaded_fails_with_its_own_error_and_without_a_word():
    def no_kernel(*_):
        raise NotImplementedError("no kernel for LRN(14)")

    providers = Providers({CUDA: {"use_tf32": "0"}}, override=False)
    create = providers.attempting(lambda: providers.initialize(no_kernel, None, ([CUDA], [{}], set())))
    with pytest.raises(NotImplementedError, match="no kernel") as caught:
        create()
    assert caught.value.__context__ is None
    assert not any("LRN(14)" in line for line in log.complaints)


def test_a_session_that_failed_is_gone_before_the_next_one_is_made():
    application = Application()
    created(application, ([CUDA], [{}], set()), {CUDA: {"use_tf32": "0", "sdpa_kernel": "1"}})
    assert application.living == [0, 0, 0]


def test_what_fails_after_the_model_was_loaded_is_the_application_s_and_not_attempted_again():
    calls = []
    providers = Providers({CUDA: {"use_tf32": "0"}}, override=False)

    def create():
        calls.append(providers.initialize(lambda *_: None, None, ([CUDA], [{}], set())))
        raise RuntimeError("mine")

    with pytest.raises(RuntimeError, match="mine"):
        providers.attempting(create)()
    assert len(calls) == 1


def test_a_native_session_that_nobody_would_make_again_gets_the_application_s_options_only():
    providers = Providers({CUDA: {"use_tf32": "0"}}, override=True)
    native = Native(known=(), error=ValueError)
    found = providers.initialize(Native.initialize_session, native, ([CUDA], [{}], set()))
    assert found == ([{}], {CUDA: {}}, "the session is not onnxruntime.InferenceSession's")


@pytest.mark.parametrize("args", [(), ([CUDA],), ([CUDA], []), ([], [], set()), (None, None), ([CUDA], [None])])
def test_lists_that_say_nothing_are_passed_on_as_they_are(args):
    passed = []

    def native(session, *given):
        passed.append(given)
        return "initialized"

    providers = Providers({CUDA: {"use_tf32": "0"}}, override=False)
    create = providers.attempting(lambda: providers.initialize(native, None, args))
    assert create() == ("initialized", {}, "")
    assert passed == [args]


def _create_inference_session(providers):
    return sys._getframe()


def deeper(frame_of):
    return frame_of()


@pytest.mark.parametrize(
    ("providers", "asked"),
    [
        ([CPU], ""),
        ([], ""),
        (None, ""),
        ([CUDA, CPU], CUDA),
        ([("TensorrtExecutionProvider", {}), CUDA], "TensorrtExecutionProvider"),
        (["OpenVINOExecutionProvider"], ""),
    ],
)
def test_a_gpu_is_seen_in_what_onnxruntime_s_own_function_was_given(providers, asked):
    assert gpu_asked(_create_inference_session(providers)) == asked


def test_elsewhere_no_gpu_is_seen():
    assert gpu_asked(deeper(sys._getframe)) == ""
    assert gpu_asked(None) == ""

"""The plan's provider options beside the application's, and an onnxruntime that does not take them: a stand-in."""

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raddle import record
from raddle.adapters.ort_providers import gpu_asked, initialize, merge

CUDA, CPU = "CUDAExecutionProvider", "CPUExecutionProvider"
OPTIONS = st.dictionaries(st.sampled_from("abc"), st.text(max_size=3), max_size=3)


@given(OPTIONS, OPTIONS)
def test_of_two_values_the_code_s_is_kept_or_the_plan_s(code, planned):
    respected, overridden = merge(code, planned, override=False), merge(code, planned, override=True)
    assert respected.keys() == overridden.keys() == code.keys() | planned.keys()
    assert all(respected[key] == value for key, value in code.items())
    assert all(overridden[key] == value for key, value in planned.items())


class Native:
    """A session that knows some options of CUDA, and says which it does not as ONNX Runtime does."""

    def __init__(self, *known, error='Unknown provider option: "{}".'):
        self.known = known
        self.error = error
        self.calls = []

    def initialize_session(self, names, options, disabled):
        self.calls.append((names, options))
        for key in dict(zip(names, options, strict=True)).get(CUDA, {}):
            if key not in self.known:
                raise ValueError(self.error.format(key))
        return "initialized"


def initialized(native, args, planned, *, override=False):
    return initialize(Native.initialize_session, native, args, planned, override=override)


def test_only_an_option_that_this_onnxruntime_does_not_know_is_left_out():
    native = Native("device_id", "use_tf32")
    args = ([CUDA, CPU], [{"device_id": "1"}, {}], set())
    planned = {CUDA: {"sdpa_kernel": "1", "use_tf32": "0", "fuse_conv_bias": "1"}}
    result, used, why = initialized(native, args, planned)
    assert result == "initialized"
    assert native.calls[-1] == ([CUDA, CPU], [{"use_tf32": "0", "device_id": "1"}, {}])
    assert used == {CUDA: {"use_tf32": "0", "device_id": "1"}}
    assert why == "not known to this onnxruntime: sdpa_kernel, fuse_conv_bias"


def test_where_that_is_not_the_reason_the_application_s_own_options_are_used():
    native = Native("device_id", error="CUDA failure 35 at {0:.0}here")
    args = ([CUDA], [{"device_id": "1"}], set())
    result, used, _ = initialized(native, args, {CUDA: {"use_tf32": "0"}})
    assert (result, used) == ("initialized", {CUDA: {"device_id": "1"}})
    assert native.calls[-1] == ([CUDA], [{"device_id": "1"}])
    assert any("CUDA failure 35" in line for line in record.complaints)


def test_a_failure_that_is_the_application_s_own_is_raised_as_it_is():
    with pytest.raises(ValueError, match='Unknown provider option: "mine"'):
        initialized(Native(), ([CUDA], [{"mine": "1"}], set()), {CUDA: {"use_tf32": "0"}})


def test_a_model_that_can_not_be_loaded_fails_with_the_error_of_the_first_attempt():
    errors = [NotImplementedError("no kernel for LRN(13)"), RuntimeError("provider has already been registered")]

    def native(session, *given):
        raise errors.pop(0)

    with pytest.raises(NotImplementedError, match="no kernel") as caught:
        initialize(native, None, ([CUDA], [{}], set()), {CUDA: {"use_tf32": "0"}}, override=False)
    assert (errors, caught.value.__cause__) == ([], None)


@pytest.mark.parametrize("args", [(), ([CUDA],), ([CUDA], []), ([], [], set()), (None, None), ([CUDA], [None])])
def test_lists_that_say_nothing_are_passed_on_as_they_are(args):
    passed = []

    def native(session, *given):
        passed.append(given)
        return "initialized"

    assert initialize(native, None, args, {CUDA: {"use_tf32": "0"}}, override=False) == ("initialized", {}, "")
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

"""Whose an error is that was caught around Raddle's own work."""

import pytest

from raddle import cpuset, errors


@pytest.mark.parametrize("kind", [RuntimeError, OSError, TimeoutError])
def test_what_a_frame_of_the_application_raised_is_the_applications(kind):
    with pytest.raises(kind) as found:
        raise kind("late")
    assert not errors.is_ours(found.value)


def test_what_only_raddles_frames_raised_is_raddles():
    with pytest.raises(ValueError, match="range") as found:
        cpuset.parse_list("3-1")
    # Without this test's own frame.
    assert errors.is_ours(found.value.with_traceback(found.value.__traceback__.tb_next))


@pytest.mark.parametrize("kind", [RuntimeError, OSError, TimeoutError])
def test_an_error_without_a_word_is_another_threads(kind):
    # PyThreadState_SetAsyncExc makes it of its class alone, wherever the thread is.
    assert not errors.is_ours(kind())

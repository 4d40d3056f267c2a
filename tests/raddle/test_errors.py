"""Whose an error is that was caught around Raddle's own work."""

import functools
import os
import signal

import pytest

from raddle import errors
from raddle.cpus import cpuset


def caught(call):
    """The error that comes out of a function of Raddle's which calls this one."""
    working = eval("lambda call: call()", {"__name__": "raddle.process.current"})
    try:
        working(call)
    except Exception as error:  # noqa: BLE001  # whatever a test raises
        # Without this function's own frame.
        return error.with_traceback(error.__traceback__.tb_next)


def is_a_handlers_ours(handler):
    """What is said of the error of a signal handler that comes while Raddle works."""
    before = signal.signal(signal.SIGUSR1, handler)
    try:
        return errors.is_ours(caught(functools.partial(os.kill, os.getpid(), signal.SIGUSR1)))
    finally:
        signal.signal(signal.SIGUSR1, before)


@pytest.mark.parametrize("kind", [RuntimeError, OSError, TimeoutError, type("Limit", (Exception,), {})])
def test_what_a_signal_handler_raised_is_the_applications_whatever_it_does_with_its_arguments(kind):
    def handler(number, frame):
        raise kind("late")

    def taking_all(*_):
        raise kind

    def deleting(number, frame):
        del number, frame
        raise kind("late")

    class Watch:
        def tell(self, why, number, frame):
            del number, frame
            raise kind(why)

        def __call__(self, number, frame):
            handler(number, frame)

    handlers = [handler, taking_all, deleting, functools.partial(Watch().tell, "late"), Watch()]
    assert [is_a_handlers_ours(one) for one in handlers] == [False] * len(handlers)


@pytest.mark.parametrize("kind", [RuntimeError, OSError, type("Denied", (PermissionError,), {})])
def test_what_a_function_of_the_applications_raised_that_raddle_called_is_raddles(kind):
    def opening():
        raise kind

    assert errors.is_ours(caught(opening))


def test_what_only_raddles_frames_raised_is_raddles():
    assert errors.is_ours(caught(functools.partial(cpuset.parse_list, "3-1")))


@pytest.mark.parametrize("kind", [RuntimeError, OSError, TimeoutError])
def test_an_error_without_a_word_is_another_threads(kind):
    # PyThreadState_SetAsyncExc makes it of its class alone, wherever the thread is.
    assert not errors.is_ours(kind())

"""What waits do with a server that refuses, and when they end."""

import http.client

import pytest

from cluster.client import ApiError
from cluster.progress import Progress
from cluster.waiting import NotInTimeError, settled, wait
from e2e.waiting import REFUSALS


@pytest.mark.parametrize(
    "refusal", [ApiError(503, "ServiceUnavailable", "busy"), TimeoutError("timed out"), http.client.BadStatusLine("")]
)
def test_a_server_that_refuses_is_asked_again(refusal):
    answers = iter([refusal, False, True])

    def check():
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    assert wait(check, "pod is there", 60, refusals=REFUSALS, progress=Progress(), poll_seconds=0)
    assert next(answers, "all were asked for") == "all were asked for"


def test_the_last_refusal_is_told_when_the_time_is_over():
    def check():
        raise ApiError(403, "Forbidden", "pods is forbidden")

    with pytest.raises(NotInTimeError, match=r"^pod is there: not so in 0 s: pods is forbidden$"):
        wait(check, "pod is there", 0, refusals=REFUSALS)


def test_what_is_wrong_in_the_check_itself_ends_the_wait():
    with pytest.raises(KeyError):
        wait(lambda: {}["pod"], "pod is there", 60, refusals=REFUSALS)


def test_what_never_settles_is_told_as_it_is():
    numbers = iter(range(100))
    assert settled(lambda: next(numbers), 3, 60) == 3
    assert settled(lambda: "running", "ended", 0) == "running"

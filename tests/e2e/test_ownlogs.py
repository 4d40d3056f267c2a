"""What is said of the logs of Raddle's own pods."""

from e2e import ownlogs

GOOD = "2026-11-21 20:52:47,694 INFO raddle_operator.controller.reconcile all lists are complete, work begins\n"
WARNED = "2026-11-21 20:52:48,000 WARNING raddle_operator.kube asked again\n"
BAD = "2026-11-21 20:24:12,183 ERROR raddle_operator.controller.handlers kopf failed\n"


def pod(restarts=0):
    return {"metadata": {"name": "one"}, "status": {"containerStatuses": [{"restartCount": restarts}]}}


def test_information_and_warnings_are_counted_and_right():
    found = ownlogs.judge([pod()], {"one controller": GOOD + WARNED})
    assert found.wrong == ()
    assert found.figures == {"pods": "1", "lines": "2", "warnings": "1", "errors": "0", "restarts": "0"}


def test_an_error_is_said_with_its_container():
    (said,) = ownlogs.judge([pod()], {"one controller": GOOD + BAD}).wrong
    assert said.startswith("one controller: ")
    assert "kopf failed" in said


def test_restarts_are_counted_and_right_since_a_leader_that_loses_its_lease_ends():
    found = ownlogs.judge([pod(restarts=2), pod()], {"one controller": GOOD})
    assert (found.wrong, found.figures["restarts"]) == ((), "2")


def test_a_pod_that_has_no_status_yet_is_not_wrong():
    assert ownlogs.judge([{"metadata": {"name": "one"}}], {"one controller": GOOD}).wrong == ()


def test_logs_that_could_not_be_read_are_not_free_of_errors():
    assert ownlogs.judge([pod()], {"one controller": ""}).wrong == ("no line of any log could be read",)


def test_a_request_that_kopf_tries_again_is_not_an_error_and_its_last_one_is():
    kopf = (
        "2026-11-21 20:24:12,183 ERROR kopf._cogs.clients.api Request attempt #{} failed; will {}: PATCH url -> E()\n"
    )
    (said,) = ownlogs.judge([pod()], {"one controller": kopf.format(1, "retry") + kopf.format(9, "escalate")}).wrong
    assert "attempt #9" in said

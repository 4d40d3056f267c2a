"""What is said at the end of a log."""

from cluster.progress import with_its_reason_last


def test_a_reason_that_a_long_log_follows_stands_at_the_end_too():
    assert with_its_reason_last(RuntimeError("it hung\nline 1\nline 2")) == "it hung\nline 1\nline 2\nit hung"


def test_a_reason_alone_is_said_once():
    assert with_its_reason_last(RuntimeError("it hung")) == "it hung"


def test_an_error_without_a_text_is_named():
    assert with_its_reason_last(TimeoutError()) == "TimeoutError()"

"""What becomes of a check that ends early, and what is made of the calls of a load."""

import io
import signal
import subprocess

import psutil
import pytest

from cluster import ApiError, DevclusterError
from cluster.progress import Progress
from reliability import __main__ as command
from reliability import load, running, webhook
from reliability.model import BrokenError, Check, Result
from reliability.world import World
from unavailable import UnavailableError


def run(*functions):
    said = io.StringIO()
    checks = [Check(f"check-{n}", "it happens", "it holds", one) for n, one in enumerate(functions)]
    with World(Progress(said, name="test")) as world:
        return running.run(checks, world), said.getvalue()


def raising(error):
    def check(_):
        raise error

    return check


@pytest.mark.parametrize(
    ("error", "verdict", "words"),
    [
        (BrokenError("not so within 30 s: all are bound"), "BROKEN", "not so within 30 s: all are bound"),
        (ApiError(500, "InternalError", "etcd is away"), "BROKEN", "the check ended early: etcd is away"),
        (DevclusterError("webhook ended"), "BROKEN", "the check ended early: webhook ended"),
        (ConnectionRefusedError(111, "Connection refused"), "BROKEN", "Connection refused"),
        (subprocess.TimeoutExpired("python", 60), "BROKEN", "timed out after 60 seconds"),
        (psutil.NoSuchProcess(7), "BROKEN", "process no longer exists"),
        (UnavailableError("not root"), "not run", "not root"),
    ],
)
def test_a_check_that_ends_early_is_told_and_the_next_one_runs(error, verdict, words):
    outcomes, said = run(raising(error), lambda _: Result({"pods": "1"}))
    assert [one.verdict for one in outcomes] == [verdict, "kept"]
    assert words in said
    assert "2/2 check-1: it happens" in said


def test_an_error_of_the_check_itself_and_ctrl_c_are_not_hidden():
    with pytest.raises(KeyError):
        run(raising(KeyError("bug")))
    with pytest.raises(KeyboardInterrupt):
        run(raising(KeyboardInterrupt()))


def test_a_refused_call_is_not_one_without_values():
    calls = [
        load.Call("a", 1.0, 0.1, has_values=True),
        load.Call("b", 2.0, 2.5, has_values=False),
        load.Call("c", 3.0, 0.2, has_values=False, refused="500"),
    ]
    assert [one.name for one in load.without_values(calls)] == ["b"]
    assert load.without_values(calls, since_s=2.5) == []
    assert load.without_values(calls, until_s=2.0) == []
    assert load.refused(calls) == ["500"]
    assert (load.slowest_s(calls), load.slowest_s([])) == (2.5, 0.0)


@pytest.mark.parametrize(
    ("replicas", "batches"), [(1, 1), (2, 2), (3, 2), (4, 3), (100, 7), (500, 9), (511, 9), (512, 10)]
)
def test_a_replica_sets_pods_come_in_batches_that_double(replicas, batches):
    sizes = [min(2**n, max(0, replicas - (2**n - 1))) for n in range(20)]
    assert sum(map(bool, sizes)) == batches == webhook.batches(replicas)
    assert sum(sizes) == replicas


@pytest.fixture
def handlers():
    """What answers to these signals, as it was before the test."""
    numbers = signal.SIGTERM, signal.SIGHUP
    before = [signal.getsignal(number) for number in numbers]
    yield
    for number, handler in zip(numbers, before, strict=True):
        signal.signal(number, handler)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_kill_and_a_closed_terminal_end_a_run_as_ctrl_c_does(handlers, capsys, number):
    signal.signal(number, signal.SIG_DFL)
    assert command.main(["list"]) == 0
    assert "webhook-killed" in capsys.readouterr().out
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(number)


def test_a_closed_terminal_does_not_end_what_nohup_started(handlers, capsys):
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    assert command.main(["list"]) == 0
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN

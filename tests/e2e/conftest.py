"""`make e2e`: the nodes that the tests of a session share, and the lines that say what was seen on them."""

import signal
from pathlib import Path

import pytest

from cluster.interrupt import interrupt_on
from cluster.progress import Progress
from e2e import installation


def pytest_addoption(parser):
    parser.addoption("--images", type=Path, metavar="DIR", help=installation.IMAGES)


@pytest.fixture(scope="session")
def progress():
    # All that was started ends, as by Ctrl-C.
    interrupt_on(signal.SIGTERM)
    return Progress(name="e2e")


@pytest.fixture(scope="session")
def host(pytestconfig, progress):
    """This machine as a node, with Raddle on it."""
    with installation.on_host(pytestconfig.getoption("--images"), progress) as site:
        yield site


@pytest.fixture(scope="session")
def guest(host, progress):
    """The virtual node beside it."""
    with installation.with_guest(host, progress):
        yield host


def pytest_terminal_summary(terminalreporter):
    reports = [one for outcome in ("passed", "failed") for one in terminalreporter.getreports(outcome)]
    lines = [f"{what}: {told}" for one in reports for what, told in one.user_properties if what.startswith("e2e ")]
    if lines:
        terminalreporter.section("what ran on the nodes")
        terminalreporter.write("\n".join(line.removeprefix("e2e ") for line in lines) + "\n")

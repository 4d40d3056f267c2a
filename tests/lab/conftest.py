"""`make lab`: kernels, disk and guests that the tests of a session share, and the table of what was seen in them."""

import pytest

from cluster.progress import Progress
from lab import real, table

SESSIONS = "sessions"


@pytest.fixture(scope="session")
def progress():
    return Progress(name="lab")


@pytest.fixture(scope="session")
def prepared(tmp_path_factory, progress):
    return real.prepare(tmp_path_factory.mktemp("lab"), None, progress)


@pytest.fixture(scope="session")
def guests(prepared, tmp_path_factory, progress):
    return real.Guests(prepared, tmp_path_factory.mktemp("guests"), progress)


def pytest_terminal_summary(terminalreporter):
    reports = [one for outcome in ("passed", "failed") for one in terminalreporter.getreports(outcome)]
    rows = [row for one in reports for row in dict(one.user_properties).get(SESSIONS, ())]
    if rows:
        terminalreporter.section("threads and memory in the guests")
        terminalreporter.write_line(table.table(rows))

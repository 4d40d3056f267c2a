"""The tests of servers (`make matrix`): the made-up machine that the rows share, and what is kept of what was seen."""

import pytest
from support.runtimes import libraries_lab, shim_lab
from support.servers import lab, record
from support.servers import models as small

import fakemachine
from cluster.progress import Progress


def pytest_addoption(parser):
    parser.addoption("--speed", action="store_true", help="measure how fast the rows' programs are, too")


@pytest.fixture(scope="session")
def progress():
    return Progress(name="servers")


@pytest.fixture
def fakes(row):
    """The same machine twice, so that each of two programs has the quota for itself and is counted alone."""
    one, other = (fakemachine.started(lab.CPUS, row.limit_cpus) for _ in range(2))
    with one as first, other as second:
        yield first, second


@pytest.fixture(scope="session")
def models(tmp_path_factory):
    folder = libraries_lab.write_models(tmp_path_factory.mktemp("models"))
    shim_lab.write_model(folder / "model.onnx")
    small.write(folder)
    return folder


@pytest.fixture
def recorded(request):
    """Keeps a row's record, where that is asked for: at once, since a run of all rows takes an hour."""
    return record.write if request.config.getoption("--write") else lambda *_: None

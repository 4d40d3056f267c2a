"""`make servers`: the made-up machine that the rows share, and what is kept of what was seen."""

import pytest
from support.runtimes import libraries_lab, shim_lab
from support.servers import lab, record

import fakemachine
from cluster.progress import Progress

_records = []


@pytest.fixture(scope="session")
def progress():
    return Progress(name="servers")


@pytest.fixture
def fake():
    with fakemachine.started(lab.CPUS, lab.LIMIT_CPUS) as made:
        yield made


@pytest.fixture(scope="session")
def models(tmp_path_factory):
    folder = libraries_lab.write_models(tmp_path_factory.mktemp("models"))
    shim_lab.write_model(folder / "model.onnx")
    return folder


@pytest.fixture
def recorded():
    return _records.append


def pytest_sessionfinish(session):
    if session.config.getoption("--write") and _records:
        record.write(_records)

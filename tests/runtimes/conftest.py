"""What tests in real runtimes share: the tree that a container would mount, models, releases, and what is proven."""

import contextlib
from pathlib import Path

import pytest
from support.runtimes import native_lab, ort_lab, shim_lab, torch_lab

from raddle import env as variables


@pytest.fixture(scope="module")
def mounted(tmp_path_factory):
    return shim_lab.mount(tmp_path_factory.mktemp("mount"))


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return shim_lab.write_model(tmp_path_factory.mktemp("model") / "chain.onnx")


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    with contextlib.closing(ort_lab.Lab(tmp_path_factory.mktemp("ort"))) as made:
        yield made


@pytest.fixture(scope="module", params=ort_lab.RELEASES)
def release(request):
    return request.param


@pytest.fixture
def proven(proves):
    """proven(kind, version, *controls): of one of native_lab's programs."""

    def note(kind, version, *controls):
        for control in controls:
            proves(native_lab.row(kind), version, control)

    return note


@pytest.fixture(scope="module")
def forked(tmp_path_factory):
    """forked(release, *steps, env={...}): torch_lab.Importer.probe, one importer for all that have the same counts."""
    folder, importers = tmp_path_factory.mktemp("models"), {}

    def run(release, *steps, env, **kwargs):
        counts = tuple((name, env[name]) for name in torch_lab.COUNTS if env.get(name))
        key = (release, counts)
        if key not in importers:
            importers[key] = torch_lab.Importer(release.python, folder, dict(counts))
        return importers[key].probe(*steps, env=env, **kwargs)

    yield run
    for one in importers.values():
        one.end()


@pytest.fixture(scope="module")
def models(forked):
    """The folder of a TorchScript file with two forked branches, saved by torch without Raddle."""
    (folder,), _ = forked(torch_lab.installed(), ["save"], env={variables.OMP: "2"})
    return Path(folder)

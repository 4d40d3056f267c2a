"""What tests in real runtimes share: the tree that a container would mount, models, releases, and what is proven."""

import contextlib

import pytest
from support.runtimes import native_lab, ort_lab, shim_lab, torch_lab


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
def models(tmp_path_factory):
    """The folder of a TorchScript file with two forked branches, saved by torch without Raddle."""
    torch_lab.installed()
    folder = tmp_path_factory.mktemp("models")
    torch_lab.probe(folder, ["save"], env={})
    return folder

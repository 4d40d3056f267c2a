"""What tests in real runtimes share: the tree that a container would mount, and a model."""

import pytest
from support.runtimes import shim_lab


@pytest.fixture(scope="module")
def mounted(tmp_path_factory):
    return shim_lab.mount(tmp_path_factory.mktemp("mount"))


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return shim_lab.write_model(tmp_path_factory.mktemp("model") / "chain.onnx")

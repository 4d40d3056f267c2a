"""Programs for the tests of libraddle.so, built once a test session."""

import pytest
from support.runtimes.native_programs import Kind


@pytest.fixture(scope="session")
def glibc(tmp_path_factory):
    return Kind(tmp_path_factory.mktemp("glibc"), "gcc")


@pytest.fixture(scope="session")
def kinds(tmp_path_factory, glibc):
    """kinds(name): programs of that libc and processor."""

    def make(name):
        folder = tmp_path_factory.mktemp(name)
        if name == "musl":
            return Kind(folder, "musl-gcc")
        if name == "arm64":
            return Kind(
                folder,
                "aarch64-linux-gnu-gcc",
                ("qemu-aarch64-static", "-L", "/usr/aarch64-linux-gnu"),
                architecture="aarch64",
            )
        return glibc

    return make

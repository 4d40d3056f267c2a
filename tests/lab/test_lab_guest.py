"""A guest that hangs is ended. QEMU's hangs can't be ordered, so a program of its name plays them."""

import os

import pytest

from lab import qemu
from lab.errors import LabError
from lab.shapes import get

FINDS_ITS_FILES = """
for word; do case $word in *id=c0*) log=${word#*path=} ;; *id=c1*) results=${word#*path=} ;; esac; done
"""
HANGS = f"#!/bin/sh\n{FINDS_ITS_FILES}\nprintf 'some word' >>$log\nexec sleep 600"
TALKS = f"#!/bin/sh\n{FINDS_ITS_FILES}\nfor i in 1 2 3 4 5 6 7 8; do sleep 0.4; echo $i >>$results; done"


@pytest.fixture
def program(tmp_path, monkeypatch):
    """Writes the program that is started as QEMU."""

    def write(text):
        path = tmp_path / "bin" / qemu.PROGRAM
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)
        monkeypatch.setenv("PATH", f"{path.parent}:{os.environ['PATH']}")

    return write


def guest(folder, silent_s):
    described = qemu.Guest(kernel=folder / "kernel", initramfs=folder / "initramfs")
    return qemu.run(get("1s2c2t"), described, folder, timeout_s=60, boot_s=silent_s, silent_s=silent_s)


def test_a_guest_that_says_nothing_more_is_ended_and_its_last_words_are_told(program, tmp_path):
    program(HANGS)
    with pytest.raises(LabError, match=r"said nothing for 1 s after 9 bytes\n\[log\] some word"):
        for _ in guest(tmp_path, 1):
            pass


def test_a_guest_that_goes_on_talking_is_not_ended(program, tmp_path):
    program(TALKS)
    for _ in guest(tmp_path, 2):
        pass
    assert (tmp_path / "results").read_text().split() == list("12345678")

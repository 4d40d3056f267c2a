"""A guest that hangs is ended. QEMU's hangs can't be ordered, so a program of its name plays them."""

import os

import pytest

from vm import qemu
from vm.errors import VMError
from vm.shapes import get

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


def test_a_guest_that_writes_nothing_more_is_ended_and_its_last_words_are_in_the_message(program, tmp_path):
    program(HANGS)
    with pytest.raises(VMError, match=r"wrote nothing for 1 s after 9 bytes\n\[log\] some word"):
        guest(tmp_path, 1)


def test_a_guest_that_goes_on_talking_is_not_ended(program, tmp_path):
    program(TALKS)
    guest(tmp_path, 2)
    assert (tmp_path / "results").read_text().split() == list("12345678")


def test_a_line_that_the_guest_is_still_writing_is_left_for_later(tmp_path):
    (tmp_path / "results").write_text('{"id": "a"}\n{"id": ')
    assert qemu.read_results(tmp_path) == [{"id": "a"}]


@pytest.mark.parametrize(
    ("lines", "reason"),
    [('{"id": "a"}\n', "it ended early"), ('{"failed": "OSError()"}\n', r"OSError\(\)")],
    ids=["early", "failed"],
)
def test_a_guest_that_did_not_come_to_the_end_of_its_job_has_failed(lines, reason, tmp_path):
    (tmp_path / "results").write_text(lines)
    with pytest.raises(VMError, match=reason):
        qemu.completed(tmp_path)
    (tmp_path / "results").write_text(lines.replace("failed", "id") + '{"done": true}\n')
    assert qemu.completed(tmp_path)[-1] == {"done": True}

"""What is made once and kept, in a folder of the test's own."""

import os
import time

import pytest

from cluster.progress import Progress
from vm import cache


@pytest.fixture(autouse=True)
def own(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def make(home):
    (home / "file").write_text("made")


def old(name):
    ready = cache.made(name, name, make, Progress()) / "ready"
    os.utime(ready, (time.time() - 100, time.time() - 100))
    return ready.parent


def test_what_was_made_is_not_made_again():
    first = cache.made("disk-1", "a disk", make, Progress())
    (first / "file").write_text("kept")
    assert cache.made("disk-1", "a disk", make, Progress()) == first
    assert (first / "file").read_text() == "kept"


def test_what_nobody_has_asked_for_lately_is_forgotten_and_what_somebody_has_is_not():
    forgotten, asked, other = old("disk-1"), old("disk-2"), old("kernel")
    cache.made("disk-2", "a disk", make, Progress())
    cache.forget("disk-*", older_than_s=50)
    assert (forgotten.exists(), asked.exists(), other.exists()) == (False, True, True)


def test_what_is_being_made_is_never_forgotten():
    half = old("disk-1")
    (half / "ready").unlink()
    cache.forget("disk-*", older_than_s=0)
    assert half.exists()

"""Whatever text a container is given: its readers in Python and C keep their promises. A seed is INPUTS texts."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from support import native_parts, text_readers

from runtimes import pythons

RUNTIME = Path(__file__).parents[2] / "runtime"
INPUTS = 20_000


@pytest.fixture(scope="module")
def engine():
    return pythons.venv("atheris-3.0.0-py3.11", "3.11", ("--only-binary", ":all:", "atheris==3.0.0"))


@pytest.fixture(scope="module")
def native(tmp_path_factory):
    return native_parts.compiled(tmp_path_factory.mktemp("native"), Path(__file__).with_name("plan_fuzz.c"), ())


def tried(command, cwd, runtime=RUNTIME):
    """What a fuzzer says where an input breaks a promise, with that input, which libFuzzer writes into its folder."""
    environ = {**os.environ, "PYTHONPATH": str(runtime)}
    done = subprocess.run(
        [*map(str, command)], env=environ, cwd=cwd, capture_output=True, text=True, timeout=280, check=False
    )
    found = [repr(path.read_bytes()) for path in cwd.glob("crash-*")]
    return "\n".join([done.stdout, done.stderr, *found]) if done.returncode else ""


@pytest.mark.seeds(20)
def test_readers_in_python_keep_their_promises_for_any_input(seeds, engine, tmp_path):
    for seed in seeds:
        assert tried([engine, text_readers.__file__, INPUTS, seed + 1], tmp_path) == ""


@pytest.mark.seeds(20)
def test_readers_in_c_keep_their_promises_for_any_input(seeds, native, tmp_path):
    for seed in seeds:
        assert tried([native, INPUTS, seed + 1], tmp_path) == ""


@pytest.mark.parametrize("text", text_readers.TEXTS)
def test_the_texts_that_fuzzing_starts_from_are_readable_themselves(text):
    text_readers.check(b"\xe8\x03\0\0" + b"\xff" * 8 + b"\x02" + text.encode())


def test_a_reader_that_forgets_a_check_is_found(engine, tmp_path):
    broken = shutil.copytree(RUNTIME / "raddle", tmp_path / "raddle") / "env.py"
    check = "digits.isascii() and digits.isdigit() and "
    assert check in broken.read_text()
    broken.write_text(broken.read_text().replace(check, ""))
    assert "invalid literal for int()" in tried([engine, text_readers.__file__, 200_000, 7], tmp_path, tmp_path)

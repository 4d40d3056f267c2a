"""A few seconds of each language's fuzzer; `make fuzz` runs them for long."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from fuzz import plan

ROOT = Path(__file__).parents[2]
TOOLS = ROOT / "tools"
# So many inputs take about two seconds.
CASES = {"python": 15_000, "native": 20_000}


@pytest.mark.parametrize("language", CASES)
def test_readers_of_untrusted_text_hold_their_promises_for_any_input(language):
    command = [sys.executable, "-m", "fuzz", "--only", language, "--cases", str(CASES[language])]
    done = subprocess.run(command, cwd=TOOLS, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    if f"{CASES[language]} inputs in all" not in done.stdout:
        pytest.skip(done.stdout.strip().splitlines()[0])


@pytest.mark.parametrize("text", plan.SEEDS)
def test_the_fuzzer_s_seeds_are_readable_themselves(text):
    plan.check(b"\xe8\x03\0\0" + b"\xff" * 8 + b"\x02" + text.encode())


def test_the_fuzzer_finds_a_reader_that_forgets_a_check(tmp_path):
    try:
        engine = plan._engine()
    except (OSError, subprocess.SubprocessError) as error:
        pytest.skip(f"{plan.ATHERIS} can't be had here: {error}")
    broken = shutil.copytree(ROOT / "runtime" / "raddle", tmp_path / "raddle") / "env.py"
    check = "digits.isascii() and digits.isdigit() and "
    assert check in broken.read_text()
    broken.write_text(broken.read_text().replace(check, ""))
    command = [engine, TOOLS / "fuzz" / "plan.py", "200000", "--inside"]
    path = os.pathsep.join([str(tmp_path), str(TOOLS)])
    done = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": path}, cwd=tmp_path, capture_output=True, timeout=280, check=False
    )
    assert done.returncode != 0
    assert b"invalid literal for int()" in done.stdout + done.stderr

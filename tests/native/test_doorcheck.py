"""A sample of what `python -m doorcheck` starts, and what it would say of a door that did harm."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.runtimes import door_lab
from support.runtimes.native_programs import Kind, need

from doorcheck import __main__ as tool
from doorcheck import check
from doorcheck.programs import Program
from doorcheck.surroundings import Surroundings

TOOLS = Path(tool.__file__).parents[1]
HARM = """
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
__attribute__((constructor)) static void start(int count, char **arguments)
{
    (void)count;
    if (strstr(arguments[0], "/true") != NULL || strstr(arguments[0], "/env") != NULL) {
        HARM;
    }
}
"""


def possible():
    reason = tool.unavailable()
    if reason:
        pytest.skip(reason)


@pytest.mark.matrix
def test_programs_do_behind_the_door_what_they_do_without_it():
    possible()
    command = [sys.executable, "-m", "doorcheck", "--starts", "250", "--seconds", "1"]
    done = subprocess.run(command, cwd=TOOLS, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "250 starts, 0 different" in done.stdout


@pytest.mark.parametrize(
    ("harm", "program", "told"),
    [
        ('open("/", O_RDONLY)', "true", "descriptors ('0 /dev/null'"),
        ("_exit(3)", "true", "status 0 -> 3"),
        ('write(2, "hello", 5)', "true", "errors '' -> 'hello'"),
        ('setenv("HELLO", "1", 1)', "env", "HELLO=1\\n"),
        ("pause()", "true", "status 0 -> None"),
        ("abort()", "true", "status 0 -> -6"),
    ],
)
def test_a_door_that_does_harm_is_found(tmp_path, harm, program, told):
    possible()
    need("gcc")
    tree = tmp_path / "tree"
    shutil.copytree(door_lab.tree(), tree)
    for folder in (tmp_path, tree):
        folder.chmod(0o755)
    (tmp_path / "harm.c").write_text(HARM)
    library = tree / "libraddle.so"
    library.unlink()
    Kind.run_checked("gcc", "-shared", "-fPIC", f"-DHARM={harm}", "-o", library, tmp_path / "harm.c")
    cases = [check.Case(Program("one", f"/usr/bin/{program}"), (), "without a plan, watched")]
    with Surroundings(tree, opened=False) as stock, Surroundings(tree, opened=True) as opened:
        found = check.Check(stock, opened, 1, lambda _: None).run(cases, 1)
    assert len(found.different) == 1
    assert told in found.different[0]


def test_what_differs_without_the_door_too_is_left_out_and_counted():
    possible()
    varies, late, fine = ("-c", "cat /proc/sys/kernel/random/uuid"), ("-c", "sleep 9"), ("-c", "ls")
    shell = Program("one", "/usr/bin/sh", (varies, late, fine))
    tree = door_lab.tree()
    with Surroundings(tree, opened=False) as stock, Surroundings(tree, opened=True) as opened:
        found = check.Check(stock, opened, 2, lambda _: None).run(check.cases([shell], 1), 20)
    left = {reason: {case.arguments for case in cases} for reason, cases in found.left_out.items()}
    assert left == {check.VARIES: {varies}, check.LATE: {late}}
    assert {case.arguments for case in found.cases["one"]} == {fine}
    assert found.different == []

"""The native shim, asked as a program."""

import subprocess

import pytest
from support.native_parts import PARTS, compiled


@pytest.fixture(scope="session")
def answers(tmp_path_factory):
    """answers(lines, mode): one answer of the harness for each line."""
    built = compiled(tmp_path_factory.mktemp("native"), "resolve.c", PARTS)

    def ask(lines, *mode):
        text = "".join(f"{line}\n" for line in lines)
        done = subprocess.run([built, *mode], input=text, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        found = done.stdout.split("\n")[:-1]
        assert len(found) == len(lines)
        return found

    return ask

"""What guests and images are filled with."""

import json
import stat
import subprocess

import pytest

from vm import contents, programs

pytestmark = pytest.mark.skipif(programs.find("busybox") is None, reason="busybox is not installed")


def test_a_tree_has_a_shell_a_name_for_root_and_a_folder_that_all_may_write_to(tmp_path):
    contents.system(tmp_path)
    said = subprocess.run([tmp_path / "bin" / "sh", "-c", "echo ok"], capture_output=True, text=True, check=True)
    assert said.stdout == "ok\n"
    assert (tmp_path / "etc" / "passwd").read_text().startswith("root:x:0:0:")
    assert stat.S_IMODE((tmp_path / "tmp").stat().st_mode) == 0o1777


def test_the_trees_python_is_this_one_with_the_packages_that_were_asked_for_and_no_other(tmp_path):
    contents.python(tmp_path, ["packaging"])
    code = "import importlib.util, json, packaging; print(json.dumps([packaging.__file__, bool(importlib.util.find_spec('pytest'))]))"
    command = [
        tmp_path / contents.PYTHON,
        "-I",
        "-S",
        "-c",
        f"import sys; sys.path.append({str(tmp_path / contents.SITE_PACKAGES)!r}); {code}",
    ]
    where, pytest_too = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    assert where.startswith(str(tmp_path))
    assert (tmp_path / "bin" / "sh").exists()
    assert not pytest_too

"""What the shim says: on the standard error that there is, once, and never at the application's cost."""

from pathlib import Path

import pytest
from support.runtimes import shim_lab

from raddle.report import record

RUNTIME = Path(record.__file__).parents[2]


def said(code, **variables):
    program = "import io, os, sys\nfrom raddle import log\nfrom raddle.report import record\n" + code
    return shim_lab.python(
        shim_lab.THIS_PYTHON, "-c", program, env={"PYTHONPATH": str(RUNTIME), **variables}, check=False
    )


def test_each_runtime_is_announced_once_and_its_name_is_left_for_the_children():
    code = """
for name in ("torch", "onnxruntime", "torch"):
    log.announce(name, name + ": intra_op=1")
print(os.environ["RADDLE_ANNOUNCED"])
"""
    done = said(code)
    assert done.stderr.splitlines() == ["raddle: torch: intra_op=1", "raddle: onnxruntime: intra_op=1"]
    assert done.stdout == "torch,onnxruntime\n"


def test_other_counts_than_those_that_were_said_are_said_once_each():
    code = """
for line, change in (("a", ""), ("b", "8/1"), ("c", "2/1"), ("b", "8/1"), ("a", "")):
    log.announce("torch", line, change=change)
log.announce("torch", "d", change="9/1", first_worker=False)
print(os.environ["RADDLE_ANNOUNCED"])
"""
    done = said(code)
    assert done.stderr.splitlines() == ["raddle: a", "raddle: b", "raddle: c"]
    assert done.stdout == "torch,torch=8/1,torch=2/1\n"


def test_beside_another_thread_which_may_be_reading_the_environment_nothing_is_written_there():
    code = """
import threading
done = threading.Event()
threading.Thread(target=done.wait).start()
log.announce("torch", "a")
print(os.environ.get("RADDLE_ANNOUNCED"))
done.set()
"""
    finished = said(code)
    assert (finished.stdout, finished.stderr) == ("None\n", "raddle: a\n")


def test_a_child_is_silent_about_what_its_parent_has_said():
    done = said("log.announce('torch', 'a'); log.announce('onnxruntime', 'b')", RADDLE_ANNOUNCED="torch")
    assert done.stderr == "raddle: b\n"


def test_each_complaint_is_said_once_a_process_and_in_one_line():
    done = said("log.complain('two\\nlines'); log.complain('two\\nlines'); print(len(log.complaints))")
    assert (done.stderr, done.stdout) == ("raddle: two lines\n", "1\n")


def test_raddle_log_silences_and_the_complaint_is_kept():
    done = said("log.complain('a'); print(log.complaints)", RADDLE_LOG="0")
    assert (done.stderr, done.stdout) == ("", "['a']\n")


def test_a_stand_in_for_standard_error_gets_the_line():
    done = said("sys.stderr = io.StringIO(); log.complain('a'); print(sys.stderr.getvalue(), end='')")
    assert (done.stdout, done.stderr) == ("raddle: a\n", "")


@pytest.mark.parametrize("stream", ["None", "open('/dev/full', 'w')", "io.TextIOWrapper(io.BytesIO(), 'ascii')"])
def test_no_standard_error_is_a_reason_to_fail(stream):
    done = said(f"sys.stderr = {stream}; log.complain('caf\\xe9'); print('went on')")
    assert (done.returncode, done.stdout) == (0, "went on\n")


def test_a_file_of_the_application_s_that_got_the_number_of_standard_error_gets_no_line(tmp_path):
    mine = tmp_path / "mine"
    mine.touch()
    program = """
import os, sys
from raddle import shim
os.close(2)
file = open(sys.argv[1], "w")
assert file.fileno() == 2
from raddle import log
from raddle.report import record
log.complain("a")
print(log.complaints)
"""
    path = {"PYTHONPATH": str(RUNTIME)}
    done = shim_lab.python(shim_lab.THIS_PYTHON, "-c", program, str(mine), env=path, check=False)
    assert (done.returncode, done.stdout) == (0, "['a']\n")
    assert mine.read_text() == ""


def test_a_standard_error_of_the_application_s_own_gets_the_line(tmp_path):
    code = f"sys.stderr = open({str(tmp_path / 'log')!r}, 'w'); log.complain('a')"
    assert said(code).stderr == ""
    assert (tmp_path / "log").read_text() == "raddle: a\n"


def test_the_newest_records_are_kept():
    code = """
for index in range(1000):
    record.add({"index": index})
    log.complain(str(index))
print(len(record.sessions), record.sessions[-1]["index"])
print(len(log.complaints))
"""
    assert said(code, RADDLE_LOG="0").stdout.split() == ["256", "999", "256"]


AT_EACH_LINE = """
sys.stderr = {}
number, lost = at_each_line(os.path.dirname(log.__file__), lambda number: log.complain(str(number)))
print(number > 10, lost)
"""


@pytest.mark.parametrize("stream", ["open(os.devnull, 'w')", "io.StringIO()"])
def test_what_a_signal_handler_raises_while_a_line_is_said_reaches_the_application(stream):
    assert said(shim_lab.AT_LINE + AT_EACH_LINE.format(stream)).stdout == "True []\n"


@pytest.mark.parametrize("method", ["fileno", "write", "flush"])
@pytest.mark.parametrize("error", ["RuntimeError()", "type('Mine', (Exception,), {})()", "TimeoutError('late')"])
def test_what_a_stand_in_for_standard_error_raises_is_no_reason_to_fail(method, error):
    code = """
def refuse(*_):
    raise {error}
class Mine(io.StringIO):
    {method} = refuse
sys.stderr = Mine()
log.complain("a")
print("went on")
"""
    assert said(code.format(error=error, method=method)).stdout == "went on\n"

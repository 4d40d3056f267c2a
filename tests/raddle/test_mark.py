"""Marks that Python leaves: seen from outside, one a runtime, and nothing that an application could notice."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from support import marks
from support.runtimes import shim_lab

from raddle import mark
from runtimes import pythons

RUNTIME = Path(mark.__file__).parents[1]
START = """
import json, os, sys
from raddle import log, mark
from support import marks
def now():
    print(json.dumps(marks.of(os.getpid())), flush=True)
"""


def said(code, executable=shim_lab.THIS_PYTHON, **variables):
    """What the program prints, a line each, from JSON."""
    path = os.pathsep.join([str(RUNTIME), str(Path(marks.__file__).parents[1])])
    done = shim_lab.python(executable, "-c", START + code, env={"PYTHONPATH": path, **variables})
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture
def child():
    """child(code): a process that has run it and waits; read from outside."""
    started = []

    def start(code):
        command = [sys.executable, "-c", f"from raddle import log, mark\n{code}\nprint(flush=True)\ninput()"]
        environ = {"PYTHONPATH": str(RUNTIME), "RADDLE_LOG": "0"}
        pipe = subprocess.PIPE
        process = subprocess.Popen(command, env=environ, stdin=pipe, stdout=pipe, text=True)
        started.append(process)
        process.stdout.readline()
        return process.pid

    yield start
    for process in started:
        process.communicate("\n")


def test_anybody_who_may_read_a_process_s_mappings_sees_what_each_runtime_has(child):
    pid = child("log.announce('torch', 'torch 2: a'); log.announce('onnxruntime', 'onnxruntime 1: b')")
    assert marks.of(pid) == ["onnxruntime 1: b", "torch 2: a"]


def test_a_runtime_s_latest_takes_the_place_of_the_one_before_and_a_complaint_stands_beside_it(child):
    pid = child("log.announce('torch', 'a'); log.announce('torch', 'b'); log.complain('c'); log.complain('d')")
    assert marks.of(pid) == ["b", "d"]


def test_a_mark_is_taken_back_and_may_come_again(child):
    pid = child("for line in ('a', '', '', 'b', '', 'c'): mark.leave('x', line)\nmark.leave('y', '')")
    assert marks.of(pid) == ["c"]


def test_a_worker_that_writes_no_line_leaves_a_mark(child):
    assert marks.of(child("log.announce('torch', 'a', first_worker=False)")) == ["a"]


def test_a_fork_has_no_mark_of_its_parent_s_and_leaves_its_own():
    code = """
mark.leave("torch", "parent")
if not os.fork():
    now()
    mark.leave("torch", "child")
    now()
    os._exit(0)
os.wait()
now()
"""
    assert said(code) == [[], ["child"], ["parent"]]


def test_a_mark_is_bounded_and_in_one_line():
    code = "mark.leave('a', 'x' * 1000); mark.leave('b', 'caf\\xe9\\0'); now()"
    assert said(code) == [["caf??", "x" * (mark.MAX_BYTES - len(mark.PREFIX))]]


def test_so_are_marks_together():
    code = "[mark.leave(str(n), str(n)) for n in range(100)]; [mark.leave('0', str(n)) for n in range(100, 200)]; now()"
    (found,) = said(code)
    assert len(found) == mark.MAX_MARKS
    assert "199" in found


def test_no_file_stays_open_and_no_memory_is_taken():
    code = """
def count():
    return len(os.listdir("/proc/self/fd"))
before = count()
mark.leave("a", "x")
print(json.dumps([count() - before]))
lines = open("/proc/self/smaps").read().split("/memfd:raddle: ")[1].splitlines()
print(json.dumps([line.split()[1] for line in lines if line.startswith("Rss:")][:1]))
"""
    assert said(code) == [[0], ["0"]]


@pytest.mark.parametrize(
    "closed",
    [
        "sys.modules['ctypes'] = None",
        "import ctypes; ctypes.CDLL = None",
        "os.uname = lambda: type('', (), {'machine': 'riscv64'})",
        "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))",
    ],
)
def test_where_there_can_be_none_the_application_goes_on(closed):
    path = str(RUNTIME)
    code = f"import os, sys; from raddle import log, mark; {closed}; log.announce('a', 'b'); print('went on')"
    done = shim_lab.python(shim_lab.THIS_PYTHON, "-c", code, env={"PYTHONPATH": path})
    assert (done.stdout, done.stderr) == ("went on\n", "raddle: b\n")


AT_EACH_LINE = """
number, lost = at_each_line(os.path.dirname(log.__file__), lambda number: mark.leave("a", str(number)))
print(json.dumps([number > 10, lost]))
now()
"""


def test_what_a_signal_handler_raises_meanwhile_reaches_the_application():
    (ran, lost), marked = said(shim_lab.AT_LINE + AT_EACH_LINE)
    assert (ran, lost) == (True, [])
    assert marked


@pytest.mark.parametrize("version", pythons.VERSIONS)
def test_every_supported_python_leaves_it(version):
    code = "import os, sys; from raddle import mark; mark.leave('a', 'b'); print(open('/proc/self/maps').read())"
    done = shim_lab.python(pythons.interpreter(version), "-c", code, env={"PYTHONPATH": str(RUNTIME)})
    assert f"{marks.PREFIX}b{marks.SUFFIX}\n" in done.stdout

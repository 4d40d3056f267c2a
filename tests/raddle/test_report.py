"""The report file of a real process: written, bounded, and never in the way."""

import json
import os
import stat
import subprocess
from pathlib import Path

import pytest
from support.runtimes import shim_lab

from raddle import env
from raddle.report import report
from runtimes import pythons

RUNTIME = Path(report.__file__).parents[2]
PLAN = "v=1;intra=4;inter=1;spin=never"
PROLOGUE = """
import json, os, sys
from raddle import log
from raddle.adapters import hook
from raddle.process import current
from raddle.report import observe, record
facts = current.Facts(0b11, 2.0)
def session(**more):
    effective = {"intra": 2, "inter": 1, "spin": "never", **more}
    because = {"intra": "planned 4, cut to quota 2"}
    made = observe.begin({}).created(
        runtime="toy", version="1.0", plan=os.environ["RADDLE_PLAN"], effective=effective, because=because, facts=facts,
        model=b"model",
    )
    observe.initialized(made, ["CPU"], [("x", "float", (1, "N"))])
def reports():
    return [name for name in os.listdir(os.environ["RADDLE_REPORT"]) if not name.startswith(".")]
"""


@pytest.fixture
def folder(tmp_path):
    made = tmp_path / "reports"
    made.mkdir()
    return made


def ran(folder, code, executable=shim_lab.THIS_PYTHON, **extra):
    script = folder.parent / "app.py"
    script.write_text(PROLOGUE + code)
    variables = {"PYTHONPATH": str(RUNTIME), env.PLAN: PLAN, env.REPORT: str(folder), **extra}
    return shim_lab.python(executable, str(script), env=variables, check=False)


def documents(folder):
    return [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]


@pytest.mark.slow
@pytest.mark.parametrize("version", pythons.VERSIONS)
def test_a_process_leaves_one_report_of_what_was_planned_and_what_it_got(folder, version):
    executable = pythons.interpreter(version)
    done = ran(folder, "session()\nsession()\n", executable)
    assert (done.returncode, done.stderr) == (0, "")
    (path,) = folder.iterdir()
    (document,) = documents(folder)
    assert path.name.startswith(f"{document['pid']}-")
    assert len(path.stem.partition("-")[2]) == 8
    assert (document["v"], document["language"], document["command"], document["plan"]) == (1, "python", "app.py", PLAN)
    assert len(document["sessions"]) == 2
    session = document["sessions"][0]
    assert session["effective"]["intra"] == 2
    assert session["because"] == {"intra": "planned 4, cut to quota 2"}
    assert session["model"]["bytes"] == 5
    assert session["inputs"] == [["x", "float", [1, "N"]]]
    assert document["facts"]["cpus"]
    assert document["atExit"]["processCpuUs"] > 0
    assert document["complaints"] == []


def test_the_report_is_there_from_the_first_session_on(folder):
    done = ran(folder, "print(len(reports()))\nsession()\nprint(len(reports()), flush=True)\nos._exit(0)\n")
    assert done.stdout.split() == ["0", "1"]
    (document,) = documents(folder)
    assert "atExit" not in document
    assert document["sessions"][0]["createMs"] >= 0


def test_a_complaint_is_reported_without_any_session(folder):
    ran(folder, "log.complain('toy is left alone: broken')\n")
    (document,) = documents(folder)
    assert document["complaints"] == ["toy is left alone: broken"]
    assert document["sessions"] == []


def test_a_process_that_used_no_runtime_leaves_no_report(folder):
    assert ran(folder, "").returncode == 0
    assert documents(folder) == []


def test_no_report_is_written_where_none_is_asked_for(folder):
    done = ran(folder, "session()\nprint('raddle.report.report' in sys.modules)\n", **{env.REPORT: ""})
    assert done.stdout.split() == ["False"]
    assert documents(folder) == []


def test_a_report_stays_within_its_bytes_and_counts_the_sessions_it_leaves_out(folder):
    done = ran(folder, "for index in range(400):\n    session(index=index)\n")
    assert done.returncode == 0
    (path,) = folder.iterdir()
    (document,) = documents(folder)
    assert path.stat().st_size <= report.MAX_BYTES
    # The newest 256 are kept in the process.
    assert document["truncated"] + len(document["sessions"]) == 256
    assert document["sessions"][-1]["effective"]["index"] == 399


def test_a_report_is_bounded_whatever_the_application_and_its_runtime_say(folder):
    code = """
sys.argv[0] = "/x/" + "a" * 300
for index in range(100):
    log.complain(f"{index} " + "c" * 5000)
for index in range(30):
    record.sample({"at": index, "cpuUs": 10**15, "tasks": 10**6})
session(text="e" * 20000)
"""
    assert ran(folder, code, RADDLE_LOG="0", **{env.PLAN: "p" * 100000}).returncode == 0
    (path,) = folder.iterdir()
    assert path.stat().st_size <= report.MAX_BYTES
    (document,) = documents(folder)
    assert (document["sessions"], document["truncated"]) == ([], 1)


def test_a_loop_of_sessions_writes_a_burst_and_then_one_report_a_second(folder):
    code = """
import time
seen = set()
started = time.monotonic()
for _ in range(300):
    session()
    for name in reports():
        seen.add(os.stat(os.path.join(os.environ["RADDLE_REPORT"], name)).st_mtime_ns)
print(json.dumps([len(seen), time.monotonic() - started]))
"""
    written, seconds = json.loads(ran(folder, code).stdout)
    assert 1 <= written <= report.MAX_BURST + seconds + 1


def test_processes_at_once_never_leave_more_files_than_the_folder_may_have(folder):
    script = folder.parent / "app.py"
    script.write_text(PROLOGUE + "session()\n")
    for index in range(report.MAX_FILES - 3):
        (folder / f"{index}-00000000.json").write_text("{}")
    variables = {"PYTHONPATH": str(RUNTIME), env.PLAN: PLAN, env.REPORT: str(folder)}
    environ = shim_lab.environment(variables)
    running = [subprocess.Popen([shim_lab.THIS_PYTHON, str(script)], env=environ) for _ in range(8)]
    assert [process.wait(timeout=60) for process in running] == [0] * 8
    assert len(list(folder.iterdir())) <= report.MAX_FILES


def test_a_full_folder_is_left_alone(folder):
    for index in range(report.MAX_FILES):
        (folder / f"{index}-00000000.json").write_text("{}")
    done = ran(folder, "session()\n")
    assert (done.returncode, done.stderr) == (0, "")
    assert len(list(folder.iterdir())) == report.MAX_FILES


@pytest.mark.parametrize("name", ["missing", "file", "loop"])
def test_a_folder_that_is_none_is_left_alone_without_a_word(folder, tmp_path, name):
    (tmp_path / "file").touch()
    (tmp_path / "loop").symlink_to("loop")
    done = ran(folder, "session()\n", **{env.REPORT: str(tmp_path / name)})
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_link_in_the_folder_is_not_followed(folder, tmp_path):
    target = tmp_path / "precious"
    target.write_text("mine")
    code = f"""
from raddle.report import report
writer = report._Writer(os.environ["RADDLE_REPORT"])
os.symlink({str(target)!r}, os.path.join(writer.folder, "." + writer.name + ".tmp"))
report._state.writer = writer
session()
"""
    assert ran(folder, code).returncode == 0
    assert target.read_text() == "mine"


def test_a_fifo_in_the_folder_is_not_waited_for(folder):
    code = """
from raddle.report import report
writer = report._Writer(os.environ["RADDLE_REPORT"])
os.mkfifo(os.path.join(writer.folder, "." + writer.name + ".tmp"))
report._state.writer = writer
session()
"""
    assert ran(folder, code).returncode == 0


def test_a_report_can_be_read_by_other_users(folder):
    ran(folder, "session()\n")
    (path,) = folder.iterdir()
    assert stat.S_IMODE(path.stat().st_mode) & 0o444 == 0o444 & ~_umask()


def _umask():
    now = os.umask(0)
    os.umask(now)
    return now


def test_a_forked_child_reports_its_own_sessions_in_a_file_of_its_own(folder):
    code = """
session(of="parent")
child = os.fork()
if not child:
    session(of="child")
    sys.exit(0)
os.waitpid(child, 0)
"""
    assert ran(folder, code).returncode == 0
    told = {tuple(one["effective"]["of"] for one in document["sessions"]) for document in documents(folder)}
    assert told == {("parent",), ("child",)}
    assert all("atExit" in document for document in documents(folder))


def test_sessions_of_many_threads_are_in_one_report(folder):
    code = """
import threading
together = threading.Barrier(8)
def work(index):
    together.wait()
    session(index=index)
threads = [threading.Thread(target=work, args=(index,)) for index in range(8)]
[thread.start() for thread in threads], [thread.join() for thread in threads]
print(len(reports()), flush=True)
os._exit(0)
"""
    assert ran(folder, code).stdout == "1\n"
    (document,) = documents(folder)
    assert {one["effective"]["index"] for one in document["sessions"]} == set(range(8))


def test_what_is_said_while_a_report_is_written_is_in_it(folder):
    code = """
import types
from raddle.adapters import hook
record.adapters["toy"] = types.SimpleNamespace(effective=lambda: log.complain("asked"))
session()
os._exit(0)
"""
    assert ran(folder, code).returncode == 0
    (document,) = documents(folder)
    assert document["complaints"] == ["asked"]


def test_a_child_that_is_forked_while_a_report_is_written_reports_all_the_same(folder):
    code = """
from raddle.report import report
session(of="parent")
with report._state.lock:
    child = os.fork()
if not child:
    session(of="child")
    sys.exit(0)
os.waitpid(child, 0)
"""
    assert ran(folder, code).returncode == 0
    assert len(documents(folder)) == 2


def test_what_is_said_right_at_the_fork_is_in_the_child_s_report(folder):
    code = """
os.register_at_fork(after_in_child=lambda: log.complain("forked too late"))
session(of="parent")
child = os.fork()
if not child:
    sys.exit(0)
os.waitpid(child, 0)
"""
    assert ran(folder, code).returncode == 0
    told = sorted((len(document["sessions"]), document["complaints"]) for document in documents(folder))
    assert told == [(0, ["forked too late"]), (1, [])]


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_children_of_multiprocessing_report_at_their_end(folder, method):
    code = f"""
import multiprocessing
if __name__ == "__main__":
    context = multiprocessing.get_context({method!r})
    child = context.Process(target=session)
    child.start()
    child.join()
"""
    done = ran(folder, code)
    assert (done.returncode, done.stderr) == (0, "")
    (document,) = documents(folder)
    assert len(document["sessions"]) == 1
    assert "atExit" in document


def test_a_child_of_multiprocessing_that_says_something_right_at_the_fork_reports_at_its_end(folder):
    code = """
import multiprocessing
os.register_at_fork(after_in_child=lambda: log.complain("forked too late"))
child = multiprocessing.get_context("fork").Process(target=session)
child.start()
child.join()
"""
    assert ran(folder, code).returncode == 0
    (document,) = documents(folder)
    assert (document["complaints"], len(document["sessions"])) == (["forked too late"], 1)
    assert "atExit" in document


def test_multiprocessing_may_be_imported_after_the_first_report(folder):
    code = """
first = os.fork()
if not first:
    session()
    import multiprocessing.util
    session()
    multiprocessing.util._exit_function()
    os._exit(0)
os.waitpid(first, 0)
"""
    assert ran(folder, code).returncode == 0
    (document,) = documents(folder)
    assert "atExit" in document


@pytest.mark.parametrize(("argv0", "command"), [("/srv/a/app.py", "app.py"), ("/x/uvicorn/__main__.py", "uvicorn")])
def test_the_command_is_named_without_its_folder_and_arguments(folder, argv0, command):
    ran(folder, f"sys.argv = [{argv0!r}, '--token=secret']\nsession()\n")
    (document,) = documents(folder)
    assert document["command"] == command
    assert "secret" not in json.dumps(document)


def test_runs_are_reported_with_samples_where_the_plan_asks_for_runs(folder):
    code = """
class Session:
    run = observe.timed(lambda self: None)
observe.SAMPLE_EVERY_S = 0.01
mine = Session()
mine.raddle = observe.begin({"observe": "runs"}).created(
    runtime="toy", version="1.0", plan="", effective={}, because={}, facts=facts)
observe.initialized(mine.raddle, [], [])
mine.run(), mine.run()
import threading, time
assert [thread.daemon for thread in threading.enumerate() if thread.name == "raddle-observe"] == [True]
while not record.samples:
    time.sleep(0.01)
"""
    done = ran(folder, code)
    assert (done.returncode, done.stderr) == (0, "")
    (document,) = documents(folder)
    assert sum(document["sessions"][0]["runs"]["log2ns"].values()) == 2
    assert document["sessions"][0]["runs"]["highWater"] == 1
    assert document["samples"][0]["processCpuUs"] > 0

"""`raddle tune`: what it refuses, what it would do, a real search of a tiny model, and an end by Ctrl-C."""

import io
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from click.testing import CliRunner
from rich.console import Console
from support import tiny_models

from raddle_operator.cli import main
from raddle_operator.results.candidate import Candidate
from raddle_tuner.commands.tune.progress import Progress
from raddle_tuner.search import document
from raddle_tuner.search.blocks import MeasurementRequest
from raddle_tuner.trials import ending

pytestmark = pytest.mark.slow

RADDLE = str(Path(sys.executable).with_name("raddle"))


@pytest.fixture
def model(tmp_path):
    return str(tiny_models.write(tmp_path))


def tune(*arguments):
    return CliRunner().invoke(main, ["tune", *arguments])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "which model?"),
        (["/nowhere.onnx"], "/nowhere.onnx: No such file"),
        (["MODEL", "--limit", "four"], "'--limit': 'four' is not a quantity"),
        (["MODEL", "--rate", "1", "--p99", "20"], "'--p99': '20' is not a duration; write it as 20ms, in us, ms, s"),
        (["MODEL", "--objective", "cost"], "--objective cost requires --rate"),
        (["MODEL", "--objective", "throughput", "--rate", "1"], "omit --rate"),
        (["MODEL", "MODEL"], "one model, not 2"),
        (["MODEL", "--shape", "z=1"], "no input is named z"),
        (["MODEL", "--request", "MODEL"], "--request requires --http"),
        (
            ["--http", "http://127.0.0.1:1/", "--shape", "x=1", "--", "true"],
            "--shape requires MODEL or --kserve-v2",
        ),
        (["--http", "http://127.0.0.1:1/", "--runner", "node", "--", "true"], "--runner requires MODEL"),
        (["--http", "127.0.0.1:1"], "'--http': '127.0.0.1:1' is not a URL"),
        (
            ["--kserve-v2", "http://127.0.0.1:1/"],
            "'--kserve-v2': 'http://127.0.0.1:1/' is not a model URL of the KServe v2",
        ),
        (["--http", "http://a/", "--kserve-v2", "http://a/v2/models/m"], "--http and --kserve-v2 exclude each other"),
        (["--http", "http://127.0.0.1:1/"], "which server?"),
        (["MODEL", "--runtime", "/"], "/ is not a Python interpreter"),
        (["/nowhere.pt", "--shape", "x=1"], "/nowhere.pt: No such file"),
        (["SCRIPT"], "give each, in order, with --shape image=1,3,224,224 (floats), or give an .npz file"),
        (["SCRIPT", "--shape", "x=1", "--runner", "c"], "a TorchScript model is run in Python; leave out --runner c"),
        (["MODEL", "--runner", "node", "--runtime", "/"], "/node_modules has no onnxruntime-node"),
        (
            ["MODEL", "--space", "threads.intraOp=[1"],
            "'--space': '[1' is not a value: write words, numbers, true or false",
        ),
        (["MODEL", "--space", "threads.spinning=[1]"], "'--space': '[1]' is not a value"),
        (["MODEL", "--report", "/nowhere/tuned.html"], "/nowhere/tuned.html: there is no folder /nowhere"),
        (["MODEL", "--runner", "c", "--runtime", "/"], "/ is not a file; the C runner needs a libonnxruntime.so"),
    ],
)
def test_bad_input_is_named_and_starts_nothing(arguments, said, model, tmp_path):
    script = tmp_path / "model.pt"
    script.touch()
    names = {"MODEL": model, "SCRIPT": str(script)}
    result = tune(*(names.get(one, one) for one in arguments))
    assert result.exit_code == 2
    assert said in result.output


def test_a_dry_run_says_what_would_be_measured(model):
    result = tune(model, "--limit", "1", "--rate", "50", "--dry-run")
    assert result.exit_code == 0
    assert "threads.intraOp: 1, 2" in result.output


def test_a_bound_that_the_budget_leaves_uncertain_is_said_before_anything_is_measured(model):
    options = ["--p99", "20ms", "--limit", "1", "--dry-run"]
    said = (
        r"at 5 requests a second the budget may be too short for the 459 requests to the winner .*; use --budget "
        r"\d+m or more"
    )
    assert re.search(said, tune(model, "--rate", "5", *options).output)
    assert "requests to the winner" not in tune(model, "--rate", "500", *options).output


def test_operators_that_can_run_beside_each_other_are_tried_so(tmp_path, model):
    wide = str(tiny_models.write_wide(tmp_path, branches=3))
    options = ["--limit", "1", "--rate", "50", "--dry-run"]
    assert "threads.interOp: 2, 3" in tune(wide, *options).output
    assert "threads.interOp: not searched: no operators of the model" in tune(model, *options).output


def test_a_model_that_does_not_load_ends_with_the_reason(model):
    result = tune(model, "--rate", "50", "--shape", "x=1,8,8", "--runtime", "/bin/true")
    assert result.exit_code == 1
    assert "ended with status 0" in result.output


def test_a_search_that_runs_out_of_budget_says_what_is_known(model):
    done = tune(model, "--rate", "50", "--budget", "1s", "-o", "json")
    assert done.exit_code == 0, done.output
    tuning = document.from_document(json.loads(done.stdout))
    assert tuning.result.verdict == "Inconclusive"
    assert tuning.key.runtime == "onnxruntime"
    assert "ended before everything was measured" in tuning.result.remarks
    assert re.search(r"too short to try anything but the plan; use --budget \d+m or more", done.stderr)


def test_a_record_is_gone_on_with_and_one_of_another_question_refused(model, tmp_path):
    record = tmp_path / "record"

    def again(*more):
        return tune(model, "--rate", "200", "--budget", "3s", "--resume", str(record), "-o", "json", *more)

    assert again().exit_code == 0
    question, *_ = record.read_text().splitlines(keepends=True)
    # As a crash leaves it.
    record.write_text(question + '{"request": {')
    assert again().exit_code == 0
    kept = record.read_text()
    blocks = [json.loads(line) for line in kept.removeprefix(question).splitlines()]
    assert blocks
    assert f"{record} has {len(blocks)} blocks and" in again().stderr
    assert record.read_text().startswith(kept)
    refused = again("--limit", "1")
    assert refused.exit_code == 2
    assert "key.limitCPUs is null there, 1.0 now" in refused.stderr


# A server as users write one: ONNX Runtime behind the standard library's HTTP.
SERVER = """
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
import numpy as np, onnxruntime
session = onnxruntime.InferenceSession(sys.argv[1], providers=["CPUExecutionProvider"])
class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        session.run(None, {"x": np.ones((1, 8, 8), np.float32)})
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()
ThreadingHTTPServer(("127.0.0.1", int(sys.argv[2])), Handler).serve_forever()
"""


@pytest.mark.parametrize(
    ("model", "status", "said"),
    [("tiny.onnx", 0, "capacity: 1 candidate"), ("nowhere.onnx", 1, "Load model from nowhere.onnx failed")],
)
def test_a_server_is_tuned_over_http_and_one_that_does_not_load_its_model_is_said(
    tmp_path, monkeypatch, model, status, said
):
    monkeypatch.chdir(tmp_path)
    tiny_models.write(tmp_path)
    (tmp_path / "serve.py").write_text(SERVER)
    (tmp_path / "cat.json").write_text("{}")
    # Of which a start on a busy machine leaves the rest for a block.
    options = ["--rate", "200", "--budget", "8s", "--http", "http://127.0.0.1:{port}/", "--request", "cat.json"]
    done = tune(*options, "-o", "json", "--", sys.executable, "serve.py", model, "{port}")
    assert done.exit_code == status
    assert said in done.stderr
    assert bool(done.stdout) == (status == 0)


def shown(*, terminal):
    """What is written while three blocks are measured, and the bar alone."""
    file = io.StringIO()
    progress = Progress(budget_s=60.0, console=Console(file=file, force_terminal=terminal, width=80, soft_wrap=True))
    with progress.shown():
        for phase, found, left_s in (("A/A", {}, 60.0), ("A/A", {}, 59.0), ("race", {"threads.intraOp": 2}, 30.4)):
            candidate = Candidate.of(found)
            request = MeasurementRequest(candidate=candidate, rate=None, seconds=1.0, seed=1, phase=phase)
            progress.tell(request, left_s)
        progress.say("it is so")
        progress.close()
    return file.getvalue()


def test_a_line_is_written_for_each_phase_where_there_is_no_terminal():
    assert shown(terminal=False).splitlines() == [
        "raddle tune: A/A: 1 candidate, 1:00 left: the plan",
        "raddle tune: race: 2 candidates, 0:30 left: intraOp 2",
        "raddle tune: it is so",
    ]


def test_a_bar_is_drawn_on_a_terminal_and_taken_away():
    written = shown(terminal=True)
    assert "2 candidates, 0:30 left: intraOp 2" in written
    assert "raddle tune: it is so\n" in written
    hidden, shown_again = "\x1b[?25l", "\x1b[?25h"
    assert written.index(hidden) < written.index(shown_again)
    assert written.endswith("\x1b[2K")


@pytest.fixture
def begun(tmp_path):
    """begun(...): `raddle tune` with these arguments. At the end no folder and no cgroup of it is left."""
    folder, pids = tmp_path / "temporary", []
    folder.mkdir()

    def begin(*arguments):
        # A shell that starts the tests in the background has them ignore SIGINT.
        command = ["env", "--default-signal=INT,QUIT", RADDLE, "tune", *arguments, "--rate", "50", "-o", "json"]
        pipes, there = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}, {**os.environ, "TMPDIR": str(folder)}
        process = subprocess.Popen(command, env=there, text=True, **pipes)
        pids.append(process.pid)
        return process

    yield begin
    assert not list(folder.glob("raddle-*"))
    for pid in pids:
        assert not list(Path("/sys/fs/cgroup").glob(f"**/raddle-cpu-{pid}-*"))


def ended(process, number):
    """Its output, after this signal; no process that it started is left."""
    children = psutil.Process(process.pid).children(recursive=True)
    assert children
    process.send_signal(number)
    said = process.communicate(timeout=60)
    assert process.returncode == 128 + number
    # Of one whose parent was killed too the machine's init may take its time to learn.
    assert not [child for child in children if child.is_running() and child.status() != psutil.STATUS_ZOMBIE]
    return said


SIGNALS = pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda number: number.name)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGQUIT], ids=lambda number: number.name)
def test_a_signal_ends_the_measuring_and_what_is_known_is_said(begun, model, number):
    process = begun(model)
    assert "capacity" in process.stderr.readline()
    out, _ = ended(process, number)
    assert document.from_document(json.loads(out)).result.verdict == "Inconclusive"


def test_the_end_of_its_terminal_ends_the_measuring_and_leaves_no_process(model, tmp_path):
    ours, theirs = os.openpty()
    report = tmp_path / "report.json"
    arguments = [RADDLE, "tune", model, "--rate", "50", "--report", report]
    command = ["env", "--default-signal=HUP", "setsid", "--ctty", *arguments]
    process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    said = b""
    while b"capacity" not in said:
        said += os.read(ours, 4096)
    children = psutil.Process(process.pid).children(recursive=True)
    assert children
    os.close(ours)
    assert process.wait(60) == 128 + signal.SIGHUP
    assert not [child for child in children if child.is_running() and child.status() != psutil.STATUS_ZOMBIE]
    assert document.from_document(json.loads(report.read_text())).result.verdict == "Inconclusive"


def test_a_program_under_nohup_is_not_ended_by_its_terminal():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with ending.signals():
            signal.raise_signal(signal.SIGHUP)
            assert ending.status() == 0
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_signal_before_the_first_program_is_up_leaves_nothing(begun, model, tmp_path):
    os.mkfifo(tmp_path / "started")
    never_up = tmp_path / "python"
    never_up.write_text(f"#!/bin/sh\necho > {tmp_path / 'started'}\nexec sleep 3600\n")
    never_up.chmod(0o755)
    process = begun(model, "--runtime", str(never_up))
    (tmp_path / "started").read_text()
    assert ended(process, signal.SIGINT) == ("", "raddle tune: ended before anything was measured\n")


def test_a_signal_while_a_server_comes_up_leaves_nothing(begun, tmp_path):
    os.mkfifo(tmp_path / "started")
    command = ["sh", "-c", f"echo > {tmp_path / 'started'}; sleep 3600"]
    process = begun("--http", "http://127.0.0.1:{port}/", "--", *command)
    (tmp_path / "started").read_text()
    assert ended(process, signal.SIGTERM) == ("", "raddle tune: ended before anything was measured\n")


@SIGNALS
def test_a_signal_is_kept_until_something_is_awaited_and_breaks_that_off_once(number):
    with ending.signals():
        signal.raise_signal(number)
        assert ending.status() == 128 + number
        with pytest.raises(ending.EndedError), ending.awaited():
            pytest.fail("awaited in spite of it")
    with ending.signals():
        with pytest.raises(ending.EndedError) as error, ending.awaited():
            signal.raise_signal(number)
        assert error.value.status == 128 + number
        signal.raise_signal(number)

"""`raddle tune`: what it refuses, what it would do, a real search of a tiny model, and an end by Ctrl-C."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from click.testing import CliRunner
from support import tiny_models

from raddle_operator.cli import main
from raddle_operator.tuning import document

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
        (["MODEL", "--rate", "1", "--p99", "20"], "'--p99': '20' is no time; write it as 20ms, in us, ms, s"),
        (["MODEL", "--objective", "cost"], "--objective cost needs --rate"),
        (["MODEL", "--shape", "z=1"], "no input is named z"),
        (["MODEL", "--request", "MODEL"], "name it with --http URL"),
        (["--http", "http://127.0.0.1:1/"], "which server?"),
        (["MODEL", "--runtime", "/"], "/ is no Python"),
    ],
)
def test_bad_input_is_named_and_starts_nothing(arguments, said, model):
    result = tune(*(model if one == "MODEL" else one for one in arguments))
    assert result.exit_code == 2
    assert said in result.output


def test_a_dry_run_says_what_would_be_measured(model):
    result = tune(model, "--limit", "1", "--rate", "50", "--dry-run")
    assert result.exit_code == 0
    assert "threads.intraOp: 1, 2" in result.output


def test_a_model_that_does_not_load_ends_with_the_reason(model):
    result = tune(model, "--rate", "50", "--shape", "x=1,8,8", "--runtime", "/bin/true")
    assert result.exit_code == 1
    assert "ended with status 0" in result.output


def test_a_search_that_runs_out_of_budget_says_what_is_known(model):
    done = subprocess.run(
        [RADDLE, "tune", model, "--rate", "50", "--budget", "2s", "-o", "json"],
        check=True,
        capture_output=True,
        text=True,
    )
    tuning = document.from_document(json.loads(done.stdout))
    assert tuning.result.verdict == "Inconclusive"
    assert tuning.key.runtime == "onnxruntime"
    assert "ended before all was measured" in tuning.result.remarks


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_measuring_and_leaves_nothing(model, number):
    # A shell that starts the tests in the background has them ignore it.
    process = subprocess.Popen(
        ["env", "--default-signal=INT", RADDLE, "tune", model, "--rate", "50", "-o", "json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert "capacity" in process.stderr.readline()
    children = psutil.Process(process.pid).children(recursive=True)
    assert children
    process.send_signal(number)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 128 + number
    assert document.from_document(json.loads(out)).result.verdict == "Inconclusive"
    assert not [child for child in children if child.is_running()]

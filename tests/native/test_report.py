"""The native shim's report: the keys of docs/reference/report.md, bounded, one file per process."""

import json
import os
import time
import zlib

import pytest
from support.runtimes.native_programs import PLAN

from raddle import __version__
from raddle.cpus import cpuset
from raddle.process import current


def reports(folder):
    return [json.loads(path.read_text()) for path in sorted(folder.iterdir())]


def test_a_report_says_what_was_planned_and_what_a_session_got(glibc, tmp_path):
    before = time.time()
    plan = PLAN + ";graph=basic;arena=1;aff=core;excl=4096;max=8"
    glibc("3", RADDLE_REPORT=str(tmp_path), plan=plan)
    (found,) = reports(tmp_path)
    facts = current.read_facts()
    assert (found["v"], found["raddle"], found["language"]) == (1, __version__, "native")
    assert (found["command"], found["plan"]) == ("caller", plan)
    assert before - 1 <= found["startedAt"] <= found["writtenAt"] <= time.time() + 1
    assert found["facts"].pop("workersSeen") >= 1
    expected = {"cpus": cpuset.format_list(facts.cpus)}
    if facts.quota_cpus is not None:
        expected["quotaCPUs"] = pytest.approx(facts.quota_cpus, rel=1e-5)
    assert found["facts"] == expected
    assert found["runtimes"] == {"onnxruntime": {"version": "1.23.9"}}
    assert found["complaints"] == []
    (session,) = found["sessions"]
    assert session["plan"] == f"{zlib.crc32(plan.encode()):08x}"
    assert (session["runtime"], session["version"]) == ("onnxruntime", "1.23.9")
    assert session["createMs"] >= 0
    assert session["effective"] == {
        "intra": 3,
        "inter": 1,
        "mode": "sequential",
        "spin": "never",
        "affinity": "none",
        "graph": "basic",
        "arena": True,
    }
    assert session["because"] == {
        "intra": "set in the code",
        "affinity": "the CPUs are not the exclusive ones that were planned",
    }


def test_what_went_wrong_is_in_it(glibc, tmp_path):
    glibc("0", "kept", RADDLE_REPORT=str(tmp_path))
    (found,) = reports(tmp_path)
    assert found["complaints"] == [
        "onnxruntime session is left alone: too many options objects to know what the code has set"
    ]


def test_a_child_of_fork_has_its_own_file(glibc, tmp_path):
    glibc("0", "live", RADDLE_REPORT=str(tmp_path))
    found = reports(tmp_path)
    assert len({report["pid"] for report in found}) == 2


@pytest.mark.parametrize("plan", [PLAN + ";x=" + 'y"' * 2000, PLAN + ";x=" + "\x01\x02é" * 1000, "v=1;" + "z" * 3000])
def test_a_report_is_json_of_at_most_16_kib_whatever_the_plan(glibc, tmp_path, plan):
    glibc("0", "many", RADDLE_REPORT=str(tmp_path), plan=plan)
    for path in tmp_path.iterdir():
        assert path.stat().st_size <= 16384
        json.loads(path.read_text())


def test_the_oldest_sessions_are_left_out(glibc, tmp_path):
    glibc("0", "many", RADDLE_REPORT=str(tmp_path))
    (found,) = reports(tmp_path)
    assert 1 <= len(found["sessions"]) <= 16
    # Eight writes at once, then one a second: the last ones may be missing.
    assert found.get("truncated", 0) + len(found["sessions"]) >= 8


def test_a_full_folder_stays_as_it_is(glibc, tmp_path):
    for number in range(64):
        (tmp_path / f"{number}.json").touch()
    glibc(RADDLE_REPORT=str(tmp_path))
    assert len(list(tmp_path.iterdir())) == 64


@pytest.mark.parametrize("kind", ["missing", "file", "read-only"])
def test_a_folder_that_cannot_be_written_costs_nothing(glibc, tmp_path, kind):
    folder = tmp_path / "reports"
    if kind == "file":
        folder.touch()
    elif kind == "read-only":
        folder.mkdir(mode=0o500)
        if os.geteuid() == 0:
            folder = "/proc"
    _, errors = glibc(RADDLE_REPORT=str(folder))
    assert len(errors) == 1

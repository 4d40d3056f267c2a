"""What a Node.js process reports: the line, and the file in the folder that RADDLE_REPORT names."""

import json

import pytest
from support.runtimes import node_lab
from support.runtimes.node_lab import NEWEST, VERSIONS, application, plan, run

from raddle import __version__, env
from raddle.report import summary

pytestmark = pytest.mark.runtime


def reports(folder):
    return [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_process_writes_what_was_planned_and_what_it_got(tmp_path, version):
    text = plan(intra=4)
    code = {"intraOpNumThreads": 3}
    seen = run(application(version) / "app.cjs", {}, code, text=text, env={env.REPORT: str(tmp_path)})
    (found,) = reports(tmp_path)
    (path,) = tmp_path.glob("*.json")
    assert path.name.startswith(f"{seen.found[0]['pid']}-")
    assert (found["v"], found["raddle"], found["language"], found["command"]) == (1, __version__, "node", "app.cjs")
    assert (found["pid"], found["plan"]) == (seen.found[0]["pid"], text)
    assert found["facts"]["workersSeen"] == 1
    assert found["runtimes"] == {"onnxruntime": {"version": version}}
    assert found["complaints"] == []
    assert found["atExit"]["processCpuUs"] > 0
    planned, coded = found["sessions"]
    assert planned["effective"]["intra"] == 2
    assert planned["because"]["intra"] == "planned 4, cut to cpuset of 2"
    assert (coded["effective"]["intra"], coded["because"]["intra"]) == (3, "set in the code")
    assert coded["tasks"] == planned["tasks"] + 2
    assert planned["plan"] == coded["plan"]
    assert planned["totals"]["processCpuUs"] <= coded["totals"]["processCpuUs"]


def test_the_reader_of_reports_finds_nothing_unexplained(tmp_path):
    run(
        application(NEWEST) / "app.cjs",
        {},
        {"executionMode": "parallel"},
        text=plan(intra=4),
        env={env.REPORT: str(tmp_path)},
    )
    (found,) = reports(tmp_path)
    assert summary.compare(found).as_planned


def test_every_process_has_a_file_of_its_own_with_the_sessions_of_its_threads(tmp_path):
    environ = {env.REPORT: str(tmp_path)}
    run(application(NEWEST) / "cluster.cjs", {}, text=plan(), env=environ, workers=2)
    assert len({found["pid"] for found in reports(tmp_path)}) == 2
    run(application(NEWEST) / "worker.cjs", {}, text=plan(), env=environ, threads=2)
    (found,) = [found for found in reports(tmp_path) if found["command"] == "worker.cjs"]
    assert [session["workersSeen"] for session in found["sessions"]] == [2, 2]


def test_runs_are_counted_only_where_the_plan_asks(tmp_path):
    for level in ("runs", "sessions", "none"):
        (tmp_path / level).mkdir()
        environ = {env.REPORT: str(tmp_path / level)}
        run(application(NEWEST) / "app.cjs", {}, text=plan(observe=level), env=environ, idle=True)
    (counted,), (plain,) = (found["sessions"] for level in ("runs", "sessions") for found in reports(tmp_path / level))
    assert sum(counted["runs"]["log2ns"].values()) == 7
    assert counted["runs"]["highWater"] == 1
    assert "runs" not in plain
    assert not any(found["sessions"] for found in reports(tmp_path / "none"))


def test_a_file_and_the_folder_are_bounded(tmp_path):
    environ = {env.REPORT: str(tmp_path)}
    run(application(NEWEST) / "many.cjs", text=plan(), env=environ, count=200)
    (path,) = tmp_path.glob("*.json")
    found = json.loads(path.read_text())
    assert path.stat().st_size <= 16384
    assert found["truncated"] + len(found["sessions"]) == 200
    for number in range(63):
        (tmp_path / f"{number}.json").write_text("{}")
    seen = run(application(NEWEST) / "app.cjs", {}, text=plan(), env=environ)
    assert len(list(tmp_path.iterdir())) == 64
    assert len(seen.lines) == 1


@pytest.mark.parametrize("missing", ["nowhere", "a file", "read-only"])
def test_a_folder_that_takes_no_file_is_left_alone(tmp_path, missing):
    folder, prefix = tmp_path / "reports", []
    if missing == "a file":
        folder.write_text("")
    elif missing == "read-only":
        folder.mkdir()
        prefix = node_lab.namespace(f"mount --bind {folder} {folder}", f"mount -o remount,bind,ro {folder}")
    seen = run(application(NEWEST) / "app.cjs", {}, text=plan(), env={env.REPORT: str(folder)}, prefix=prefix)
    assert seen.threads == [1]
    assert len(seen.stderr.splitlines()) == 1


def test_the_line_can_be_silenced_and_is_said_once_in_a_tree_of_processes():
    silent = run(application(NEWEST) / "app.cjs", {}, text=plan(), env={"RADDLE_LOG": "0"})
    assert (silent.threads, silent.stderr) == ([1], "")
    told = run(application(NEWEST) / "app.cjs", {}, text=plan(), env={"RADDLE_ANNOUNCED": "torch,onnxruntime"})
    assert (told.threads, told.stderr) == ([1], "")
    other = run(application(NEWEST) / "app.cjs", {}, text=plan(), env={"RADDLE_ANNOUNCED": "torch"})
    assert len(other.lines) == 1

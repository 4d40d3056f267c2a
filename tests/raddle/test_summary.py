"""`python -m raddle report`: planned against effective, from files that anything in the container may have written."""

import json
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.runtimes import shim_lab

from raddle import env
from raddle.report import summary
from runtimes import pythons

PLAN = "v=1;intra=4;inter=1;spin=bounded;spin_us=200;mode=sequential;aff=core"


def report(**more):
    return {
        "v": 1,
        "raddle": "0.1.0",
        "pid": 7,
        "language": "python",
        "command": "app.py",
        "startedAt": 1000.5,
        "plan": PLAN,
        "facts": {"cpus": "0-3", "quotaCPUs": 2.0, "workersSeen": 1},
        "sessions": [],
        "runtimes": {},
        "complaints": [],
        **more,
    }


def session(because=None, **effective):
    return {
        "runtime": "onnxruntime",
        "version": "1.31.1",
        "providers": ["CPUExecutionProvider"],
        "effective": effective,
        "because": because or {},
    }


def values(process):
    return {value.name: value[1:] for group in process.sessions for value in group.values}


def test_each_value_of_a_session_stands_beside_the_plan_s():
    because = {"intra": "planned 4, cut to quota 2", "affinity": "the CPUs are shared"}
    found = session(because, intra=2, inter=1, spin="bounded", spinUs=200, mode="sequential", affinity="none")
    process = summary.compare(report(sessions=[found]))
    assert values(process) == {
        "intra": ("4", "2", "planned 4, cut to quota 2"),
        "inter": ("1", "1", ""),
        "spin": ("bounded", "bounded", ""),
        "spinUs": ("200", "200", ""),
        "mode": ("sequential", "sequential", ""),
        "affinity": ("core", "none", "the CPUs are shared"),
    }
    assert process.as_planned


def test_spinning_that_the_plan_leaves_to_exclusive_cpus_is_as_planned():
    plan = PLAN + ";excl=8;excl_always=1"
    process = summary.compare(report(plan=plan, sessions=[session(intra=4, spin="always")]))
    assert values(process)["spin"] == ("always", "always", "")
    assert process.as_planned
    assert not summary.compare(report(sessions=[session(intra=4, spin="always")])).as_planned


def test_what_only_the_reason_names_is_shown_too():
    process = summary.compare(report(sessions=[session({"intra": "the session uses the global thread pool"})]))
    assert values(process) == {"intra": ("4", None, "the session uses the global thread pool")}


@pytest.mark.parametrize(
    "wrong",
    [
        {"sessions": [session(intra=3)]},
        {"complaints": ["onnxruntime is left alone: broken"]},
        {"plan": "v=9"},
    ],
)
def test_a_difference_without_a_reason_a_complaint_and_a_broken_plan_are_not_as_planned(wrong):
    assert not summary.compare(report(**wrong)).as_planned


def test_sessions_that_came_to_the_same_are_told_once():
    process = summary.compare(report(sessions=[session(intra=4), session(intra=4), session({"intra": "x"}, intra=1)]))
    assert [group.alike for group in process.sessions] == [2, 1]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
parts = st.dictionaries(st.sampled_from(sorted({*report(), "truncated", "atExit"} - {"v"})), json_values)


@given(parts, st.lists(st.dictionaries(st.sampled_from(sorted(session())), json_values), max_size=3))
def test_a_report_of_any_content_is_shown_in_printable_lines(more, sessions):
    process = summary.compare({**report(sessions=sessions), **more})
    text = summary.table([process])
    assert all(line.isprintable() for line in text.split("\n"))
    json.dumps(summary.document([process], {}))


# --- the command --------------------------------------------------------------------------------------------------


@pytest.fixture
def mounted(tmp_path):
    return shim_lab.mount(tmp_path / "raddle")


@pytest.fixture
def folder(tmp_path):
    made = tmp_path / "reports"
    made.mkdir()
    return made


def put(folder, name, content):
    (folder / name).write_text(content if isinstance(content, str) else json.dumps(content))


def told(mounted, *arguments, executable=shim_lab.THIS_PYTHON, **extra):
    variables = {"PYTHONPATH": str(mounted / "python"), **extra}
    return shim_lab.python(executable, "-m", "raddle", *arguments, env=variables, check=False)


@pytest.mark.slow
@pytest.mark.parametrize("version", pythons.VERSIONS)
def test_the_reports_of_all_languages_are_told_in_the_order_of_their_start(mounted, folder, version):
    executable = pythons.interpreter(version)
    put(folder, "9-00000000.json", report(pid=9, startedAt=1.0, language="node", command="server.js"))
    put(folder, "3-00000000.json", report(pid=3, startedAt=2.0, language="native", runtimes={"ort": {"version": "1"}}))
    put(
        folder, "5-00000000.json", report(pid=5, startedAt=0, sessions=[session({"intra": "set in the code"}, intra=1)])
    )
    done = told(mounted, "report", executable=executable, **{env.REPORT: str(folder)})
    assert (done.returncode, done.stderr) == (0, "")
    assert [line.split(":")[0] for line in done.stdout.splitlines() if line.startswith("process")] == [
        "process 5",
        "process 9",
        "process 3",
    ]
    assert "    intra  4        1          set in the code" in done.stdout.splitlines()


def test_a_switch_is_compared_with_the_plans_0_or_1():
    found = report(plan="v=1;arena=0;mem_pattern=1", sessions=[session(arena=False, memPattern=False)])
    seen = values(summary.compare(found))
    assert seen["arena"] == ("0", "0", "")
    assert seen["memPattern"] == ("1", "0", "")


def test_the_same_is_told_to_programs(mounted, folder):
    put(folder, "5-00000000.json", report(pid=5, sessions=[session(intra=3)], truncated=2))
    done = told(mounted, "report", str(folder), "-o", "json")
    (process,) = json.loads(done.stdout)["processes"]
    assert done.returncode == 1
    assert (process["pid"], process["omitted"], process["asPlanned"], process["ended"]) == (5, 2, False, False)
    (value,) = process["sessions"][0]["values"]
    assert value == {"name": "intra", "planned": "4", "effective": "3", "why": "", "unexplained": True}


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("{", "can't be read"),
        ("[]", "is no JSON object"),
        ('{"v": 2}', "is of version 2, this raddle reads 1"),
        ("[" * 30000, "can't be read"),
        (" " * 40000, "is longer than 32768 bytes"),
    ],
)
def test_a_file_that_is_no_report_is_named_and_the_others_are_told(mounted, folder, content, problem):
    put(folder, "1-00000000.json", content)
    put(folder, "2-00000000.json", report())
    done = told(mounted, "report", str(folder))
    assert done.returncode == 1
    assert done.stderr.startswith(f"raddle: 1-00000000.json {problem}")
    assert done.stdout.startswith("process 7: app.py")


def test_pipes_and_links_in_the_folder_are_not_followed(mounted, folder, tmp_path):
    os.mkfifo(folder / "pipe.json")
    put(tmp_path, "elsewhere", report())
    (folder / "link.json").symlink_to(tmp_path / "elsewhere")
    done = told(mounted, "report", str(folder))
    assert done.returncode == 1
    assert done.stdout == f"no reports in {folder}\n"


def test_an_empty_folder_has_no_reports(mounted, folder):
    done = told(mounted, "report", str(folder))
    assert (done.returncode, done.stdout, done.stderr) == (0, f"no reports in {folder}\n", "")


@pytest.mark.parametrize("arguments", [["report", "/nowhere"], ["report"], ["rubbish"], ["report", "-o", "yaml"]])
def test_wrong_arguments_and_a_missing_folder_are_told_apart_by_the_status(mounted, arguments):
    done = told(mounted, *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr


@pytest.mark.parametrize("arguments", [["--help"], ["report", "--help"]])
def test_help_has_examples_and_the_exit_status(mounted, arguments):
    done = told(mounted, *arguments)
    assert done.returncode == 0
    assert "examples:" in done.stdout
    assert "exit status:" in done.stdout


def test_show_is_what_the_bare_command_prints(mounted):
    shown, bare = (json.loads(told(mounted, *arguments).stdout) for arguments in (["show"], []))
    assert list(shown) == list(bare)
    assert shown["plan"] == bare["plan"] is None

"""What can't be used or read in a Node.js process: it runs as if Raddle were not there, one line says why."""

import pytest
from support.runtimes import node_lab
from support.runtimes.node_lab import NEWEST, VERSIONS, application, plan, run

from raddle import env

pytestmark = pytest.mark.runtime


# tests/runtimes/test_native_plans.py has every kind of mistake: the library is the same.
@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("v=1;intra_op=2;spin", "plan part 'spin' is not key=value"),
        ("v=1;session.intra_op.spin_backoff_max=65", "must be an integer from 1 to 64"),
        ("v=1;" + "x" * 100_000, "plan is longer than 4096 characters"),
    ],
    ids=["part", "entry", "long"],
)
def test_a_plan_that_cannot_be_used_leaves_the_process_alone(text, why):
    seen = run(application(NEWEST) / "app.cjs", {}, {"intraOpNumThreads": 3}, text=text)
    stock = node_lab.stock(application(NEWEST) / "app.cjs", {}, {"intraOpNumThreads": 3})
    assert seen.threads == stock.threads
    (line,) = seen.lines
    assert line.startswith("raddle: onnxruntime is not configured: ")
    assert why in line
    assert len(line) < 250


@pytest.mark.parametrize("version", VERSIONS)
def test_a_plan_of_a_megabyte_is_not_even_taken_apart(version):
    hook = str(application(version) / "enlarging.cjs")
    seen = run(application(version) / "app.cjs", {}, text=plan(), arguments=["--require", hook])
    (line,) = seen.lines
    assert "plan is longer than 4096 characters" in line


def test_a_plan_that_the_application_takes_out_before_the_first_session_is_none():
    hook = str(application(NEWEST) / "forgetting.cjs")
    seen = run(application(NEWEST) / "app.cjs", {"intraOpNumThreads": 3}, text=plan(), arguments=["--require", hook])
    assert (seen.threads, seen.lines) == ([2], [])


@pytest.mark.parametrize("content", ["", "not a library"])
def test_an_addon_that_is_none_fails_as_without_us(tmp_path, content):
    addon = tmp_path / "onnxruntime_binding.node"
    addon.write_text(content)
    program = tmp_path / "program.cjs"
    program.write_text(f"try {{ require({str(addon)!r}); }} catch (error) {{ console.error(error.message); }}")
    assert run(program, text=plan()).stderr == run(program).stderr


def test_a_process_without_standard_error_runs():
    seen = run(application(NEWEST) / "app.cjs", {}, text=plan(), prefix=["sh", "-c", 'exec "$@" 2>&-', "sh"])
    assert seen.threads == [1]


def test_a_file_that_has_taken_the_number_of_standard_error_gets_no_line(tmp_path):
    victim, hook = tmp_path / "data", str(application(NEWEST) / "closing.cjs")
    seen = run(
        application(NEWEST) / "app.cjs", {}, text=plan(), env={"VICTIM": str(victim)}, arguments=["--require", hook]
    )
    assert (seen.threads, seen.stderr, victim.read_text()) == ([1], "", "")


def test_the_environment_that_javascript_sees_is_what_the_pod_has(tmp_path):
    program = tmp_path / "program.cjs"
    program.write_text("console.log(JSON.stringify({ sessions: [process.env, process.argv, process.execArgv] }));")
    # As the webhook writes the counts; the library would, where they lack.
    pod = {**node_lab.preload(), env.PLAN: plan(), env.ORT_INTRA: "2", env.ORT_INTER: "1"}
    behind, stock = (run(program, env={**pod, **off}).sessions for off in ({}, {"LD_PRELOAD": ""}))
    assert behind[0].pop("LD_PRELOAD") == pod["LD_PRELOAD"]
    assert stock[0].pop("LD_PRELOAD") == ""
    assert behind == stock


def test_a_library_that_the_mount_lacks_costs_a_line_of_the_loader_and_nothing_else():
    seen = run(
        application(NEWEST) / "app.cjs", {"intraOpNumThreads": 3}, text=plan(), env={"LD_PRELOAD": "/no/libraddle.so"}
    )
    assert (seen.threads, seen.lines) == ([2], [])

"""What the Node.js shim can't use or read: the application runs as if Raddle were not there, one line says why."""

import shutil

import node_lab
import pytest
from node_lab import NEWEST, VERSIONS, application, plan, preload, run

pytestmark = pytest.mark.runtime

PLANS = [
    ("v=1;intra=2;spin", "plan part 'spin' is not key=value"),
    ("v=2;intra=2", "plan version is '2', this shim reads version 1"),
    ("intra=2", "plan version is None, this shim reads version 1"),
    ("v=1;intra=0", "plan field intra='0' must be an integer from 1 to 1024"),
    ("v=1;intra=-1", "plan field intra='-1' must be an integer from 1 to 1024"),
    ("v=1;intra=4096", "plan field intra='4096' must be an integer from 1 to 1024"),
    ("v=1;intra=two", "plan field intra='two' must be an integer from 1 to 1024"),
    ("v=1;intra=2;spin=sometimes", "plan field spin='sometimes' must be one of never, bounded, always"),
    ("v=1;session.intra_op.spin_backoff_max=65", "must be an integer from 1 to 64"),
    ('{"v": 1, "intra": 2}', 'plan part \'{"v": 1, "intra": 2}\' is not key=value'),
    ("v=1;" + "x" * 100_000, "plan is 100004 characters long, at most 4096 are allowed"),
]


@pytest.mark.parametrize(("text", "why"), PLANS, ids=[why[:30] for _, why in PLANS])
def test_a_plan_that_cannot_be_used_leaves_the_process_alone(text, why):
    seen = run(application(NEWEST) / "app.cjs", {}, {"intraOpNumThreads": 3}, text=text)
    stock = run(application(NEWEST) / "app.cjs", {}, {"intraOpNumThreads": 3})
    assert seen.threads == stock.threads
    (line,) = seen.lines
    assert line.startswith("raddle: onnxruntime is left alone: ")
    assert why in line
    assert len(line) < 250


@pytest.mark.parametrize("version", VERSIONS)
def test_a_plan_of_a_megabyte_is_not_even_taken_apart(version):
    hook = str(application(version) / "enlarging.cjs")
    seen = run(application(version) / "app.cjs", {}, text=plan(), arguments=["--require", hook])
    (line,) = seen.lines
    assert "plan is 1048586 characters long, at most 4096 are allowed" in line


def test_a_plan_that_the_application_takes_out_before_the_first_session_is_none():
    hook = str(application(NEWEST) / "forgetting.cjs")
    seen = run(application(NEWEST) / "app.cjs", {"intraOpNumThreads": 3}, text=plan(), arguments=["--require", hook])
    assert (seen.threads, seen.lines) == ([2], [])


@pytest.mark.parametrize(("text", "threads"), [(plan(), [1, 1]), ("v=2;intra=2", [2, 2])])
def test_an_environment_that_cannot_be_written_costs_nothing(text, threads):
    """The line's mark for children has no place then; it is said once all the same."""
    program, hook = application(NEWEST) / "app.cjs", str(application(NEWEST) / "freezing.cjs")
    counts = [{} if text == plan() else {"intraOpNumThreads": 3}] * 2
    seen = run(program, *counts, text=text, arguments=["--require", hook])
    assert seen.threads == threads
    assert len(seen.lines) == 1
    assert "TypeError" not in seen.stderr


def test_affinity_for_cpus_that_are_not_there_is_dropped():
    seen = run(application(NEWEST) / "app.cjs", {}, text=plan(aff="core", excl=64, smt=1))
    assert "affinity none (the CPUs are not the exclusive ones that were planned)" in seen.lines[0]
    assert "pthread_setaffinity_np" not in seen.stderr


@pytest.mark.parametrize("content", ["", "not a library"])
def test_an_addon_that_is_none_fails_as_without_us(tmp_path, content):
    addon = tmp_path / "onnxruntime_binding.node"
    addon.write_text(content)
    program = tmp_path / "program.cjs"
    program.write_text(f"try {{ require({str(addon)!r}); }} catch (error) {{ console.error(error.message); }}")
    assert run(program, text=plan()).stderr == run(program).stderr


@pytest.mark.parametrize("hidden", [["/proc"], ["/sys"], ["/proc", "/sys"]], ids=" and ".join)
@pytest.mark.parametrize("fields", [{}, {"aff": "numa", "excl": 2, "smt": 1}], ids=["shared", "exclusive"])
def test_where_nothing_of_the_kernel_can_be_read_the_plan_stands(hidden, fields):
    prefix = node_lab.namespace(*(f"mount -t tmpfs none {path}" for path in hidden))
    seen = run(application(NEWEST) / "quiet.cjs", text=plan(**fields), prefix=prefix)
    assert seen.sessions == [{"ran": True}]
    lines = seen.lines
    assert len(lines) == 1
    assert "intra_op=2, inter_op=1, spinning off" in lines[0]


def test_a_process_without_standard_error_runs():
    seen = run(application(NEWEST) / "app.cjs", {}, text=plan(), prefix=["sh", "-c", 'exec "$@" 2>&-', "sh"])
    assert seen.threads == [1]


def test_a_file_that_has_taken_the_number_of_standard_error_gets_no_line(tmp_path):
    closing = {"NODE_OPTIONS": f"--require {preload()} --require {application(NEWEST) / 'closing.cjs'}"}
    victim = tmp_path / "data"
    seen = run(application(NEWEST) / "app.cjs", {}, text=plan(), env={**closing, "VICTIM": str(victim)})
    assert (seen.threads, seen.stderr, victim.read_text()) == ([1], "", "")


def test_a_file_of_the_shim_that_is_missing_costs_the_plan_and_nothing_else(tmp_path):
    """A mount that somebody cut down: the one file that --require names is there."""
    shutil.copy(preload(), tmp_path)
    options = {"NODE_OPTIONS": f"--require {tmp_path / 'raddle.cjs'}"}
    seen = run(application(NEWEST) / "app.cjs", {"intraOpNumThreads": 3}, text=plan(), env=options)
    assert seen.threads == [2]
    assert seen.lines == ["raddle: onnxruntime is left alone: Error: Cannot find module './onnxruntime.cjs'"]


def test_nothing_is_loaded_by_a_process_that_makes_no_sessions(tmp_path):
    program = tmp_path / "program.cjs"
    program.write_text(
        "console.log(JSON.stringify({sessions: [Object.keys(require.cache).filter((f) => /raddle|node\\/[a-z]+.cjs/.test(f)).length]}))"
    )
    assert run(program, text=plan()).sessions == [1]

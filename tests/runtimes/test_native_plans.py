"""What reaches ONNX Runtime's functions under the preloaded library: a stand-in for ORT writes down its calls.

For what needs many cases, hardware that isn't here (a GPU), or a libonnxruntime that nobody has published.
"""

import re
from types import SimpleNamespace

import pytest
from support.runtimes import shim_lab
from support.runtimes.native_caller import Caller, under
from support.runtimes.native_lab import program

from raddle import env
from raddle.planning.policy import FIELDS

pytestmark = pytest.mark.runtime

CPUS = shim_lab.two_cpus()

PLAN = "intra_op=2;inter_op=1;spinning=never"
ALLOW = "session.intra_op.allow_spinning"


@pytest.fixture
def reaching(tmp_path):
    """reaching(plan, *commands, **env): what the stand-in was called with, line by line, and Raddle's own lines."""

    def run(plan, *commands, stock=False, before=None, **extra):
        calls = tmp_path / "calls"
        calls.write_text("")
        chosen = {"STUB_CALLS": str(calls), **extra}
        with Caller(
            program("c", "stub"), chosen if stock else under(plan, **chosen), cpus=CPUS, before=before
        ) as caller:
            answers = [caller.ask(command) for command in ("env", *commands)]
            assert caller.end() == 0
            lines = caller.stderr.splitlines()
        found = calls.read_text().splitlines()
        session = next((line for line in found if line.startswith("CreateSession intra")), "")
        fields = dict(re.findall(r"(\w+)=(\S*)", session.partition(" entries=")[0]))
        entries = dict(pair.split("=") for pair in session.partition(" entries=")[2].split(",") if pair)
        return SimpleNamespace(calls=found, lines=lines, answers=answers, session=fields, entries=entries)

    return run


# The code's own count, the environment's, and what the session is made with under each of the two rules.
@pytest.mark.parametrize("variable", [None, "", "2", "3"])
@pytest.mark.parametrize("code", [None, "", "intra=0", "intra=-1", "intra=3"])
@pytest.mark.parametrize("existing", ["respect", "override"])
def test_counts_of_the_code_and_of_the_environment_against_the_plan(reaching, existing, code, variable):
    extra = {} if variable is None else {"ORT_INTRA_OP_NUM_THREADS": variable, "ORT_INTER_OP_NUM_THREADS": variable}
    commands = ["session s -"] if code is None else [f"options s {code}".rstrip(), "session s s"]
    found = reaching(f"{PLAN};existing_values={existing}", *commands, **extra)
    if existing == "override":
        expected = "2"
    elif code == "intra=3":
        expected = "3"
    elif variable == "3":
        expected = "3"  # also for releases that don't read the variable by themselves
    else:
        expected = "2"
    assert found.session["intra"] == expected
    assert set(found.answers) == {"ok"}


BAD = {
    "truncated": "v=1;intra_op=2;spi",
    "cut in a value": "v=1;intra_op=2;spinning=nev",
    "of a future version": "v=2;intra_op=2",
    "without a version": "intra_op=2",
    "JSON": '{"v": 1, "intra": 2}',
    "a word for a number": "v=1;intra_op=two",
    "a number for a word": "v=1;spinning=1",
    "no threads": "v=1;intra_op=0",
    "minus one thread": "v=1;intra_op=-1",
    "4096 threads": "v=1;intra_op=4096",
    "more than fits an integer": "v=1;intra_op=99999999999999999999",
    "as long as the kernel takes": "v=1;" + "x=1;" * 32000,
    "a path": "v=1;allocator=/tmp/evil.so",
    "an affinity of its own": "v=1;affinity=0-1023",
    "quotes and control characters": "v=1;intra_op='\x01\t\"",
    "not ASCII": "v=1;intra_op=２",
    "an empty part": "v=1;;intra_op=2",
}


@pytest.mark.parametrize("plan", BAD.values(), ids=BAD)
def test_with_a_bad_plan_the_program_runs_as_without_raddle_and_one_line_says_why(reaching, plan):
    commands = ("options a intra=3", "session s a", "session t -")
    stock = reaching(None, *commands, stock=True)
    found = reaching(None, *commands, RADDLE_PLAN=plan)
    assert found.calls == stock.calls
    with pytest.raises(env.PlanError) as error:
        env.decode(plan)
    (line,) = found.lines
    assert line.startswith("raddle: onnxruntime is not configured: plan ")
    # The same part of it as Python names.
    assert line.split()[6] == str(error.value).split()[1]


@pytest.mark.parametrize(
    "plan",
    [
        "affinity=core;exclusive_cpus=64;intra_op=2",
        "affinity=numa;exclusive_cpus=1;intra_op=2",
        "exclusive_cpus=65536;affinity=core",
    ],
)
def test_affinity_to_cpus_that_are_not_there_is_dropped(reaching, plan):
    found = reaching(f"{plan};spinning=never", "session s -")
    assert "affinity none" in found.lines[0]
    assert "session.intra_op_thread_affinities" not in found.entries


def test_the_log_can_be_silenced_and_is_said_once_in_a_process_tree(reaching):
    assert reaching(PLAN, "session s -", "session t -", RADDLE_LOG="0").lines == []
    said = reaching(PLAN, "session s -", "session t -", "fork", "env", "session u -").lines
    assert ["intra_op=2" in line for line in said] == [True, False]
    assert "was forked after 2 onnxruntime session(s)" in said[1]
    assert reaching(PLAN, "session s -", RADDLE_ANNOUNCED="torch,onnxruntime").lines == []
    assert len(reaching(PLAN, "session s -", RADDLE_ANNOUNCED="torch").lines) == 1


@pytest.mark.parametrize(
    ("version", "api"), [("1.13.1", "13"), ("1.10.0", "10"), ("2.0.0", "40"), ("", "20"), ("new", "20")]
)
def test_an_onnx_runtime_too_old_or_of_another_major_version_is_left_alone_with_one_line(reaching, version, api):
    commands = ("options a intra=3", "session s a", "session t -")
    chosen = {"STUB_VERSION": version, "STUB_API": api, "CALLER_API": "13" if api == "13" else str(min(int(api), 16))}
    stock = reaching(None, *commands, stock=True, **chosen)
    found = reaching(PLAN, *commands, **chosen)
    assert found.calls == stock.calls
    (line,) = found.lines
    assert line.startswith("raddle: onnxruntime")
    assert "is not configured" in line


def test_a_session_that_fails_with_the_plans_values_is_made_with_the_codes(reaching):
    found = reaching(PLAN, "options a intra=3", "session s a", STUB_REFUSES=f"{ALLOW}=0")
    assert found.answers == ["ok"] * 3
    assert found.session["intra"] == "3"
    assert found.entries.get(ALLOW) != "0"
    assert any("without the plan's values" in line for line in found.lines)


def test_a_session_that_fails_by_itself_fails_with_its_own_error(reaching):
    found = reaching(PLAN, "options a entry.own=1", "session s a", STUB_REFUSES="own=1")
    assert found.answers == ["ok", "ok", "error stub: refused"]


# What rembg does: both counts are the one that OMP_NUM_THREADS has, which Raddle has put there.
@pytest.mark.parametrize(("variable", "intra"), [("1", "1"), ("2", "2"), ("3", "3")])
def test_a_count_in_the_environment_is_never_raddles_also_where_it_is_what_is_planned(reaching, variable, intra):
    found = reaching(f"{PLAN};intra_op_without_shim=1", "session s -", ORT_INTRA_OP_NUM_THREADS=variable)
    assert found.session["intra"] == intra
    assert "set in the environment" in found.lines[0]


# Two CPUs; the threads that want one are the caller and the pool's workers, however many those came to be.
@pytest.mark.parametrize(
    ("options", "variables", "spinning"),
    [
        ("", {}, "spinning 200 us"),
        ("intra=3", {}, "spinning off (planned bounded, turned off: CPU affinity of 2)"),
        ("", {env.ORT_INTRA: "8"}, "spinning off (planned bounded, turned off: CPU affinity of 2)"),
        ("parallel=1 intra=2 inter=2", {}, "spinning off (planned bounded, turned off: CPU affinity of 2)"),
    ],
)
def test_spinning_is_decided_by_the_pools_that_there_are(reaching, options, variables, spinning):
    commands = (f"options a {options}".rstrip(), "session s a")
    found = reaching(
        "intra_op=2;spinning=bounded;spin_duration_us=200", *commands, STUB_VERSION="1.26.0", STUB_API="26", **variables
    )
    assert spinning in found.lines[0]


def test_a_plan_of_too_many_threads_spins_where_the_code_has_fewer(reaching):
    chosen = {"STUB_VERSION": "1.26.0", "STUB_API": "26"}
    commands = ("options a intra=2", "session s a")
    found = reaching("intra_op=8;min_intra_op=8;spinning=bounded;spin_duration_us=200", *commands, **chosen)
    assert "intra_op=2 (set in the code), inter_op=default, spinning 200 us" in found.lines[0]


def test_a_count_that_the_code_takes_back_is_none(reaching):
    found = reaching(PLAN, "options a intra=3 intra=0", "session s a")
    assert found.session["intra"] == "2"


@pytest.mark.parametrize(
    ("plan", "options", "entries"),
    [
        ("spinning=never", "", {ALLOW: "0"}),
        ("spinning=never", f"entry.{ALLOW}=1", {ALLOW: "1"}),
        ("spinning=never;existing_values=override", f"entry.{ALLOW}=1", {ALLOW: "0"}),
        ("spinning=always", "", {}),
        ("", "", {}),
        # The entry that a policy names goes before what follows from `spinning`; onnxruntime's default is not written.
        ("session.intra_op.allow_spinning=1;spinning=never", "", {}),
        ("session.dynamic_block_base=4", "", {"session.dynamic_block_base": "4"}),
        ("session.force_spinning_stop=1", "", {"session.force_spinning_stop": "1"}),
        ("session.set_denormal_as_zero=1", "", {"session.set_denormal_as_zero": "1"}),
        ("session.disable_prepacking=1", "entry.session.disable_prepacking=0", {"session.disable_prepacking": "0"}),
        (
            "session.disable_prepacking=1;existing_values=override",
            "entry.session.disable_prepacking=0",
            {"session.disable_prepacking": "1"},
        ),
        ("shared_allocator=1", "", {"session.use_env_allocators": "1"}),
    ],
)
def test_configuration_entries_reach_the_session(reaching, plan, options, entries):
    found = reaching(f"intra_op=2;{plan}".rstrip(";"), f"options a {options}".rstrip(), "session s a")
    assert found.entries == entries


def test_bounded_spinning_reaches_a_release_that_has_it(reaching):
    newer = {"STUB_VERSION": "1.28.0", "STUB_API": "28"}
    found = reaching("intra_op=2;spinning=bounded;spin_duration_us=300", "session s -", **newer)
    assert found.entries == {"session.intra_op.spin_duration_us": "300"}
    assert "spinning 300 us" in found.lines[0]
    assert reaching("intra_op=2;spinning=bounded;spin_duration_us=300", "session s -").entries == {ALLOW: "0"}


def test_a_release_newer_than_any_that_was_tested_gets_the_plan_and_the_line_says_so(reaching):
    newer = {"STUB_VERSION": "1.33.0", "STUB_API": "33"}
    found = reaching("intra_op=2;spinning=bounded;spin_duration_us=300", "session s -", **newer)
    assert found.session["intra"] == "2"
    assert found.entries == {"session.intra_op.spin_duration_us": "300"}
    assert found.lines[0].startswith("raddle: onnxruntime 1.33.0 (newer than tested): intra_op=2, ")


# Endless is ONNX Runtime's own spinning: nothing is said to it, in releases that can bound it and in others.
@pytest.mark.parametrize("version", ["1.20.0", "1.28.0"])
@pytest.mark.parametrize(("excl", "endless"), [(2, True), (1, False), (3, False)])
def test_on_the_cpus_that_the_plan_calls_exclusive_and_no_others_spinning_has_no_end(reaching, version, excl, endless):
    plan = (
        f"intra_op=2;inter_op=1;spinning=bounded;spin_duration_us=300;exclusive_cpus={excl};exclusive_spinning=always"
    )
    found = reaching(plan, "session s -", STUB_VERSION=version, STUB_API=version.split(".")[1])
    bounded = {"session.intra_op.spin_duration_us": "300"} if version == "1.28.0" else {ALLOW: "0"}
    assert found.entries == ({} if endless else bounded)
    assert ("spinning default" in found.lines[0]) == endless


def test_a_plan_may_be_above_the_quota_and_never_above_the_cpuset(reaching):
    plans = ("intra_op=2", "intra_op=2;over_quota=1", "intra_op=4;over_quota=1")
    with shim_lab.cgroup("cpu", cfs_quota_us="100000") as enter:
        counts = [reaching(plan, "session s -", before=enter).session["intra"] for plan in plans]
    assert counts == ["1", "2", "2"]


@pytest.mark.parametrize(
    ("plan", "options", "expected"),
    [
        ("graph_optimization_level=basic", "", {"graph": "1"}),
        ("graph_optimization_level=disable", "graph=2", {"graph": "2"}),
        ("graph_optimization_level=disable;existing_values=override", "graph=2", {"graph": "0"}),
        ("execution_mode=parallel;inter_op=2", "", {"parallel": "1", "inter": "2"}),
        ("execution_mode=sequential;inter_op=1", "parallel=1", {"parallel": "1"}),
        (
            "execution_mode=sequential;inter_op=1;existing_values=override",
            "parallel=1",
            {"parallel": "0", "inter": "1"},
        ),
        ("global_thread_pool=1", "", {"own_pool": "0"}),
    ],
)
def test_mode_level_and_pool_reach_the_session(reaching, plan, options, expected):
    found = reaching(f"intra_op=2;{plan}", f"options a {options}".rstrip(), "session s a")
    assert {key: found.session[key] for key in expected} == expected


@pytest.mark.parametrize(
    ("key", "one"),
    [(name, field.switch) for name, field in FIELDS.items() if field.switch],
    ids=lambda one: one if isinstance(one, str) else "",
)
def test_each_switch_reaches_the_session_of_a_release_that_has_it(reaching, key, one):
    initial, other = int(one.initial), int(not one.initial)
    cases = [
        (f"{key}={other}", "", "1.20.0", other),
        (f"{key}={initial}", f"{key.upper()}={other}", "1.20.0", other),
        (f"{key}={initial};existing_values=override", f"{key.upper()}={other}", "1.20.0", initial),
        (f"{key}={other}", "", f"1.{max(14, one.since)}.0", other),
    ]
    if one.since > 14:
        cases.append((f"{key}={other}", "", f"1.{one.since - 1}.0", initial))
    for plan, options, version, expected in cases:
        commands = (f"options a {options}".rstrip(), "session s a")
        found = reaching(f"intra_op=2;{plan}", *commands, STUB_VERSION=version)
        assert found.session[key.upper()] == str(expected), (plan, options, version)


def test_the_shared_arena_is_registered_once_by_the_shim_and_not_beside_the_applications_own(reaching):
    found = reaching("intra_op=2;shared_allocator=1", "session s -", "session t -")
    assert found.calls.count("CreateAndRegisterAllocator") == 1


@pytest.mark.parametrize(
    "plan", [PLAN, f"{PLAN};global_thread_pool=1;shared_allocator=1", f"{PLAN};existing_values=override"]
)
def test_sessions_that_many_threads_make_of_one_options_object_all_get_the_plan(reaching, plan):
    found = reaching(plan, "options a", "storm a 8", "session s a")
    assert set(found.answers) == {"ok"}
    made = [line for line in found.calls if line.startswith("CreateSession ")]
    assert len(made) == 8 * 20 * 2 + 1
    assert len(set(made)) == 1
    assert found.session["intra"] == "2" or found.session["own_pool"] == "0"


CUDA = "cuda.cudnn_conv_use_max_workspace=0;cuda.gpu_mem_limit=1073741824"


@pytest.mark.parametrize(
    ("plan", "command", "expected"),
    [
        (CUDA, "cuda2 a", {"cudnn_conv_use_max_workspace": "0", "gpu_mem_limit": "1073741824"}),
        (CUDA, "cuda2 a device_id=1", {"device_id": "1", "gpu_mem_limit": "1073741824"}),
        (CUDA, "cuda2 a gpu_mem_limit=5", {"cudnn_conv_use_max_workspace": "0", "gpu_mem_limit": "5"}),
        (f"{CUDA};existing_values=override", "cuda2 a gpu_mem_limit=5", {"gpu_mem_limit": "1073741824"}),
        (CUDA, "provider a CUDA gpu_mem_limit=5", {"cudnn_conv_use_max_workspace": "0", "gpu_mem_limit": "5"}),
        ("cuda.arena_extend_strategy=kSameAsRequested", "cuda2 a", {"arena_extend_strategy": "kSameAsRequested"}),
        ("xnnpack.intra_op_num_threads=2", "provider a XNNPACK", {"intra_op_num_threads": "2"}),
        ("xnnpack.intra_op_num_threads=2", "provider a XNNPACK intra_op_num_threads=4", {"intra_op_num_threads": "4"}),
        (
            "openvino.num_of_threads=2",
            "provider a OpenVINO device_type=CPU",
            {"num_of_threads": "2", "device_type": "CPU"},
        ),
        (CUDA, "provider a XNNPACK x=1", {"x": "1"}),
    ],
)
def test_provider_options_are_merged_into_those_that_the_application_passes(reaching, plan, command, expected, proves):
    found = reaching(f"intra_op=2;gpu=1;{plan}", "options a", command, "session s a")
    (call,) = [line for line in found.calls if line.startswith("AppendExecutionProvider")]
    # What is written last counts.
    passed = dict(pair.split("=") for pair in call.split()[-1].split(","))
    assert {key: passed.get(key) for key in expected} == expected
    assert set(found.answers) == {"ok"}


def test_the_plain_cuda_struct_is_left_as_it_is(reaching):
    commands = ("options a", "cuda a", "session s a")
    stock = reaching(None, *commands, stock=True)
    found = reaching(f"intra_op=2;{CUDA}", *commands)
    wanted = [call for call in stock.calls if "CUDA" in call]
    assert [call for call in found.calls if "CUDA" in call] == wanted


def test_options_that_no_provider_asks_for_change_nothing(reaching):
    found = reaching(f"intra_op=2;{CUDA}", "options a", "session s a")
    assert not [call for call in found.calls if "Provider" in call]

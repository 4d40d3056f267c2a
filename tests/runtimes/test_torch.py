"""Real PyTorch under a plan: torch's own report, the threads that the kernel shows, and who wins over whom."""

import os
import re
from pathlib import Path

import pytest
import yaml
from support.runtimes import families_lab, shim_lab, torch_lab

pytestmark = pytest.mark.runtime

CPUS = shim_lab.two_cpus()

EXAMPLE = Path(__file__).parents[2] / "examples" / "pytorch.yaml"
OMP, MKL = "OMP_NUM_THREADS", "MKL_NUM_THREADS"
# As the door has it.
COMPLETED = {"RADDLE_COMPLETED": f"{OMP}=2"}
PLAN = "omp=2;torch_inter_op=2"
BOTH = pytest.mark.parametrize("having", [torch_lab.installed, torch_lab.trixie])


@pytest.fixture
def planned(mounted, models):
    """Steps of torch_probe.py under this plan in a new process: planned(release, "omp=2", ["intra"], env={...})."""

    def run(release, plan, *steps, env):
        variables = {**shim_lab.python_path(mounted), "RADDLE_PLAN": "v=1;" + plan, **env}
        return torch_lab.probe(models, *steps, env=variables, python=release.python, cpus=CPUS)

    return run


@pytest.fixture
def imported(mounted, models, forked):
    """As planned, in a process that is forked from one that has imported torch, with two CPUs or those given."""

    def run(release, plan, *steps, env, cpus=CPUS):
        variables = {**shim_lab.python_path(mounted), "RADDLE_PLAN": "v=1;" + plan, **env}
        (_, *seen), said = forked(release, ["imported"], *steps, env=variables, cpus=cpus)
        return seen, said

    return run


def lines(stderr):
    """What Raddle said; torch and its libraries may have more to say."""
    return [line for line in stderr.splitlines() if line.startswith("raddle: ")]


def counts(info):
    """Of parallel_info: intra-op, inter-op."""
    return [int(re.search(rf"at::get_num_{name}\(\) : (\d+)", info)[1]) for name in ("threads", "interop_threads")]


# A team's threads bear the name of the one that made it, so only teams of one leave the pool's own to be counted.
@pytest.mark.parametrize(
    ("having", "intra", "inter", "total", "named"),
    [(torch_lab.installed, 1, 2, 3, 2), (torch_lab.installed, 2, 1, 4, 2), (torch_lab.trixie, 1, 2, 3, 2)],
)
def test_a_script_runs_on_exactly_the_planned_threads(planned, proves, having, intra, inter, total, named):
    release = having()
    steps = ["threads"], ["inter"], ["script"], ["info"], ["marks"], ["records"]
    seen, said = planned(
        release, f"omp={intra};torch_inter_op={inter}", *steps, env={"RADDLE_COMPLETED": f"{OMP}={intra}"}
    )
    before, answered, after, info, marks, records = seen
    # Nothing has been started by the import, and nothing by Raddle.
    assert (before["total"], answered) == (1, inter)
    assert (after["total"], after["pool"]) == (total, named)
    assert counts(info) == [intra, inter]
    got = {"torchIntraOp": intra, "torchInterOp": inter}
    assert [(made["runtime"], made["effective"], made["because"]) for made in records] == [("torch", got, {})]
    (mark,) = marks
    assert mark == f"torch {records[0]['version']}: intra_op={intra}, inter_op={inter}"
    assert lines(said) == [f"raddle: {mark}"]
    proves("PyTorch", release.version, "counts")


def test_the_examples_pod_has_one_thread_for_each_forked_branch_and_the_caller(imported):
    _, policy, deployment = yaml.safe_load_all(EXAMPLE.read_text())
    variables = families_lab.injected(deployment["spec"]["template"], policy)
    plan = variables["RADDLE_PLAN"].removeprefix("v=1;")
    seen, _ = imported(
        torch_lab.installed(), plan, ["script"], ["info"], env={"RADDLE_COMPLETED": f"{OMP}={variables[OMP]}"}
    )
    assert (seen[0]["total"], seen[0]["pool"], counts(seen[1])) == (3, 2, [1, 2])


def test_exclusive_cpus_tie_no_thread_since_request_threads_would_inherit_it(imported, models):
    plan = f"omp=2;torch_inter_op=1;affinity=core;exclusive_cpus=2;cpus={_listed(CPUS)};streams=1"
    seen, _ = imported(torch_lab.installed(), plan, ["eager"], ["eager_thread"], env=COMPLETED)
    assert (seen[0]["cpus"], seen[1]) == ([_listed(CPUS)], CPUS)
    # What libgomp makes of a bound team: anyone who calls torch is tied to the first place.
    bound = {OMP: "2", "OMP_PROC_BIND": "close", "OMP_PLACES": f"{{{CPUS[0]}}},{{{CPUS[1]}}}"}
    assert torch_lab.probe(models, ["eager_thread"], env=bound, cpus=CPUS)[0] == [[CPUS[0]]]


def _listed(cpus):
    """Two CPUs as the kernel lists them."""
    return f"{cpus[0]}-{cpus[1]}" if cpus[1] == cpus[0] + 1 else f"{cpus[0]},{cpus[1]}"


@pytest.mark.parametrize(
    ("having", "existing", "variables", "intra", "reason"),
    [
        (torch_lab.installed, "respect", COMPLETED, 2, ""),
        (torch_lab.installed, "respect", {OMP: "2"}, 2, " (OMP_NUM_THREADS)"),
        (torch_lab.installed, "respect", {OMP: ""}, 2, ""),
        (torch_lab.installed, "respect", {OMP: "3"}, 3, " (OMP_NUM_THREADS)"),
        (torch_lab.installed, "respect", {OMP: "2", MKL: "3"}, 3, " (MKL_NUM_THREADS)"),
        (torch_lab.installed, "respect", {OMP: "3", MKL: "2"}, 2, " (MKL_NUM_THREADS)"),
        (torch_lab.installed, "override", {}, 2, ""),
        (torch_lab.installed, "override", {OMP: "3"}, 2, " (OMP_NUM_THREADS=3 is overridden)"),
        (torch_lab.installed, "override", {OMP: "2", MKL: "3"}, 2, " (MKL_NUM_THREADS=3 is overridden)"),
        (torch_lab.trixie, "respect", {OMP: "2", MKL: "3"}, 3, " (MKL_NUM_THREADS)"),
        (torch_lab.trixie, "override", {OMP: "3"}, 2, " (OMP_NUM_THREADS=3 is overridden)"),
    ],
)
def test_the_code_wins_over_mkls_variable_and_that_over_openmps(
    planned, imported, proves, having, existing, variables, intra, reason
):
    release = having()
    # One release's cases in processes of their own, with the variables before they start; the other's are forked.
    probed = planned if having is torch_lab.trixie or variables is COMPLETED else imported
    steps = (
        ["intra"],
        ["eager"],
        ["set_intra", 4],
        ["intra"],
        ["set_inter", 3],
        ["script"],
        ["inter"],
        ["records"],
        ["marks"],
    )
    seen, said = probed(release, f"{PLAN};existing_values={existing}", *steps, env=variables)
    before, team, _, after, _, _, inter, records, marks = seen
    # set_num_threads also starts torch's other pool (pthreadpool), asleep and as large: so it is left alone mostly.
    asleep = 1 if "overridden" in reason or (not reason and variables is not COMPLETED) else 0
    assert (before, team["total"]) == (intra, intra + asleep)
    respected = existing == "respect"
    assert (after, inter) == ((4, 3) if respected else (2, 2))
    expected = [f"raddle: torch {records[0]['version']}: intra_op={intra}{reason}, inter_op=2"]
    if not respected:
        expected.append("raddle: torch.set_num_threads(4) is overridden: intra_op=2")
        expected.append("raddle: torch.set_num_interop_threads(3) has no effect: the policy overrides it, inter_op=2")
    else:
        assert records[0]["effective"] == {"torchIntraOp": 4, "torchInterOp": 3}
        assert records[0]["because"] == {"torchIntraOp": "set in the code", "torchInterOp": "set in the code"}
        above = "set in the code, above CPU affinity of 2"
        name = f"torch {records[0]['version']}"
        expected.append(f"raddle: {name}: intra_op=4 ({above}), inter_op=2")
        expected.append(f"raddle: {name}: intra_op=4 ({above}), inter_op=3 ({above})")
        assert marks == [expected[-1].partition(" ")[2]]
    assert lines(said) == expected
    proves("PyTorch", release.version, "existing values")


def test_a_count_that_is_only_the_machine_s_is_the_plan_s_and_each_other_one_is_said_once(imported):
    every = os.cpu_count()
    steps = [step for count in (every, every + 1, 1, every + 1) for step in (["set_intra", count], ["intra"])]
    seen, said = imported(torch_lab.installed(), PLAN, *steps, ["marks"], env=COMPLETED, cpus=CPUS[:1])
    assert seen[1:8:2] == [1, every + 1, 1, every + 1]
    assert [line.partition(": intra_op=")[2].partition(", inter_op")[0] for line in lines(said)] == [
        "1 (planned 2, cut to CPU affinity of 1)",
        f"{every + 1} (set in the code, above CPU affinity of 1)",
        "1 (set in the code)",
    ]
    assert f"intra_op={every + 1} (set in the code" in seen[-1][0]


@BOTH
def test_an_inter_op_count_that_comes_after_the_first_script_fails_no_process(imported, having):
    # torch 1.13 is killed by such a call, newer ones raise; ours must not be the reason.
    steps = ["uses"], ["hooks"], ["set_inter", 3], ["inter"]
    (used, hooks, _, inter), said = imported(having(), PLAN, *steps, env=COMPLETED)
    assert inter == 2
    # TorchScript does what it does, and from its first run on nothing stands before it.
    assert (set(used), len(used), hooks) == ({2.0}, 23, [])
    assert lines(said)[1:] == [
        "raddle: torch.set_num_interop_threads(3) has no effect: TorchScript has run before, inter_op=2"
    ]


@BOTH
def test_nor_does_a_count_of_numpys_own_type(imported, having):
    (_, _, inter), _ = imported(having(), PLAN, ["uses"], ["set_inter_numpys", 3], ["inter"], env=COMPLETED)
    assert inter == 2


@BOTH
def test_a_pool_that_was_made_behind_pythons_back_is_noticed_and_left(imported, having):
    seen, said = imported(having(), PLAN, ["native_pool"], ["script"], ["inter"], env=COMPLETED)
    made = seen[0]["pool"]
    assert made >= 1
    assert seen[2] == made
    assert lines(said)[1:] == [f"raddle: torch keeps {made} inter-op threads: they may have been set before"]


def test_a_torch_that_was_imported_before_the_shim_gets_what_is_safe(mounted, models, forked):
    variables = {**shim_lab.python_path(mounted), "RADDLE_PLAN": "v=1;" + PLAN}
    steps = ["set_inter", 3], ["shim"], ["intra"], ["script"], ["inter"]
    (_, activated, *seen), said = forked(torch_lab.installed(), *steps, env=variables, cpus=CPUS)
    assert activated
    assert (seen[0], seen[2]) == (2, 3)
    assert lines(said)[1:] == ["raddle: torch keeps 3 inter-op threads: they may have been set before"]


def test_a_plan_that_does_not_fit_the_cpus_is_cut(imported):
    steps = ["intra"], ["script"], ["info"]
    seen, said = imported(torch_lab.installed(), PLAN, *steps, env=COMPLETED, cpus=CPUS[:1])
    assert (seen[0], seen[1]["pool"], counts(seen[2])) == (1, 1, [1, 1])
    reason = "planned 2, cut to CPU affinity of 1"
    (line,) = lines(said)
    assert line.partition(": intra_op")[2] == f"=1 ({reason}), inter_op=1 ({reason})"


@BOTH
def test_a_count_reaches_no_thread_that_has_worked_but_its_own(imported, having):
    """Why nothing follows a cpuset that changes: only the thread itself could."""
    (seen,), _ = imported(having(), "omp=2", ["set_beside"], env=COMPLETED)
    assert seen == [2, 2, 1]


@pytest.mark.parametrize(
    ("plan", "said"),
    [
        ("", ""),
        ("v=1;omp=4096", "raddle: torch is not configured: plan field omp='4096' must be an integer from 1 to 1024"),
    ],
)
def test_no_plan_and_a_bad_one_leave_torch_as_it_is(imported, plan, said):
    steps = ["is_torchs_own"], ["intra"], ["records"]
    seen, stderr = imported(torch_lab.installed(), "", *steps, env={"RADDLE_PLAN": plan, OMP: "2"})
    assert seen[:2] == [True, 2]
    assert seen[2] == []
    assert "\n".join(lines(stderr)) == said


def test_a_fork_after_parallel_work_is_warned_about_and_a_data_loaders_is_not(imported):
    # Its worker asks torch for one thread, and has it under override too.
    steps = ["fork"], ["loader"], ["eager"], ["loader"], ["fork"]
    seen, said = imported(torch_lab.installed(), PLAN + ";existing_values=override", *steps, env={OMP: "2"})
    assert (seen[1], seen[3]) == (1, 1)
    (warning,) = lines(said)[1:]
    assert re.fullmatch(
        r"raddle: this process was forked after torch, or another library, had started threads: .*", warning
    )


@pytest.mark.parametrize(("how", "count"), [("alone", 1), ("set", 2), ("openmp", 3)])
@BOTH
def test_workers_forked_after_the_import_divide_the_cpus_unless_the_code_has_set_a_count(planned, having, how, count):
    (seen,), said = planned(having(), "omp=2", ["workers", how], env=COMPLETED)
    # And nothing of ours is left in the way of the next call.
    assert seen == [[count, True, "builtin_function_or_method"]] * 2
    assert said.count("shared by 2 workers") == (how == "alone")


def test_torchruns_own_count_of_one_thread_a_process_is_not_beaten(mounted, tmp_path):
    torch_lab.installed()
    program = tmp_path / "worker.py"
    program.write_text(
        "import os, pathlib, torch\n"
        "torch.tanh(torch.ones(600, 600))\n"
        "threads = len(os.listdir('/proc/self/task'))\n"
        "out = pathlib.Path(__file__).with_name(os.environ['RANK'])\n"
        "out.write_text(f\"{os.environ['OMP_NUM_THREADS']} {torch.get_num_threads()} {threads}\")\n"
    )
    # Where the container has no OMP_NUM_THREADS, torchrun gives each of several processes one thread.
    variables = {**shim_lab.python_path(mounted), "RADDLE_PLAN": "v=1;" + PLAN}
    # (torch 1.13's defaults for the outputs fail on Python 3.11.)
    outputs = ["--redirects=2", "--tee=2"]
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2", *outputs, str(program)]
    done = shim_lab.python(torch_lab.PYTHON, *launch, env=variables, cpus=CPUS)
    assert [(tmp_path / rank).read_text() for rank in "01"] == ["1 1 1", "1 1 1"]
    # The launcher has said it for all of them.
    assert len(lines(done.stderr)) == 1


LIMITED = """
import sys

def limit(frame, event, _):
    if frame.f_code.co_name == "read_facts":
        sys.settrace(None)
        raise TimeoutError("the limit")

sys.settrace(limit)
try:
    import torch
except TimeoutError as error:
    print(error)
"""


def test_what_a_signal_handler_raises_while_torch_is_imported_reaches_the_application(mounted):
    torch_lab.installed()
    variables = {**shim_lab.python_path(mounted), "RADDLE_PLAN": "v=1;omp=2"}
    done = shim_lab.python(torch_lab.PYTHON, "-c", LIMITED, env=variables)
    assert (done.stdout, done.stderr) == ("the limit\n", "")

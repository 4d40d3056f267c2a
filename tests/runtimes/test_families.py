"""The families of a policy, each in the real runtime: it counts what the plan says, and waits as the plan says.

A process gets exactly the variables that a container would start with, and the runtime itself, or the kernel, counts.
"""

import itertools

import pytest
from support.runtimes import door_lab, shim_lab
from support.runtimes import families_lab as lab

from raddle import env

pytestmark = pytest.mark.runtime

LIMITS = {0.5: 1, 1.5: 2, 4: 4}
# Two seconds per process: scikit-learn's library is one more libgomp, and TensorFlow tells no count.
COSTLY = ("libgomp of scikit-learn", "TensorFlow")
COUNTING = [name for name in lab.RUNTIMES if name not in COSTLY]
OPENMP = ["libgomp", "LLVM libomp 16", "LLVM libomp 19", "Intel OpenMP"]
LLVM = OPENMP[1:]
TEAMS = (*OPENMP, "OpenBLAS", "MKL", "BLIS with OpenMP", "BLIS with threads", "libgomp of scikit-learn")
SPINS_FOREVER_MS = 2**31 - 1
# Idle threads that sleep use none; those that spin use this much in any case, however busy the machine is.
ASLEEP_S = 0.05
SPINNING_S = 0.15
TRIES = 5

needs_two_cpus = pytest.mark.skipif(lab.CPUS < 2, reason="one CPU: a team of one has nobody who could wait")


def expected(name, threads):
    """What a runtime says when it is asked for so many threads: some never use more than there are CPUs."""
    if name == "libuv":
        return max(4, threads)
    return min(threads, lab.CPUS) if lab.RUNTIMES[name].bounded else threads


def count(name, variables, command=None):
    if name == "JVM":
        # The shim adds its option.
        variables = {**variables, "LD_PRELOAD": str(door_lab.tree() / "libraddle.so")}
    said = lab.run(command or lab.RUNTIMES[name].command(), variables)
    complaints = [line for line in said["stderr"].splitlines() if "JAVA_TOOL_OPTIONS" not in line]
    assert complaints == []
    return said


def proven(proves, name, said, control):
    row = lab.RUNTIMES[name].row
    if row:
        proves(row, lab.version(name, said), control)


@pytest.mark.parametrize(("name", "limit_cpus"), [*itertools.product(COUNTING, LIMITS), ("libgomp of scikit-learn", 4)])
def test_the_runtime_counts_the_threads_of_the_plan(proves, name, limit_cpus):
    variables = lab.environment(limit_cpus, lab.RUNTIMES[name].families)
    said = count(name, variables)
    assert said["count"] == expected(name, LIMITS[limit_cpus])
    assert said.get("team", said["count"]) == said["count"]
    proven(proves, name, said, "counts")


@pytest.mark.parametrize(("existing", "threads"), [("Respect", 3), ("Override", 2)])
@pytest.mark.parametrize("name", COUNTING)
def test_a_count_of_the_pod_spec_stays_unless_the_policy_overrides_it(proves, name, existing, threads):
    runtime = lab.RUNTIMES[name]
    own = "-Down=1 -XX:ActiveProcessorCount=3" if name == "JVM" else "3"
    said = count(name, lab.environment(2, runtime.families, sets={runtime.variable: own}, existingValues=existing))
    # libuv's plan is never below its own 4.
    assert said["count"] == (3 if name == "libuv" and existing == "Respect" else expected(name, threads))
    if name == "JVM":
        assert said["own"] == "1"
    proven(proves, name, said, "existing values")


@pytest.mark.parametrize(("name", "more"), [("OpenBLAS", ()), ("MKL", ()), ("BLIS with OpenMP", ("torch",))])
def test_without_a_shim_blas_has_one_thread_beside_another_pool_under_a_limit_and_openmp_its_own(name, more):
    families = {"onnxruntime", "openmp", *lab.RUNTIMES[name].families, *more}
    variables = lab.environment(4, families, shim="None")
    assert variables[env.OMP] == "3"
    assert count(name, variables)["count"] == 1


@pytest.mark.parametrize("name", ["MKL", "BLIS with threads", "numexpr"])
def test_what_follows_openmp_by_itself_gets_no_variable_that_would_beat_an_entrypoints_choice(name):
    variables = lab.environment(4, ("openmp", *lab.RUNTIMES[name].families))
    assert lab.RUNTIMES[name].variable not in variables
    assert count(name, variables)["count"] == expected(name, 4)
    assert count(name, {**variables, env.OMP: "1"})["count"] == 1


def test_mkl_under_torch_is_never_below_openmps_count_since_torch_takes_its_own_from_it():
    variables = lab.environment(4, ("onnxruntime", "torch", "openmp", "blas", "mkl"), shim="None")
    assert variables[env.OPENBLAS] == "1"
    assert count("MKL", variables)["count"] == expected("MKL", 3)


def test_numexpr_is_never_asked_for_more_than_it_takes():
    asked_for_more = lab.run(lab.RUNTIMES["numexpr"].command(), {env.OMP: "100"})
    assert (asked_for_more["count"], "NUMEXPR_MAX_THREADS" in asked_for_more["stderr"]) == (1, True)
    variables = lab.environment(100, ("openmp", "numexpr"))
    assert variables[env.OMP] == "100"
    assert count("numexpr", variables)["count"] == 64


@needs_two_cpus
def test_without_a_shim_joblibs_processes_have_one_thread_each(proves):
    command = (*lab.RUNTIMES["joblib"].command(), "inside")
    said = count("joblib", lab.environment(lab.CPUS, ("openmp", "joblib"), shim="None"), command)
    assert (said["count"], said["inside"]) == (lab.CPUS, "1")
    proven(proves, "joblib", said, "counts")


def test_tensorflows_two_pools_have_the_threads_of_the_plan(proves):
    command = lab.RUNTIMES["TensorFlow"].command()
    small, large = (lab.run(command, lab.environment(cpus, ("tensorflow",))) for cpus in (0.5, 6))
    assert large["count"] - small["count"] == 5
    assert (small["inter"], large["inter"]) == (1, 1)
    proven(proves, "TensorFlow", large, "counts")


# --- an annotation that resolves to nothing -------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["libgomp", "Intel OpenMP", "OpenBLAS", "MKL", "numexpr"])
def test_a_reference_that_resolves_to_nothing_counts_as_unset(name):
    command = lab.RUNTIMES[name].command()
    said = lab.run(command, dict.fromkeys((env.OMP, env.OPENBLAS), ""))
    assert said["count"] == lab.run(command, {})["count"]
    # libgomp says so, and goes on.
    assert said["stderr"].strip() in {"", f"libgomp: Invalid value for environment variable {env.OMP}"}


@pytest.mark.parametrize("name", ["LLVM libomp 16", "LLVM libomp 19"])
def test_debians_llvm_openmp_ends_the_process_where_an_annotation_was_taken_from_the_pod(name):
    """A known limit, said in docs/reference/families.md: the count must come from an annotation to fit the node."""
    broken = lab.run(lab.RUNTIMES[name].command(), {env.OMP: ""}, check=False)
    assert broken["status"] != 0
    assert "Assertion failure" in broken["stderr"]


def test_the_python_shim_takes_the_empty_variable_away_before_llvm_sees_it(tmp_path):
    library = lab.debian() / "usr/lib/llvm-19/lib/libomp.so.5"
    program = f"import ctypes; print(ctypes.CDLL('{library}').omp_get_max_threads())"
    empty = dict.fromkeys((env.OMP, env.PLAN), "")
    broken = shim_lab.python(shim_lab.THIS_PYTHON, "-c", program, env=empty, check=False)
    assert "Assertion failure" in broken.stderr
    shim = shim_lab.python_path(shim_lab.mount(tmp_path))
    assert int(shim_lab.python(shim_lab.THIS_PYTHON, "-c", program, env={**empty, **shim}).stdout) == lab.CPUS


@pytest.mark.parametrize(("name", "complaint"), [("tokio", "must be usize"), ("joblib", "invalid literal")])
def test_where_an_empty_value_ends_the_process_the_variable_is_a_literal(name, complaint):
    runtime = lab.RUNTIMES[name]
    broken = lab.run(runtime.command(), {runtime.variable: ""}, check=False)
    assert broken["status"] != 0
    assert complaint in broken["stderr"]


# --- waiting --------------------------------------------------------------------------------------------------------


def idle(library, spinning, *, seconds):
    """What a team of two does after its work: for half a second, or until it has taken so much CPU time."""
    variables = lab.environment(2, ("openmp",), threads={"spinning": spinning}) if spinning else {env.OMP: "2"}
    return lab.run((lab.openmp(library), "500" if seconds is None else "20000", str(seconds or 9)), variables)


@needs_two_cpus
@pytest.mark.parametrize("name", OPENMP)
def test_a_team_sleeps_after_its_work_or_spins_on_as_the_policy_says(proves, name):
    library = lab.RUNTIMES[name].library
    never = idle(library, "Never", seconds=None)
    bounded = idle(library, "Auto", seconds=None)
    always = idle(library, "Always", seconds=SPINNING_S)
    print(
        f"{name}: CPU time of an idle team: Never {never['idle_s']}, Auto {bounded['idle_s']}, Always {always['idle_s']}"
    )
    assert never["idle_s"] < ASLEEP_S
    assert bounded["idle_s"] < ASLEEP_S
    assert always["idle_s"] >= SPINNING_S
    if name in LLVM:
        assert [said["blocktime_ms"] for said in (never, bounded, always)] == [0, 1, SPINS_FOREVER_MS]
    proven(proves, name, always, "spinning")


@needs_two_cpus
@pytest.mark.parametrize("name", LLVM)
def test_stock_llvm_teams_spin_for_two_periods_of_a_cpu_limit_and_planned_ones_hardly(name):
    library = lab.RUNTIMES[name].library
    planned = idle(library, "Auto", seconds=None)
    # It spins by the clock, which costs nothing while a busy machine has its CPUs elsewhere.
    for _ in range(TRIES):
        stock = idle(library, None, seconds=None)
        if planned["idle_s"] * 3 < stock["idle_s"]:
            break
    assert stock["blocktime_ms"] == 200
    assert planned["idle_s"] * 3 < stock["idle_s"]


@needs_two_cpus
def test_openblas_threads_spin_so_without_a_shim_there_is_one_under_a_limit_of_two_cpus():
    # OpenBLAS's own, in place of the tests'.
    timeout = {"OPENBLAS_THREAD_TIMEOUT": "26"}
    stock, planned = (count("OpenBLAS", {**one, **timeout}) for one in ({}, lab.environment(2, ("blas",), shim="None")))
    assert (stock["count"], planned["count"]) == (2, 1)
    assert planned["idle_s"] * 5 < stock["idle_s"]


# --- places ---------------------------------------------------------------------------------------------------------


@needs_two_cpus
@pytest.mark.parametrize("name", OPENMP)
def test_proc_bind_would_tie_all_that_a_program_starts_later_to_one_cpu_so_it_is_never_set(name):
    bound = count(name, {env.OMP: "2", "OMP_PROC_BIND": "close"})
    assert bound["cpus"] == 1
    planned = count(name, lab.environment(2, ("openmp",)))
    assert planned["cpus"] == lab.CPUS

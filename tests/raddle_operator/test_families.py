"""What each family adds to a container: plain values from the plan, which yield to what the pod spec says."""

from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from support.runtimes import families_lab as lab

from raddle import env
from raddle.planning import families, policy, values
from raddle.planning.families import FAMILIES, ValueSource
from raddle.planning.planner import Budget, plan
from raddle_operator.injection import plan_annotations
from raddle_operator.injection.literals import VARIABLES, literals

EXAMPLES = Path(__file__).parents[2] / "examples"
PROCESSORS = "-XX:ActiveProcessorCount=4"


def added(runtimes, *, limit_cpus=4.0, sets=None, workers=1, shim=True, **spec):
    wanted = policy.parse({"runtimes": list(runtimes), **spec})
    planned = plan(None, Budget(quota_cpus=limit_cpus, workers=workers, shim=shim), wanted)
    return literals(planned, wanted, sets=sets or {})


def test_references_are_the_counts_that_annotations_carry_and_nothing_else():
    references = {v.name for family in FAMILIES for v in family.variables if v.source is ValueSource.REFERENCE}
    assert references == set(plan_annotations.COUNTS)
    assert not references & VARIABLES


@pytest.mark.parametrize("name", ["NUMEXPR_MAX_THREADS", "MKL_DYNAMIC", "OMP_PROC_BIND", "OMP_PLACES", "KMP_AFFINITY"])
def test_what_caps_or_pins_for_good_is_never_set(name):
    assert name not in VARIABLES


@pytest.mark.parametrize(
    ("runtimes", "limit_cpus", "expected"),
    [
        (["mkl"], 4, {"MKL_NUM_THREADS": "4", "KMP_BLOCKTIME": "1"}),
        (["onnxruntime", "blis"], 4, {"BLIS_NUM_THREADS": "4"}),
        (["numexpr"], 4, {"NUMEXPR_NUM_THREADS": "4"}),
        (["rayon"], 1.5, {"RAYON_NUM_THREADS": "2"}),
        (["rayon"], 0.5, {"RAYON_NUM_THREADS": "1"}),
        (["tokio"], 3, {"TOKIO_WORKER_THREADS": "3"}),
        (["go"], 1.5, {"GOMAXPROCS": "2"}),
        (["libuv"], 2, {"UV_THREADPOOL_SIZE": "4"}),
        (["libuv"], 8, {"UV_THREADPOOL_SIZE": "8"}),
        (["joblib"], 4, {"LOKY_MAX_CPU_COUNT": "4"}),
        (["python"], 4, {"PYTHON_CPU_COUNT": "4"}),
        (["tensorflow"], 4, {"TF_NUM_INTRAOP_THREADS": "4", "TF_NUM_INTEROP_THREADS": "1"}),
        (["onnxruntime"], 4, {}),
        (["openmp"], 4, {"KMP_BLOCKTIME": "1"}),
        (["torch"], 4, {"KMP_BLOCKTIME": "1"}),
        (["blas"], 4, {}),
        (families.DEFAULT, 4, {"KMP_BLOCKTIME": "1"}),
    ],
)
def test_each_family_gets_its_variables_from_the_limit(runtimes, limit_cpus, expected):
    assert added(runtimes, limit_cpus=limit_cpus).values == expected


@pytest.mark.parametrize(
    ("spinning", "expected"),
    [
        ("Never", {"OMP_WAIT_POLICY": "PASSIVE", "KMP_BLOCKTIME": "0"}),
        ("Auto", {"KMP_BLOCKTIME": "1"}),
        ("Bounded", {"KMP_BLOCKTIME": "1"}),
        ("Always", {"OMP_WAIT_POLICY": "ACTIVE"}),
    ],
)
def test_spinning_decides_how_idle_teams_wait(spinning, expected):
    assert added(["openmp", "blas"], threads={"spinning": spinning}).values == expected


@pytest.mark.parametrize(
    ("runtimes", "expected"),
    [
        # Beside ONNX Runtime under a limit MKL has one thread, unless torch would take that for its own count.
        (["onnxruntime", "openmp", "blas", "mkl"], "1"),
        (["onnxruntime", "mkl"], "1"),
        (["onnxruntime", "torch", "openmp", "blas", "mkl"], None),
        # It follows OMP_NUM_THREADS by itself.
        (["openmp", "mkl"], None),
    ],
)
def test_mkl_gets_a_count_only_where_it_differs_from_openmps_and_never_less_beside_torch(runtimes, expected):
    assert added(runtimes, shim=False).values.get("MKL_NUM_THREADS") == expected


@pytest.mark.parametrize("name", ["OMP_NUM_THREADS", "OMP_PROC_BIND", "OMP_WAIT_POLICY"])
@pytest.mark.parametrize("family", ["mkl", "blis", "numexpr"])
def test_a_pod_that_sets_openmp_itself_gets_nothing_that_beats_it(family, name):
    values = added(["onnxruntime", "blas", family], sets={name: "1"}).values
    assert not values.keys() & {"MKL_NUM_THREADS", "BLIS_NUM_THREADS", "NUMEXPR_NUM_THREADS"}


@pytest.mark.parametrize(
    ("runtimes", "given", "values"),
    [
        # Workers share what one process would have.
        (["go", "rayon"], {"limit_cpus": 8, "workers": 4}, {"RAYON_NUM_THREADS": "2", "GOMAXPROCS": "2"}),
        # As many calls as the policy names can wait in libuv.
        (["libuv"], {"limit_cpus": 2, "budget": {"concurrentRuns": 16}}, {"UV_THREADPOOL_SIZE": "16"}),
        # A count that the policy names holds without any limit, and without one nothing else is known.
        (
            ["rayon", "go"],
            {"limit_cpus": None, "threads": {"intraOp": 3}},
            {"RAYON_NUM_THREADS": "3", "GOMAXPROCS": "3"},
        ),
        (["rayon", "go", "jvm", "libuv", "mkl"], {"limit_cpus": None}, {"KMP_BLOCKTIME": "1"}),
        # OpenMP's count is more than numexpr takes.
        (["openmp", "numexpr"], {"limit_cpus": 100}, {"KMP_BLOCKTIME": "1", "NUMEXPR_NUM_THREADS": "64"}),
    ],
)
def test_the_policy_and_the_budget_decide_with_the_limit(runtimes, given, values):
    assert added(runtimes, **given).values == values


def test_workers_share_javas_processors_too():
    assert added(["jvm"], limit_cpus=8, workers=4).added == {"JAVA_TOOL_OPTIONS": "-XX:ActiveProcessorCount=2"}


@pytest.mark.parametrize(
    ("present", "existing", "value", "kept"),
    [
        ("7", "Respect", None, ("GOMAXPROCS",)),
        (None, "Respect", None, ("GOMAXPROCS",)),
        ("", "Respect", "4", ()),
        ("7", "Override", "4", ()),
        (None, "Override", "4", ()),
    ],
    ids=["literal", "reference", "empty", "overridden", "overridden reference"],
)
def test_what_the_pod_spec_sets_stays_unless_the_policy_overrides_it(present, existing, value, kept):
    found = added(["go"], sets={"GOMAXPROCS": present}, existingValues=existing)
    assert (found.values.get("GOMAXPROCS"), found.kept) == (value, kept)


@pytest.mark.parametrize(
    ("sets", "existing", "kept"),
    [
        ({}, "Respect", False),
        ({"JAVA_TOOL_OPTIONS": "-Xmx1g"}, "Respect", False),
        ({"JAVA_TOOL_OPTIONS": None}, "Respect", False),
        ({"JAVA_TOOL_OPTIONS": "-Xmx1g -XX:ActiveProcessorCount=9"}, "Respect", True),
        ({"JAVA_TOOL_OPTIONS": "-Xmx1g -XX:ActiveProcessorCount=9"}, "Override", False),
    ],
)
def test_javas_option_is_added_in_the_process_unless_the_pod_spec_has_it(sets, existing, kept):
    found = added(["jvm"], sets=sets, existingValues=existing)
    assert found.values == {}
    assert found.added == ({} if kept else {"JAVA_TOOL_OPTIONS": PROCESSORS})
    assert found.kept == (("JAVA_TOOL_OPTIONS",) if kept else ())


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("openmp", {"OMP_NUM_THREADS": "4", "OMP_WAIT_POLICY": "PASSIVE", "KMP_BLOCKTIME": "0"}),
        ("blas", {"OPENBLAS_NUM_THREADS": "4"}),
        ("mkl", {"OMP_NUM_THREADS": "4", "MKL_NUM_THREADS": None}),
        ("joblib", {"LOKY_MAX_CPU_COUNT": "8"}),
        ("rust", {"RAYON_NUM_THREADS": "2", "TOKIO_WORKER_THREADS": "2"}),
        ("go", {"GOMAXPROCS": "1"}),
        ("jvm", {"RADDLE_LITERALS": "JAVA_TOOL_OPTIONS=-XX:ActiveProcessorCount=2"}),
        ("libuv", {"UV_THREADPOOL_SIZE": "8", "ORT_INTRA_OP_NUM_THREADS": "1"}),
        ("python", {"PYTHON_CPU_COUNT": "2"}),
        ("tensorflow", {"TF_NUM_INTRAOP_THREADS": "4", "TF_NUM_INTEROP_THREADS": "1"}),
    ],
)
def test_each_example_starts_with_what_its_comment_says(name, expected):
    namespace, policy_object, deployment = yaml.safe_load_all((EXAMPLES / f"{name}.yaml").read_text())
    assert namespace["kind"] == "Namespace"
    variables = lab.injected(deployment["spec"]["template"], policy_object)
    assert {variable: variables.get(variable) for variable in expected} == expected


budgets = st.fixed_dictionaries(
    {
        "quota_cpus": st.none() | st.floats(min_value=0.01, max_value=1e9),
        "workers": st.integers(1, 100000),
        "smallest_cores": st.none() | st.integers(1, 100000),
    }
).map(lambda fields: Budget(**fields))
policies = st.fixed_dictionaries(
    {
        "objective": st.sampled_from(["Latency", "Throughput"]),
        "sessions": st.integers(1, 1024),
        "concurrent_runs": st.integers(1, 1024),
        "intra_op": st.none() | st.integers(1, 1024),
        "spinning": st.sampled_from(["Auto", "Always", "Bounded", "Never"]),
        "runtimes": st.sets(st.sampled_from(families.NAMES), min_size=1).map(tuple),
        "existing_values": st.sampled_from(["Respect", "Override"]),
    }
).map(lambda fields: policy.Policy(**fields))
texts = st.none() | st.sampled_from(["", "3", "-Xmx1g", "-XX:ActiveProcessorCount=2 -Xmx1g"])
environments = st.dictionaries(st.sampled_from(sorted({*VARIABLES, env.OMP})), texts)


@given(budgets, policies, environments)
def test_every_count_is_a_plain_positive_integer_that_runtimes_take(budget, wanted, sets):
    for name, value in literals(plan(None, budget, wanted), wanted, sets=sets).values.items():
        if name == "OMP_WAIT_POLICY":
            assert value in {"ACTIVE", "PASSIVE"}
        else:
            assert value.isascii()
            assert value.isdigit()
            assert (0 if name == "KMP_BLOCKTIME" else 1) <= int(value) <= env.MAX_THREADS
            assert value == str(int(value))


@given(budgets, policies, environments)
def test_respected_values_of_the_pod_spec_are_never_among_those_that_are_set(budget, wanted, sets):
    wanted = wanted._replace(existing_values="Respect")
    found = literals(plan(None, budget, wanted), wanted, sets=sets)
    there = {name for name, value in sets.items() if value != "" and name != "JAVA_TOOL_OPTIONS"}
    assert not there & found.values.keys()
    assert set(found.kept) <= sets.keys()


def test_every_value_is_a_function_s_name_or_comes_from_an_annotation():
    named = {one.value for family in FAMILIES for one in family.variables if one.source is not ValueSource.REFERENCE}
    assert named - values._FUNCTIONS.keys() == set()

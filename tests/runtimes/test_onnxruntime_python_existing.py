"""What the code and the pod spec set, against the plan, in every release: respected, overridden, unset or empty."""

import pytest
from support.runtimes import ort_lab, shim_lab
from support.runtimes.ort_lab import ROW, version

from raddle import env

pytestmark = ort_lab.MARKS

ALLOW = "session.intra_op.allow_spinning"
PLAN = "intra_op=2;min_intra_op=2;inter_op=1;spinning=never;graph_optimization_level=basic;cpu_mem_arena=0"
IN_THE_CODE, IN_THE_ENVIRONMENT = "set in the code", "set in the environment"
# Every variable that Raddle sets beside RADDLE_PLAN.
COUNTS = (env.ORT_INTRA, env.ORT_INTER, env.OMP, env.OPENBLAS)
# What the code sets: nothing (default options, own options), "unset" in ONNX Runtime's own ways, and something.
SET_IN_THE_CODE = {
    "default": None,
    "own": {},
    "zero": {"intra": 0, "inter": 0},
    "minus one": {"intra": -1, "inter": -1},
    "four": {"intra": 4},
    "spinning": {"entries": {ALLOW: "1"}},
    "level": {"graph": "ORT_DISABLE_ALL"},
    "arena off": {"enable_cpu_mem_arena": False},
}


@pytest.fixture(scope="module")
def seen(release, lab):
    sessions = list(SET_IN_THE_CODE.values())
    plans = {existing: (f"{PLAN};existing_values={existing}", sessions) for existing in ("respect", "override")}

    def under(**variables):
        return lab.probes(release, plans, extra=variables)

    return {"three": under(**{env.ORT_INTRA: "3"}), "empty": under(**dict.fromkeys(COUNTS, ""))}


def found(seen, variables, existing, code):
    at = list(SET_IN_THE_CODE).index(code)
    run = seen[variables][existing]
    return run["sessions"][at], run["records"][at]


@pytest.mark.parametrize(
    ("variables", "existing", "code", "count", "because"),
    [
        # The pod spec sets 3, the plan 2.
        ("three", "respect", "default", 3, IN_THE_ENVIRONMENT),
        ("three", "respect", "own", 3, IN_THE_ENVIRONMENT),
        ("three", "respect", "zero", 3, IN_THE_ENVIRONMENT),
        ("three", "respect", "minus one", 3, IN_THE_ENVIRONMENT),
        ("three", "respect", "four", 4, IN_THE_CODE),
        ("three", "override", "default", 2, None),
        ("three", "override", "zero", 2, None),
        ("three", "override", "minus one", 2, None),
        ("three", "override", "four", 2, None),
        # Every injected variable but the plan resolves to empty, as in a copied pod.
        ("empty", "respect", "default", 2, None),
        ("empty", "respect", "own", 2, None),
        ("empty", "respect", "zero", 2, None),
        ("empty", "respect", "minus one", 2, None),
        ("empty", "respect", "four", 4, IN_THE_CODE),
        ("empty", "override", "four", 2, None),
    ],
)
def test_the_count_is_the_code_s_the_environment_s_or_the_plan_s(
    release, seen, variables, existing, code, count, because, proves
):
    proves(ROW, version(release), "existing values")
    session, record = found(seen, variables, existing, code)
    assert session["pool"] == count - 1
    assert (record["effective"]["intraOp"], record["because"].get("intraOp")) == (count, because)
    if SET_IN_THE_CODE[code] is not None:
        # The application's object is what it was.
        assert session["after"]["intra"] == SET_IN_THE_CODE[code].get("intra", 0)


@pytest.mark.parametrize(
    ("existing", "code", "name", "value", "because"),
    [
        ("respect", "spinning", "spinning", "code", IN_THE_CODE),
        ("override", "spinning", "spinning", "never", None),
        ("respect", "level", "graphOptimizationLevel", None, IN_THE_CODE),
        ("override", "level", "graphOptimizationLevel", "basic", None),
        ("respect", "arena off", "cpuMemArena", False, IN_THE_CODE),
        ("override", "arena off", "cpuMemArena", False, None),
    ],
)
def test_any_other_value_in_the_code_wins_unless_the_policy_overrides(
    release, seen, existing, code, name, value, because, proves
):
    proves(ROW, version(release), "existing values")
    session, record = found(seen, "empty", existing, code)
    assert (record["effective"].get(name), record["because"].get(name)) == (value, because)
    effective = session["effective"]
    if code == "spinning":
        assert effective["entries"][ALLOW] == ("1" if existing == "respect" else "0")
    if code == "level":
        assert effective["graph"] == ("ORT_DISABLE_ALL" if existing == "respect" else "ORT_ENABLE_BASIC")


@pytest.mark.parametrize("release", ["ort-1.28.0", "ort-1.31.1"])
@pytest.mark.parametrize("value", ["0", "-1", "3.5"])
def test_a_variable_that_says_no_count_counts_as_unset(release, lab, value):
    """From 1.29 on onnxruntime by itself would fail to make a session where such a variable holds no plain number."""
    found = lab.probe(release, PLAN, {}, {"intra": 4}, extra={env.ORT_INTRA: value})
    assert [session["pool"] for session in found["sessions"]] == [1, 3]


@pytest.mark.parametrize("release", [ort_lab.RELEASES[0], ort_lab.RELEASES[-1]])
def test_without_a_plan_the_process_is_as_if_raddle_were_not_there(release, lab):
    extra = {**shim_lab.python_path(lab.mounted), env.PLAN: "", **dict.fromkeys(COUNTS, "")}
    bare = lab.probe(release, None, {"intra": 2}, None, extra=dict.fromkeys(COUNTS, ""))
    empty = lab.probe(release, None, {"intra": 2}, None, extra=extra)
    assert [session["pool"] for session in empty["sessions"]] == [session["pool"] for session in bare["sessions"]]
    assert (empty["records"], empty["stderr"]) == ([], bare["stderr"])

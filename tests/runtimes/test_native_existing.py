"""The native shim's plan against what the code, the environment and other shims say."""

import os

import pytest
from support.runtimes import native_lab, shim_lab
from support.runtimes.native_caller import CALLERS, started, under

from raddle import env

pytestmark = pytest.mark.runtime

CPUS = shim_lab.two_cpus()

PLAN = "intra_op=2;inter_op=1;spinning=never;execution_mode=sequential"


@pytest.mark.parametrize(("kind", "version"), CALLERS)
@pytest.mark.parametrize("existing", ["respect", "override"])
def test_a_count_in_the_code_wins_unless_the_policy_overrides(kind, version, existing, proven):
    with started(kind, version, f"intra_op=2;spinning=never;existing_values={existing}") as caller:
        workers = []
        for name, options in (
            ("zero", "intra=0"),
            ("minus", "intra=-1"),
            ("three", "intra=3"),
            ("one", "intra=1"),
        ):
            before = len(caller.pool())
            caller.session(options, name=name)
            workers.append(len(caller.pool()) - before)
    assert workers == ([1, 1, 2, 0] if existing == "respect" else [1, 1, 1, 1])
    proven(kind, version, "existing values")


@pytest.mark.parametrize(("kind", "version"), CALLERS)
def test_a_count_in_the_code_that_is_only_the_machine_s_is_the_plan_s(kind, version, proven):
    every = os.cpu_count()
    with started(kind, version, "intra_op=2;spinning=never", cpus=CPUS[:1]) as caller:
        caller.session(f"intra={every}")
        assert (caller.pool(), f"intra_op=1 ({every} in the code is this machine's count)" in caller.lines[0]) == (
            [],
            True,
        )
        caller.session(f"intra={every + 1}", name="t")
        assert len(caller.pool()) == every
    proven(kind, version, "existing values")


@pytest.mark.parametrize(("kind", "version"), CALLERS)
def test_spinning_in_the_code_wins_unless_the_policy_overrides(kind, version, proven):
    own = "entry.session.intra_op.allow_spinning=1"
    with started(kind, version, PLAN) as caller:
        caller.session(own)
        assert caller.spins(caller.pool(), 0.005)
        assert "spinning as in the code" in caller.lines[0]
    with started(kind, version, f"{PLAN};existing_values=override") as caller:
        caller.session(own)
        assert caller.sleeps(caller.pool())
    proven(kind, version, "existing values")


@pytest.mark.parametrize(
    ("kind", "version"), [("c", "1.16.3"), ("c", "1.31.1"), ("java", "1.16.3"), ("java", "1.29.0")]
)
@pytest.mark.parametrize("existing", ["respect", "override"])
@pytest.mark.parametrize(("value", "respected"), [("", 1), ("2", 1), ("3", 2)])
def test_a_count_in_the_environment_wins_unless_the_policy_overrides(kind, version, existing, value, respected, proven):
    variables = {env.ORT_INTRA: value}
    with started(kind, version, f"intra_op=2;spinning=never;existing_values={existing}", variables=variables) as caller:
        caller.session("")
        assert len(caller.pool()) == (respected if existing == "respect" else 1)
        assert ("(set in the environment)" in caller.lines[0]) == (existing == "respect" and value != "")
    proven(kind, version, "existing values")


@pytest.mark.parametrize(("kind", "version"), CALLERS)
def test_variables_that_are_all_empty_change_nothing(kind, version, proven):
    """As in a copied pod, whose annotations are gone."""
    empty = dict.fromkeys((env.PLAN, env.ORT_INTRA, env.ORT_INTER, env.OMP, "RADDLE_LOG"), "")
    with started(kind, version, None, variables=empty) as caller:
        assert len(caller.session("intra=3")) == 2
        assert (caller.pool(), caller.lines) == ([], [])
    proven(kind, version, "existing values")


def test_beside_pythons_own_shim_it_changes_nothing(tmp_path):
    """The wheel's ORT is inside its extension module, where no preloaded symbol reaches."""
    variables = under(PLAN, **shim_lab.python_path(shim_lab.mount(tmp_path)))
    found = shim_lab.probe(shim_lab.THIS_PYTHON, native_lab.model(), [{}, {"intra": 3}], env=variables)
    assert [session["pool"] for session in found["sessions"]] == [1, 2]
    # Both are the Python shim's: the code's count is above the two CPUs.
    assert [line.partition("intra_op=")[2].split()[0].strip(",") for line in found["stderr"].splitlines()] == ["2", "3"]

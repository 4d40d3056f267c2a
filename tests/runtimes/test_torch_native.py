"""Real libtorch in a C++ program: no shim is in it, and the variables alone give it the planned teams.

Its inter-op pool has no variable, so a C++ program sets that by itself.
"""

import re
import subprocess

import pytest
from support.runtimes import shim_lab, torch_lab

pytestmark = pytest.mark.runtime

# MKL caps a count at the machine's CPUs.
shim_lab.two_cpus()


def told(variables, *arguments):
    """(intra-op, team of a parallel region, parallel_info) as the program says them."""
    command = [torch_lab.libtorch_program(), *arguments]
    done = subprocess.run(
        command, env=shim_lab.environment(variables), capture_output=True, text=True, check=True, timeout=60
    )
    first, _, info = done.stdout.partition("\n")
    intra, _, team = map(int, first.split())
    assert f"at::get_num_threads() : {intra}\n" in info
    return intra, team, info


@pytest.mark.parametrize("limit_cpus", [0.5, 1.0, 2.0])
def test_the_plans_count_is_what_libtorch_says_and_what_a_region_gets(limit_cpus, proves):
    plan, variables = torch_lab.planned(limit_cpus)
    intra, team, info = told(variables)
    assert (intra, team) == (plan.omp, plan.omp)
    assert int(re.search(r"mkl_get_max_threads\(\) : (\d+)", info)[1]) == plan.omp
    proves("libtorch (C++)", torch_lab.LIBTORCH_VERSION, "counts")


@pytest.mark.parametrize(
    ("own", "code", "intra"),
    [({"MKL_NUM_THREADS": "1"}, (), 1), ({"MKL_NUM_THREADS": "1"}, ("2",), 2), ({}, ("1",), 1)],
)
def test_the_code_wins_over_mkls_variable_and_that_over_openmps(own, code, intra, proves):
    _, variables = torch_lab.planned(2.0)
    assert told({**variables, **own}, *code)[:2] == (intra, intra)
    proves("libtorch (C++)", torch_lab.LIBTORCH_VERSION, "existing values")


def test_a_count_that_resolves_to_nothing_is_none():
    assert told({"OMP_NUM_THREADS": ""})[:2] == told({})[:2]

"""The placement table (tools/specification/table.py), row by row: what an expert would set, and the page made from it.

The expectations were worked out by hand from the rules and their sources. Where the planner disagrees with a row, one of
the two is wrong; a row is only changed with a better reason, never to make the planner right.
"""

import pytest

from generate.docs import placement as page
from raddle.cpus import cpuset
from raddle.planning.planner import Budget, plan
from raddle.planning.policy import Policy
from specification.limits import COMMON, HEADINGS, LIMITS
from specification.named import MACHINES
from specification.rules import NAMES
from specification.table import CASES


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name())
def test_the_plan_is_what_an_expert_would_set(case):
    made = plan(case.container.on(MACHINES[case.machine].machine), case.container.budget, case.policy)
    kinds = ((made.layout.workers, made.layout.threads), *made.layout.others) if made.layout else ()
    layout = " + ".join(f"{workers} × {threads}" for workers, threads in kinds)
    found = {
        "threads": made.intra_op,
        "spinning": made.spinning,
        "tied": made.affinity,
        "pool": "" if made.cpus is None else cpuset.format_list(made.cpus),
        "groups": tuple(cpuset.format_list(group) for group in made.affinity_groups),
        "memory node": made.memory_numa_node,
        "layout": layout,
    }
    assert found == {
        "threads": case.threads,
        "spinning": case.spinning,
        "tied": case.tied,
        "pool": case.pool,
        "groups": case.groups,
        "memory node": case.memory_node,
        "layout": case.layout,
    }, case.why


@pytest.mark.parametrize("objective", ["Latency", "Throughput"])
@pytest.mark.parametrize("name", MACHINES)
def test_a_limit_gives_the_threads_of_the_table_and_spins_from_one_cpu_on(name, objective):
    own, *threads = LIMITS[name]
    expected = dict(zip(HEADINGS, threads[objective == "Throughput"], strict=True))
    limits = dict(zip(HEADINGS, (*COMMON, *own), strict=True))
    plans = {
        heading: plan(MACHINES[name].machine, Budget(quota_cpus=cpus, because="limit"), Policy(objective=objective))
        for heading, cpus in limits.items()
    }
    assert {heading: made.intra_op for heading, made in plans.items()} == expected
    assert {heading: made.spinning for heading, made in plans.items()} == {
        heading: "never" if cpus < 1 else "bounded" for heading, cpus in limits.items()
    }


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name())
def test_every_row_gives_a_reason_and_the_rules_behind_it(case):
    assert case.why.endswith(".")
    assert case.rules
    assert set(case.rules) <= set(NAMES)


def test_no_row_is_there_twice_and_every_machine_and_rule_has_one():
    names = [case.name() for case in CASES]
    assert len(set(names)) == len(names)
    assert {case.machine for case in CASES} == set(MACHINES) == set(LIMITS)
    assert {rule for case in CASES for rule in case.rules} == set(NAMES)


def test_the_page_is_current():
    assert page.TARGET.read_text() == page.render(), "run `make generate`"


@pytest.mark.parametrize("name", MACHINES)
def test_the_page_has_a_row_for_each_case_of_a_machine(name):
    _, _, rest = page.render().partition(f"### {MACHINES[name].title}\n")
    section = rest.partition("\n### ")[0]
    assert section.count("\n| ") == 2 + sum(case.machine == name for case in CASES)

"""What is said of the checks that are no pod's threads, without a cluster."""

import dataclasses

from cluster import DevclusterError
from cluster.progress import Progress
from e2e import checks
from e2e.errors import E2EError


def outcome(run):
    lab = checks.Lab(cluster=None, progress=Progress(name="test"), runner=None)
    return checks.run(checks.Check(name="one", why="because", run=run), lab)


def refuse(_):
    raise E2EError("no such pod")


def test_a_check_has_a_row_with_its_figures():
    found = outcome(lambda _: checks.Result(figures={"pods": "2", "stale": "0"}))
    heading, row = checks.table([found]).splitlines()
    assert heading.split() == ["CHECK", "SECONDS", "AS", "EXPECTED", "FIGURES"]
    assert row.split() == ["one", "0", "yes", "pods", "2,", "stale", "0"]


def test_many_figures_are_wrapped_below_each_other():
    found = outcome(lambda _: checks.Result(figures={f"figure number {number}": "1" for number in range(20)}))
    lines = checks.table([found]).splitlines()
    assert len(lines) > 2
    assert max(map(len, lines)) <= checks.WIDTH
    assert {line.index("figure") for line in lines[1:]} == {lines[0].index("FIGURES")}


def test_a_check_that_fails_says_so_and_how_often_it_was_tried():
    found = dataclasses.replace(outcome(refuse), tries=2)
    assert "NO (try 2)" in checks.table([found])
    assert checks.table([found]).endswith("! no such pod")


def test_a_command_that_fails_is_told_of_its_check_and_ends_no_run():
    def ended(_):
        raise DevclusterError("kubectl patch: no such pod")

    assert outcome(ended).result.wrong == ("kubectl patch: no such pod",)


def test_a_check_that_can_not_be_tried_says_why():
    found = outcome(lambda _: checks.Result(skipped="no npm here"))
    assert checks.table([found]).splitlines()[1].split() == ["one", "0", "skipped", "no", "npm", "here"]

"""What a run says of itself, without a node."""

import pytest

from cluster.progress import Progress
from e2e import __main__ as command
from e2e import checks, verdict
from e2e.scenarios import SCENARIOS
from e2e.settings import GUEST, HOST

(ONE, OTHER, *_) = SCENARIOS
CHECK = checks.Check(name="check", why="", run=lambda lab: checks.Result())


def results(verdicts=(), outcomes=(), skipped=None):
    return command.Results(verdicts=verdicts, outcomes=outcomes, skipped=skipped or {})


def outcome(wrong=(), tries=1):
    return checks.Outcome(name="check", result=checks.Result(wrong=wrong), seconds=1.0, tries=tries)


def sentences(found):
    return [] if found == "right" else [f"it is {found}"]


def test_what_is_as_expected_is_run_once():
    answers = iter(["right"])
    assert command.again(lambda: next(answers), sentences, Progress()) == ("right", 1)


@pytest.mark.parametrize("second", ["right", "late"])
def test_what_is_not_as_expected_is_said_and_run_a_second_time_which_counts(second, capsys):
    answers = iter(["wrong", second])
    assert command.again(lambda: next(answers), sentences, Progress()) == (second, 2)
    assert "! it is wrong" in capsys.readouterr().err


def test_the_summary_counts_scenarios_containers_and_checks_and_what_is_wrong():
    verdicts = [*verdict.failed(ONE, "no image"), *verdict.failed(OTHER, "no image")]
    found = results(verdicts, [outcome(wrong=("late",))], {"whole-cores": "not installed: qemu-system-x86"})
    said = command.summary([ONE, OTHER, CHECK], found)
    assert said == (
        "2 scenarios, 2 containers, 1 checks, 3 not as expected, 0 as expected at the second try only, 1 skipped"
    )


def test_the_summary_tells_of_what_needed_a_second_try():
    assert "1 as expected at the second try only, none skipped" in command.summary(
        [CHECK], results(outcomes=[outcome(tries=2)])
    )


def test_each_scenario_and_check_has_a_name_of_its_own_and_runs_on_nodes_that_there_are():
    every = [*command.WORKLOADS, *command.CHECKS]
    assert len({one.name for one in every}) == len(every)
    assert {node for one in every for node in one.nodes} == {HOST.name, GUEST.name}


def test_this_machine_alone_can_be_asked_for_before_and_after_the_action():
    parser = command._parser()
    assert parser.parse_args(["--without-guest", "run", "job"]).without_guest
    assert parser.parse_args(["run", "job", "--without-guest"]).without_guest
    assert not parser.parse_args(["run"]).without_guest


def test_what_is_not_as_expected_is_said_in_a_line_each_for_the_end_of_a_log():
    verdicts = verdict.failed(ONE, "pod is not there\nits events\nand more")
    assert results(verdicts, [outcome(wrong=("late",))]).sentences == [
        f"{ONE.name} {HOST.name} {ONE.containers[0].name}: pod is not there",
        "check: late",
    ]

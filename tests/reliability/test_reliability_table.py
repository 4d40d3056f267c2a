"""What is printed and written of a run, and which checks a command names."""

import json

import pytest

from reliability import catalogue, table
from reliability.model import Check, Outcome, Result, broken_unless


def outcome(name="cut", section="failure", broken=(), unavailable="", figures=None):
    check = Check(name, f"{name} happens", "nothing is lost", lambda _: Result({}), section)
    return Outcome(check, Result({"pods": "500"} if figures is None else figures, broken), 1.4, unavailable)


def test_each_section_has_a_table_of_its_own_with_figures():
    text = table.table([outcome("cut"), outcome("forge", "attack")])
    failures, attacks = text.split("ATTACKS\n")
    assert failures.startswith("FAILURES\n")
    assert "cut    kept     1        pods: 500" in failures
    assert "forge" in attacks
    assert "forge" not in failures


def test_a_section_without_checks_is_left_out():
    assert "ATTACKS" not in table.table([outcome()])


def test_what_is_broken_stands_below_its_row():
    text = table.table([outcome(broken=("3 pods were refused",)), outcome("next")])
    assert text.index("BROKEN") < text.index("! 3 pods were refused") < text.index("next")


def test_a_log_in_a_sentence_is_cut_in_the_tables_and_whole_in_the_document_for_programs():
    one = outcome(broken=("the webhook ended:\n" + "a line\n" * 100,))
    assert len(table.table([one])) < 700
    assert " …" in table.markdown([one])
    assert json.loads(table.document([one]))["checks"][0]["broken"][0].count("a line") == 100


def test_a_check_that_can_not_run_here_says_why_and_is_not_counted_as_kept():
    one = outcome(unavailable="not root", figures={})
    assert "not root" in table.table([one])
    assert table.counts([one, outcome()], 9.6) == "2 checks, 1 kept, 0 broken, 1 not run (10 s)"
    assert json.loads(table.document([one]))["checks"][0]["verdict"] == "not run"


def test_the_document_for_programs_counts_as_the_last_line_does():
    found = json.loads(table.document([outcome(), outcome(broken=("late",)), outcome(unavailable="no iptables")]))
    assert (found["kept"], found["broken"], found["notRun"]) == (1, 1, 1)
    assert found["checks"][1]["broken"] == ["late"]


def test_the_page_has_a_row_a_check_with_promise_figures_and_verdict():
    row = table.markdown([outcome(figures={"pods": "500", "lost|late": "0"})]).splitlines()[2]
    assert row == "| `cut` | cut happens | nothing is lost | pods: 500<br>lost\\|late: 0 | kept |"


def test_the_page_shows_what_is_broken():
    assert "pods: 500<br>3 pods were refused | broken |" in table.markdown([outcome(broken=("3 pods were refused",))])


def test_a_promise_is_told_by_the_name_of_what_did_not_hold():
    assert broken_unless(no_pod_was_refused=False, all_are_bound=True) == ("not so: no pod was refused",)


def test_a_section_names_all_its_checks_and_no_name_means_all():
    failures, attacks = catalogue.chosen(["failures"]), catalogue.chosen(["attacks"])
    assert {one.section for one in failures} <= {"failure"}
    assert {one.section for one in attacks} <= {"attack"}
    assert len(failures) + len(attacks) == len(catalogue.chosen([])) == len(catalogue.CHECKS)


def test_a_name_that_there_is_not_is_told_with_those_that_there_are():
    with pytest.raises(ValueError, match=r"no check is called nonsense; there are .*failures, attacks"):
        catalogue.chosen(["nonsense"])


def test_names_of_checks_differ_and_are_no_word_of_the_command():
    names = [one.name for one in catalogue.CHECKS]
    assert len(set(names)) == len(names)
    assert not set(names) & {*catalogue.SECTIONS, "list"}


def test_each_check_says_in_sentences_what_happens_and_what_is_promised():
    sentences = [text for one in catalogue.CHECKS for text in (one.what, one.promise)]
    assert [text for text in sentences if not text.endswith(".")] == []

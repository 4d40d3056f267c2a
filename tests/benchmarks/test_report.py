"""Shared printing of the benchmarks: sections that commands own, figures, budgets."""

import pytest

import report


def test_a_section_is_replaced_whole_and_the_rest_stays(tmp_path):
    page = tmp_path / "benchmarks.md"
    report.write_section("one", "first", page)
    report.write_section("two", "second", page)
    report.write_section("one", "third", page)
    text = page.read_text()
    assert "first" not in text
    assert text.index("third") < text.index("second")
    assert text.count("<!-- begin one -->") == 1


def test_writing_the_same_section_twice_changes_nothing(tmp_path):
    page = tmp_path / "benchmarks.md"
    report.write_section("one", "same", page)
    before = page.read_text()
    report.write_section("one", "same", page)
    assert page.read_text() == before


def test_a_begin_marker_without_its_end_is_refused(tmp_path):
    page = tmp_path / "benchmarks.md"
    page.write_text("<!-- begin one -->\nsomebody's text\n")
    with pytest.raises(ValueError, match="end one"):
        report.write_section("one", "new", page)
    assert "somebody's text" in page.read_text()


@pytest.mark.parametrize(
    ("value", "text"), [(0.01234, "0.0123"), (1.4321, "1.43"), (49.81, "49.8"), (1880.76, "1881"), (0, "0")]
)
def test_figures_have_three_digits_and_no_exponent(value, text):
    assert report.short(value) == text


def test_a_spread_is_the_median_and_the_range():
    assert report.spread([1.5, 1.4, 1.43]) == "1.43 (1.4–1.5)"
    assert report.spread([2.0]) == "2"


@pytest.mark.parametrize(
    ("value", "allowed", "at_least", "met"),
    [(29, 30, False, True), (31, 30, False, False), (5000, 4600, True, True), (4000, 4600, True, False)],
)
def test_a_budget_is_kept_or_missed(value, allowed, at_least, met):
    budget = report.Budget(what="p99", value=value, allowed=allowed, unit="ms", at_least=at_least)
    assert budget.met is met
    assert budget.cells()[-1] == ("kept" if met else "missed")


def test_a_bar_in_a_cell_does_not_split_it():
    assert report.markdown_table(("a",), [("x|y",)]).splitlines()[-1] == "| x\\|y |"


def test_the_machine_line_names_the_cpus_and_the_revision():
    line = report.machine()
    assert " CPUs" in line
    assert f"revision {report.revision()}" in line

"""The docs name what there is: every skip reason, every variable, files that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from raddle import env

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")])


@pytest.mark.parametrize(
    "name",
    [env.ORT_INTRA, env.ORT_INTER, env.OMP, env.OPENBLAS, env.PLAN, "RADDLE_LOG", env.REPORT, env.AGENT, env.LITERALS],
)
def test_every_variable_is_documented(name):
    assert name in (ROOT / "docs/reference/environment.md").read_text()


def test_every_list_of_the_machine_in_the_plan_is_documented():
    page = (ROOT / "docs/reference/environment.md").read_text()
    _, _, section = page.partition("### The machine in the plan\n")
    rows = re.findall(r"^\| (`.*?) \|", section.partition("\n## ")[0], flags=re.MULTILINE)
    assert tuple(re.findall(r"`(\w+)`", " ".join(rows))) == env.LISTS


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_files(page):
    prose = re.sub(r"`[^`]*`", "", page.read_text())
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", prose):
        assert (page.parent / target).exists(), f"{page.name} links to {target}"


def headings(page):
    """The anchors that a Markdown page has, as GitHub makes them."""
    titles = re.findall(r"^#+ (.*)$", page.read_text(), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_to_a_part_of_a_page_lead_to_a_heading(page):
    prose = re.sub(r"`[^`]*`", "", page.read_text())
    for target, anchor in re.findall(r"\]\(([^)#:]*)#([^)]+)\)", prose):
        assert anchor in headings(page.parent / target if target else page), f"{page.name}: {target}#{anchor}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_files_and_targets_that_are_named_exist(page):
    text = page.read_text()
    for target in re.findall(r"make ([a-z0-9-]+)", text):
        assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), flags=re.MULTILINE), (
            f"{page.name}: make {target}"
        )
    for path in re.findall(r"`((?:runtime|operator|tests|tools|benchmarks|charts|crds|docs)/[\w./-]+)`", text):
        assert (ROOT / path).exists(), f"{page.name} names {path}"


def test_files_that_sources_name_exist():
    named = re.compile(r"(?<![\w./-])(?:runtime|operator|tests|tools|benchmarks|charts|crds|docs)/[\w./-]*\.\w+")
    sources = [path for root in ("runtime", "operator", "tools", "benchmarks") for path in (ROOT / root).rglob("*.*")]
    texts = {path: path.read_text() for path in sources if path.suffix in {".py", ".cjs", ".c", ".h", ".md"}}
    assert {
        f"{source.relative_to(ROOT)} names {path}"
        for source, text in texts.items()
        for path in named.findall(text)
        if not (ROOT / path).exists()
    } == set()


def test_the_page_on_native_programs_names_the_newest_release_that_was_tested():
    newest = re.search(r"#define RD_NEWEST_TESTED (\d+)", (ROOT / "runtime/native/ort.h").read_text())[1]
    assert f"`newer than tested` above 1.{newest}." in (ROOT / "docs/how-to/native.md").read_text()

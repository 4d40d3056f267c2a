"""The docs name what there is: every skip reason, every variable, files that exist."""

import functools
import re
from pathlib import Path

import pytest

from raddle import env
from raddle.planning.policy import WITHOUT_SHIM

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")])


@pytest.mark.parametrize(
    "name", [env.ORT_INTRA, env.ORT_INTER, env.OMP, env.OPENBLAS, env.PLAN, "RADDLE_LOG", env.AGENT, env.LITERALS]
)
def test_every_variable_is_documented(name):
    assert name in (ROOT / "docs/reference/environment.md").read_text()


def test_every_list_of_the_machine_in_the_plan_is_documented():
    page = (ROOT / "docs/reference/environment.md").read_text()
    _, _, section = page.partition("### The machine in the plan\n")
    rows = re.findall(r"^\| (`.*?) \|", section.partition("\n## ")[0], flags=re.MULTILINE)
    assert tuple(re.findall(r"`(\w+)`", " ".join(rows))) == env.LISTS


def prose(page):
    return re.sub(r"`[^`]*`", "", page.read_text())


def test_links_lead_to_files():
    assert not [
        f"{page.relative_to(ROOT)} links to {target}"
        for page in PAGES
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", prose(page))
        if not (page.parent / target).exists()
    ]


@functools.cache
def headings(page):
    """The anchors that a Markdown page has, as GitHub makes them."""
    titles = re.findall(r"^#+ (.*)$", page.read_text(), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def test_links_to_a_part_of_a_page_lead_to_a_heading():
    assert not [
        f"{page.relative_to(ROOT)} links to {target}#{anchor}"
        for page in PAGES
        for target, anchor in re.findall(r"\]\(([^)#:]*)#([^)]+)\)", prose(page))
        if anchor not in headings((page.parent / target).resolve() if target else page)
    ]


def test_files_and_targets_that_are_named_exist():
    targets = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    paths = r"`((?:runtime|operator|tests|tools|benchmarks|charts|crds|docs)/[\w./-]+)`"
    texts = {page.relative_to(ROOT): page.read_text() for page in PAGES}
    assert not [
        f"{page} names make {target}"
        for page, text in texts.items()
        for target in re.findall(r"\bmake ([a-z0-9-]+)", text)
        if target not in targets
    ]
    assert not [
        f"{page} names {path}"
        for page, text in texts.items()
        for path in re.findall(paths, text)
        if not (ROOT / path).exists()
    ]


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
    assert f"`newer than tested` above 1.{newest}." in (ROOT / "docs/how-to/native-programs.md").read_text()


@pytest.mark.parametrize(
    "page", ["explanation/preload-injection.md", "how-to/troubleshoot.md", "how-to/native-programs.md"]
)
def test_the_pages_say_what_plan_and_explain_say_of_a_container_without_the_shim(page):
    text = " ".join((ROOT / "docs" / page).read_text().split())
    assert f"Without the shim, {WITHOUT_SHIM}." in text

"""The tables of docs/reliability.md: a row is a test that has one of two markers, and the figures that it noted.

    @pytest.mark.failure("webhook-killed", "What happens.", "What is promised.")
    def test_no_pod_is_blocked(figures): ...

`-k webhook-killed` selects it, `-v` shows its row at the end. With `--write` as well a table is written, when all rows that
it has were run.
"""

from __future__ import annotations

import re
import textwrap

import pytest

import report

DOCUMENT = report.ROOT / "docs" / "reliability.md"
HEADINGS = ("check", "what happens", "what is promised", "figures", "kept")
SECTIONS = {"failure": "failures", "attack": "attacks"}
VERDICTS = {"passed": "kept", "failed": "broken", "error": "broken", "skipped": "not run"}
MOST_CHARACTERS = 300
WHERE = pytest.StashKey[str]()


def pytest_addoption(parser):
    parser.addoption("--write", action="store_true", help="write the tables that were measured into the docs")


def pytest_configure(config):
    if config.getoption("--write"):
        config.stash[WHERE] = report.machine()  # now: the checkout may go on while the tests run


def pytest_collection_modifyitems(items):
    for item in items:
        for section in SECTIONS:
            if marker := item.get_closest_marker(section):
                item.user_properties.append(("row", (section, *marker.args)))
                item.extra_keyword_matches.add(marker.args[0])


@pytest.fixture
def figures(request):
    """What the test has counted, by the words of its row: figures["pods"] = 500."""
    found = {}
    request.node.user_properties.append(("figures", found))
    return found


def pytest_terminal_summary(terminalreporter):
    if terminalreporter.verbosity < 1:
        return
    found = {}
    for outcome, verdict in VERDICTS.items():
        for one in terminalreporter.getreports(outcome):
            properties = dict(getattr(one, "user_properties", ()))
            if "row" in properties:
                name = properties["row"][1]
                cell = [f"{what}: {figure}" for what, figure in properties.get("figures", {}).items()]
                cell += [] if verdict == "kept" else [reason(one)]
                found[name] = (*properties["row"], cell, verdict, one.duration)
    for section, title in SECTIONS.items():
        rows = [row for row in found.values() if row[0] == section]
        if rows:
            terminalreporter.section(f"{title}: {counts(rows)}")
            for _, name, _, _, cell, verdict, seconds in rows:
                terminalreporter.write_line(f"{name}: {verdict} in {seconds:.0f} s: {'; '.join(cell)}")
        if rows and terminalreporter.config.getoption("--write"):
            terminalreporter.write_line(write(title, rows, terminalreporter.config.stash[WHERE]))


def reason(one):
    """Why a test failed or was skipped, in a line."""
    crash = getattr(one.longrepr, "reprcrash", None)
    text = crash.message if crash else one.longrepr[2] if isinstance(one.longrepr, tuple) else one.longreprtext
    return textwrap.shorten(text, MOST_CHARACTERS, placeholder=" …")


def counts(rows):
    """How many there are of each verdict, and how long they took."""
    verdicts = [row[-2] for row in rows]
    told = ", ".join(f"{verdicts.count(word)} {word}" for word in ("kept", "broken", "not run"))
    return f"{len(rows)} checks, {told} ({sum(row[-1] for row in rows):.0f} s)"


def write(title, rows, where, document=DOCUMENT):
    """Write a table in the order that its rows have there; what came of it. A part of a table is not written."""
    text = document.read_text().partition(f"<!-- begin {title} -->")[2].partition(f"<!-- end {title} -->")[0]
    named = re.findall(r"^\| `(.*?)` \|", text, flags=re.MULTILINE)
    if missing := set(named) - {row[1] for row in rows}:
        return f"{document.name} stays as it is: its {title} that were not run are {', '.join(sorted(missing))}"
    rows = sorted(rows, key=lambda row: named.index(row[1]) if row[1] in named else len(named))
    lines = [(f"`{row[1]}`", row[2], row[3], "<br>".join(row[4]), row[5]) for row in rows]
    head = f"{counts(rows)}, by `make reliability ARGS=--write` on {where}:"
    report.write_section(title, f"{head}\n\n{report.markdown_table(HEADINGS, lines)}", document)
    return f"wrote the {title} into {document.name}"

"""What people see of a tuning: the table, the pictures and the page, all of the result's own numbers."""

import functools
import json
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ET
from dataclasses import replace

import click
import pytest
from click.testing import CliRunner
from hypothesis import given
from support.examples import examples
from support.html_page import Page
from support.picture_browser import BROWSER, wrong_with
from support.tunings import tunings

from generate.docs.tuningpictures import example, undecided
from raddle_operator.cli import main, page_style
from raddle_operator.results.candidate import Candidate
from raddle_operator.results.objective import Kind
from raddle_operator.results.verdict import Verdict
from raddle_tuner.commands.result import charts, page, table, writing
from raddle_tuner.commands.result.figures import rows
from raddle_tuner.search.blocks import Block
from raddle_tuner.search.document import from_document, to_document
from raddle_tuner.search.result import Trial

RSVG = shutil.which("rsvg-convert")
TUNING = from_document(to_document(example(Kind.LATENCY)))
# A page and a picture take a third of a second to draw.
page_of = functools.cache(page.page)
picture_of = functools.cache(charts.file)
HOSTILE = "<script>alert('1')</script> & \"\x1b[31m\n[bold]"


def with_result(**changes):
    return replace(TUNING, result=replace(TUNING.result, **changes))


def text(tuning, capsys):
    table.show(tuning)
    return capsys.readouterr().out


@pytest.mark.parametrize("kind", Kind)
def test_the_table_of_a_tuning_that_found_something_better(kind, golden, capsys):
    golden(f"result-{kind.lower()}.txt", text(example(kind), capsys))


@pytest.mark.parametrize(
    "written",
    [
        pytest.param(lambda document: json.dumps(document, indent=2), id="raddle tune -o json"),
        pytest.param(lambda document: f"measuring\n{{so}}\n{json.dumps(document)}\nended\n", id="a Job's log"),
    ],
)
def test_what_was_found_is_shown_again_from_its_json(written, tmp_path, capsys):
    source, report = tmp_path / "tuned", tmp_path / "again.html"
    source.write_text(written(to_document(TUNING)))
    done = CliRunner().invoke(main, ["result", str(source), "--report", str(report)])
    assert (done.exit_code, done.output) == (0, text(TUNING, capsys))
    assert report.read_text() == page_of(TUNING)


def test_of_the_logs_of_several_jobs_the_search_is_shown_wherever_it_stands(tmp_path, capsys):
    confirmed = replace(with_result(trials=TUNING.result.trials[:1]), name="confirmed")
    search, confirmation = (json.dumps(to_document(one)) for one in (TUNING, confirmed))
    for place, lines in enumerate([[search, confirmation], [confirmation, search], [confirmation, "{}", search, "{"]]):
        source = tmp_path / f"logs-{place}"
        source.write_text("\n".join(["measuring", *lines, ""]))
        done = CliRunner().invoke(main, ["result", str(source)])
        assert (done.exit_code, done.output) == (0, text(TUNING, capsys))


@pytest.mark.parametrize(
    ("written", "why"),
    [
        ("", "not a JSON result"),
        ("ended\n", "not a JSON result"),
        ('{"version": 7}', "version: 7 is not 1, the one that this Raddle reads"),
    ],
)
def test_what_is_no_tuning_is_refused(written, why, tmp_path):
    (tmp_path / "tuned").write_text(written)
    done = CliRunner().invoke(main, ["result", str(tmp_path / "tuned")])
    assert done.exit_code == 2
    assert why in done.output


@pytest.mark.parametrize("verdict", [Verdict.NO_DIFFERENCE, Verdict.INCONCLUSIVE, Verdict.BOUND_NOT_MET])
def test_the_table_of_one_that_did_not(verdict, capsys):
    shown = text(undecided(verdict), capsys)
    assert "spec:" not in shown
    assert "bind_output" not in shown


def test_the_document_of_a_tuning(golden):
    short = [
        replace(trial, blocks=tuple(replace(block, latencies_ms=block.latencies_ms[:3]) for block in trial.blocks[:1]))
        for trial in (TUNING.result.trials[0], TUNING.result.trials[-1])
    ]
    document = to_document(with_result(trials=tuple(short)))
    golden("result.json", json.dumps(document, indent=2) + "\n")


@given(tunings)
@examples(0.2)
def test_any_tuning_has_a_table(tuning):
    table.show(tuning)


def test_a_name_can_not_steer_a_terminal(capsys):
    shown = text(replace(TUNING, name=HOSTILE), capsys)
    assert "\x1b" not in shown
    assert "[bold]" in shown


def test_a_table_needs_no_pictures():
    command = (
        "import sys, json; from raddle_tuner.commands.result import writing"
        "; from raddle_tuner.search.document import from_document; writing.write(from_document(json.load(sys.stdin)), form='text'); assert 'matplotlib' not in sys.modules"
    )
    stdin = json.dumps(to_document(TUNING))
    subprocess.run([sys.executable, "-c", command], input=stdin, text=True, check=True, capture_output=True)


REPORTS = {
    ".html": page_of,
    ".svg": picture_of,
    ".json": lambda tuning: json.dumps(to_document(tuning), ensure_ascii=False) + "\n",
}


@pytest.mark.parametrize("suffix", REPORTS)
def test_a_report_made_of_the_document_is_the_same(suffix, tmp_path, capsys):
    report = tmp_path / f"tuned{suffix}"
    writing.write(example(Kind.LATENCY), form="text", report=report)
    assert capsys.readouterr().out == text(TUNING, capsys)
    assert report.read_text() == REPORTS[suffix](TUNING)


def test_a_report_that_can_not_be_written_is_said(tmp_path):
    with pytest.raises(click.ClickException, match=r"no/tuned\.json: No such file"):
        writing.write(TUNING, form="json", report=tmp_path / "no" / "tuned.json")


PAGES = {
    **{kind.value: example(kind) for kind in Kind},
    **{verdict.value: undecided(verdict) for verdict in Verdict if verdict is not Verdict.BETTER},
    "a name that is hostile": replace(TUNING, name=HOSTILE),
}


@pytest.mark.parametrize("name", PAGES)
def test_the_page_refers_to_nothing_elsewhere_and_has_no_script(name):
    html = page_of(PAGES[name])
    parsed = Page(html)
    assert "http" not in html
    assert "@import" not in html
    assert "@font-face" not in html
    assert set(re.findall(r"url\((.)", html)) <= {"#"}
    assert not parsed.tags & {"script", "link", "img", "iframe", "object", "form", "foreignobject"}
    assert not [name for name, _ in parsed.values if name.startswith("on")]
    references = [value for name, value in parsed.values if name in {"href", "src", "action"}]
    identifiers = {value for name, value in parsed.values if name == "id"}
    assert {value.removeprefix("#") for value in references} <= identifiers


def test_no_two_elements_of_the_page_have_one_id():
    identifiers = [value for name, value in Page(page_of(TUNING)).values if name == "id"]
    assert len(identifiers) == len(set(identifiers))


def test_text_of_users_is_text():
    hostile = Trial(candidate=Candidate.of({"threads.intraOp": HOSTILE}), phases=(), blocks=(), skipped=HOSTILE)
    result = with_result(trials=(*TUNING.result.trials, hostile), remarks=(HOSTILE,))
    html = page.page(replace(result, name=HOSTILE, finished=HOSTILE))
    assert "<script" not in html
    assert "".join(Page(html).words).count("<script>") >= 4


def numbers(said):
    return set(re.findall(r"\d+(?:\.\d+)?", said))


@pytest.mark.parametrize("kind", Kind)
def test_every_number_of_the_page_is_in_the_table_or_the_document(kind, capsys):
    tuning = example(kind)
    shown = numbers(" ".join(Page(page_of(tuning)).words))
    plan = next(row.figures for row in rows(tuning) if row.is_plan)
    winner = next(row.figures for row in rows(tuning) if row.is_winner)
    changes = {
        f"{abs(100 * (after / before - 1)):.1f}"
        for before, after in zip(values(plan), values(winner), strict=True)
        if before
    }
    parts = {f"{value:.2f}" for value in (plan.throttled_percent, winner.throttled_percent)}
    count = {str(sum(1 for row in rows(tuning) if row.figures)), str(sum(1 for row in rows(tuning) if not row.figures))}
    known = numbers(text(tuning, capsys)) | numbers(json.dumps(to_document(tuning)["key"])) | changes | parts | count
    assert shown - known == set()


def values(one):
    return one.p50_ms, one.p99_ms, one.slowest_tenth_ms, one.throughput, one.cpu_ms, one.throttled_percent


def test_skipped_trials_are_there_with_their_reason():
    assert "skipped: the image has no libjemalloc.so.2" in "".join(Page(page_of(TUNING)).words)


def test_the_page_has_the_patch_and_the_code_for_the_program():
    html = page_of(TUNING)
    assert "intraOp: 3\n    spinning: Never\n</pre>" in html
    assert "session.run_with_iobinding(binding)" in html


def block(count=1, **changes):
    return Block(latencies_ms=(5.0,) * count, missed=0, seconds=1.0, **changes)


BARE = {
    "nothing": (),
    "one request": (Trial(candidate=Candidate(), phases=(), blocks=(block(),)),),
    "no answer": (Trial(candidate=Candidate(), phases=(), blocks=(replace(block(), missed=1, cpu_s=1.0),)),),
    "no requests": (Trial(candidate=Candidate(), phases=(), blocks=(block(0),)),),
    "all disturbed": (Trial(candidate=Candidate(), phases=(), blocks=(block(disturbed=("steal",)),)),),
    "only skipped": (Trial(candidate=Candidate(), phases=(), blocks=(), skipped="it crashed"),),
}


@pytest.mark.parametrize("planned", [Candidate(), TUNING.planned], ids=["threads unknown", "threads known"])
@pytest.mark.parametrize("trials", BARE.values(), ids=BARE)
def test_a_tuning_that_ended_early_has_a_page_and_pictures(trials, planned, capsys):
    nothing = {"winner": Candidate(), "gain": None, "bound": None, "contributions": (), "front": (), "remarks": ()}
    result = with_result(verdict=Verdict.INCONCLUSIVE, trials=trials, noise_percent=0.0, **nothing)
    early = replace(result, planned=planned)
    Page(page.page(early))
    ET.fromstring(charts.file(early))
    assert "Not decided, so keep the plan" in text(early, capsys)


@pytest.mark.slow
def test_the_pictures_are_the_same_each_time():
    assert charts.file(TUNING) == picture_of(TUNING)
    assert page.page(TUNING) == page_of(TUNING)


def test_a_picture_has_only_colours_that_there_are_for_light_and_dark():
    assert set(page_style.LIGHT) == set(page_style.DARK)
    drawn = picture_of(TUNING).partition("</style>")[2]
    assert not re.search(r"#[0-9a-fA-F]{6}\b", drawn)
    assert re.findall(r"https?://[^\"]*", picture_of(TUNING)) == ["http://www.w3.org/2000/svg"]


def test_the_pictures_for_each_objective():
    names = {kind: [chart.name for chart in charts.charts(example(kind))] for kind in Kind}
    assert names[Kind.LATENCY] == ["threads", "trade", "cpu", "latencies", "contributions"]
    assert names[Kind.COST] == ["threads", "trade", "latencies"]
    titles = {kind: {chart.name: chart.title for chart in charts.charts(example(kind))}["trade"] for kind in Kind}
    assert titles[Kind.THROUGHPUT] == "Throughput against p99"
    assert titles[Kind.LATENCY] == "CPU a request against p99"


def test_each_trial_is_a_mark():
    [threads, *_] = charts.charts(TUNING)
    root = ET.fromstring(charts.svg(threads))
    large = [use for use in root.iter("use") if use.get("style") or use.get("class")]
    assert len(large) >= sum(1 for row in rows(TUNING) if row.figures)


@pytest.mark.slow
@pytest.mark.skipif(RSVG is None, reason="no rsvg-convert is installed")
def test_a_renderer_of_pictures_draws_them(tmp_path):
    (tmp_path / "tuned.svg").write_text(picture_of(TUNING))
    subprocess.run([RSVG, tmp_path / "tuned.svg", "-o", tmp_path / "tuned.png"], check=True, timeout=60)
    from matplotlib import image

    drawn = image.imread(tmp_path / "tuned.png")[..., :3]
    assert drawn[0, 0].tolist() == [1.0, 1.0, 1.0]
    assert (drawn < 0.5).any()


@pytest.mark.skipif(BROWSER is None, reason="no Chromium is installed")
@pytest.mark.slow
def test_no_words_of_a_picture_overlap_in_a_browser(tmp_path):
    drawn = {f"{kind}-all": picture_of(example(kind)) for kind in Kind}
    drawn |= {f"{kind}-{chart.name}": charts.svg(chart) for kind in Kind for chart in charts.charts(example(kind))}
    assert {name: wrong for name, wrong in wrong_with(drawn, tmp_path).items() if wrong} == {}

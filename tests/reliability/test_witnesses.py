"""What the checks count by must be able to find something, and a row says what came of its test."""

import json
from types import SimpleNamespace

import pytest
from support import rows
from support.reliability import installed, load, truth

# --- statuses ---------------------------------------------------------------------------------------------------------

POLICY = {"metadata": {"name": "app", "generation": 2}, "spec": {"threads": {"maxIntraOp": 4}}}
RIGHT = {"observedGeneration": 2, "matchedPods": 3, "injectedPods": 2, "stalePods": 1}


def pod(app, threads=None):
    annotations = {"plan.raddle.dev/serve": json.dumps({"v": 1, "set": {"intraOp": threads}})} if threads else {}
    labels = {"app": app} | ({"raddle.dev/injected": "true"} if threads else {})
    return {"metadata": {"name": "a", "labels": labels, "annotations": annotations}}


PODS = [pod("app"), pod("app", 4), pod("app", 6), pod("other", 4)]


@pytest.mark.parametrize(
    ("told", "wrong"),
    [({}, 0), *(({key: 9}, 1) for key in RIGHT)],
    ids=["as it is", *(f"other {key}" for key in RIGHT)],
)
def test_a_status_is_right_only_if_every_count_is_that_of_the_pods(told, wrong):
    assert len(list(truth.status_mistakes({**POLICY, "status": RIGHT | told}, PODS))) == wrong


# --- calls ------------------------------------------------------------------------------------------------------------

METRICS = """\
# TYPE apiserver_admission_webhook_fail_open_count counter
apiserver_admission_webhook_fail_open_count{name="pods.raddle.dev",type="admit"} 3
apiserver_admission_webhook_fail_open_count{name="bindings.raddle.dev",type="admit"} 4
apiserver_admission_webhook_fail_open_count{name="pods.another.example",type="admit"} 5
apiserver_admission_webhook_request_total{code="200",name="pods.raddle.dev"} 6
"""


@pytest.mark.parametrize(("text", "count"), [(METRICS, 7), ("", 0)])
def test_calls_that_failed_open_are_those_of_all_webhooks_of_raddle_and_of_no_other(text, count):
    assert installed.failed_open(SimpleNamespace(get=lambda _: {"text": text})) == count


def test_a_refused_call_is_not_one_without_values():
    calls = [
        load.Call("a", 1.0, 0.1, has_values=True),
        load.Call("b", 2.0, 2.5, has_values=False),
        load.Call("c", 3.0, 0.2, has_values=False, refused="500"),
    ]
    assert [one.name for one in load.without_values(calls)] == ["b"]
    assert load.without_values(calls, since_s=2.5) == []
    assert load.without_values(calls, until_s=2.0) == []
    assert load.refused(calls) == ["500"]
    assert (load.slowest_s(calls), load.slowest_s([])) == (2.5, 0.0)


# --- rows -------------------------------------------------------------------------------------------------------------


def row(name, verdict="kept", cell=("pods: 500", "lost|late: 0")):
    return ("failure", name, "A cut.", "Nothing is lost.", cell, verdict, 1.6)


@pytest.fixture
def page(tmp_path):
    path = tmp_path / "page.md"
    path.write_text("<!-- begin failures -->\nold\n| `cut` | old |\n| `hung` | old |\n<!-- end failures -->\n")
    return path


def test_a_table_is_written_in_its_order_with_counts_and_each_promise_figures_and_verdict(page):
    assert rows.write("failures", [row("new"), row("hung", "broken"), row("cut")], "here", page) == (
        "wrote the failures into page.md"
    )
    _, head, *lines = [line for line in page.read_text().splitlines() if line]
    assert head.startswith("3 checks, 2 kept, 1 broken, 0 not run (5 s), by `make reliability ARGS=--write` on here:")
    assert lines[2] == "| `cut` | A cut. | Nothing is lost. | pods: 500<br>lost\\|late: 0 | kept |"
    assert [line.split("`")[1] for line in lines[2:-1]] == ["cut", "hung", "new"]


def test_a_part_of_a_table_is_not_written(page):
    before = page.read_text()
    assert rows.write("failures", [row("cut")], "here", page).endswith("that were not run are hung")
    assert page.read_text() == before

"""What is said of a container, from what was read of it, without a node."""

import json

import pytest

from e2e import verdict
from e2e.__main__ import _parser, main
from e2e.scenarios import SCENARIOS, Container, Scenario
from raddle_operator.quantities import parse

LIMITED = Scenario(
    name="limited", why="", qos="Burstable", containers=(Container(limit="500m", threads=1, quota_cpus=0.5),)
)
LOAD = {"requests": 150, "cpu_ms": 1.25, "throttled_percent": 0.0}
LOOK = {"threads": 1, "caller": "0-1", "workers": [], "spinning": 0, "quota_cpus": 0.5, "load": LOAD}
STOCK = {"app": {**LOOK, "threads": 2, "load": {**LOAD, "cpu_ms": 20, "throttled_percent": 61.9}}}


def pod(threads=1, qos="Burstable"):
    plan = {"plan.raddle.dev/app": json.dumps({"set": {"intraOp": threads}})}
    return {"metadata": {"annotations": plan}, "status": {"qosClass": qos}}


def seen(log=None, report=(0, ""), effective=1):
    show = (0, json.dumps({"effective": {"intraOp": effective}}))
    return {"app": verdict.Seen(log=json.dumps(LOOK) if log is None else log, report=report, show=show)}


def wrong(live=None, found=None):
    (only,) = verdict.judge(LIMITED, live or pod(), found or seen(), STOCK)
    return " | ".join(only.wrong)


def test_a_container_that_is_as_it_must_be_has_nothing_wrong():
    assert wrong() == ""


@pytest.mark.parametrize(
    ("live", "found", "said"),
    [
        (pod(qos="Guaranteed"), None, "class of service Guaranteed, expected Burstable"),
        ({"metadata": {}, "status": {"qosClass": "Burstable"}}, None, "the pod has no plan"),
        (None, seen(log="nothing"), "the application said nothing"),
        (None, seen(log=json.dumps({**LOOK, "threads": 2})), "threads 2, expected 1"),
        (None, seen(log=json.dumps({**LOOK, "quota_cpus": None})), "quota_cpus None, expected 0.5"),
        (None, seen(log=json.dumps({**LOOK, "caller": "1"})), "caller 1, expected 0-1"),
        (None, seen(log=json.dumps({**LOOK, "spinning": 1})), "1 workers burn CPU time"),
        (None, seen(log=json.dumps({**LOOK, "workers": ["0"]})), "workers are tied to 0 on shared CPUs"),
        (None, seen(log="pthread_setaffinity_np failed\n" + json.dumps(LOOK)), "in the log: pthread_setaffinity_np"),
        (None, seen(report=(1, "differs")), "`raddle report` ended with 1: differs"),
        (None, seen(effective=2), "`raddle show` says 2 threads, expected 1"),
    ],
)
def test_each_difference_is_said(live, found, said):
    assert said in wrong(live, found)


def test_a_warning_in_the_log_is_no_error():
    assert (
        verdict.error_lines("[W:onnxruntime:Default] Failed to persist\nraddle: onnxruntime 1.31.1: intra_op=1") == []
    )


def test_the_last_line_of_json_is_the_look():
    assert verdict.look('noise\n{"threads": 1}\n{"threads": 2}\n{broken\nmore')["threads"] == 2


def test_a_pod_that_did_not_come_so_far_has_the_reason_in_each_container():
    (only,) = verdict.failed(LIMITED, "no image")
    assert only.wrong == ("no image",)
    assert "! no image" in verdict.table([only])


def test_the_table_has_a_row_a_container():
    (only,) = verdict.judge(LIMITED, pod(), seen(), STOCK)
    heading, row = verdict.table([only]).splitlines()
    assert heading.split() == [word for cell in verdict.HEADINGS for word in cell.split()]
    cells = ["limited", "app", "Burstable", "0-1", "0.5", "2", "1", "1", "20.0 -> 1.2", "62% -> 0%", "0", "yes"]
    assert row.split() == " ".join(cells).split()


def test_a_container_without_a_quota_has_no_throttling():
    look = {**LOOK, "load": {**LOAD, "throttled_percent": None}}
    (only,) = verdict.judge(LIMITED, pod(), seen(log=json.dumps(look)), STOCK)
    assert "62% -> - " in verdict.table([only])


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda one: one.name)
def test_a_scenarios_quota_is_its_limit_unless_its_cpus_are_exclusive(scenario):
    for one in scenario.containers:
        limit = None if one.limit is None else float(parse(one.limit))
        assert one.quota_cpus == (None if scenario.qos == "Guaranteed" else limit)


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda one: one.name)
def test_a_scenarios_pod_has_each_container_once_and_fetches_no_image(scenario):
    spec = scenario.pod_spec()
    containers = [*spec["initContainers"], *spec["containers"]]
    assert sorted(one["name"] for one in containers) == sorted(one.name for one in scenario.containers)
    assert {one["imagePullPolicy"] for one in containers} == {"Never"}
    assert spec["containers"]


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda one: one.name)
def test_a_workloads_pod_is_found_by_its_scenarios_label(scenario):
    manifest = scenario.manifest("here")
    assert manifest["kind"] == scenario.kind
    spec = manifest["spec"].get("jobTemplate", manifest)["spec"]
    labelled = manifest if scenario.kind == "Pod" else spec["template"]
    assert labelled["metadata"]["labels"] == scenario.labels
    assert spec.get("selector", {}).get("matchLabels", scenario.labels) == scenario.labels


def test_only_a_policy_that_names_a_native_sidecar_governs_it():
    (named,) = (one for one in SCENARIOS if one.named)
    (policy,) = named.policies("here")
    assert policy["spec"]["containers"] == [one.name for one in named.containers]
    assert any(one.sidecar for one in named.containers)


def test_the_scenarios_are_listed(capsys):
    assert main(["scenarios"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == len(SCENARIOS)


@pytest.mark.parametrize("arguments", [["--required", "run", "job"], ["run", "job", "--required"]])
def test_an_option_holds_before_and_after_the_action(arguments):
    options = _parser().parse_args(arguments)
    assert (options.required, options.names, options.form) == (True, ["job"], "table")


def test_a_scenario_that_is_not_there_is_a_wrong_argument(capsys):
    assert main(["run", "nothing"]) == 2
    assert "there are below-one-cpu, " in capsys.readouterr().err

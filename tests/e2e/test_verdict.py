"""What is said of a container, from what was read of it, without a node."""

import json

import pytest

from e2e import verdict
from e2e.scenarios import GUEST, HOST, SCENARIOS, Container, Scenario
from raddle.planning import wire
from raddle_operator.objects.quantities import parse

LIMITED = Scenario(
    name="limited", why="", qos="Burstable", containers=(Container(limit="500m", threads=1, quota_cpus=0.5),)
)
LOAD = {"cpu_ms": 1.25, "throttled_percent": 0.0}
LOOK = {"cpus": "0-1", "threads": 1, "caller": "0-1", "workers": [], "spinning": 0, "quota_cpus": 0.5, "load": LOAD}
STOCK = {**LOOK, "threads": 2, "load": {**LOAD, "cpu_ms": 20, "throttled_percent": 61.9}}


def pod(threads=1, qos="Burstable", volume="configMap", mounts=("/opt/raddle", "/etc/ld.so.preload")):
    plan = {"plan.raddle.dev/app": json.dumps({"v": wire.VERSION, "set": {"intraOp": threads}})}
    container = {"name": "app", "volumeMounts": [{"name": "raddle-shim", "mountPath": path} for path in mounts]}
    volumes = [{"name": "data", "emptyDir": {}}, {"name": "raddle-shim", volume: {}}]
    spec = {"volumes": volumes, "containers": [container, {"name": "other"}]}
    return {"metadata": {"annotations": plan}, "spec": spec, "status": {"qosClass": qos}}


def live(count, *threads):
    marks = [f"onnxruntime 1.31.1: intra_op={one}, inter_op=7" for one in threads]
    of_app = {"container": "app", "withRuntime": count, "processes": [{"marks": marks}, {"marks": []}]}
    other = {"container": "other", "withRuntime": 1, "processes": [{"marks": ["onnxruntime 1.31.1: intra_op=9"]}]}
    return (0, json.dumps({"live": {"containers": [of_app, other]}}))


ONE = live(1, 1)


def seen(log=None, effective=1, show=True, asked=ONE):
    shown = (0, json.dumps({"effective": {"intraOp": effective}})) if show else None
    return verdict.Observation(log=json.dumps(LOOK) if log is None else log, show=shown, live=asked)


def wrong(made=None, found=None, scenario=LIMITED):
    return " | ".join(verdict.judge(scenario, scenario.containers[0], made or pod(), found or seen()))


def test_a_container_that_is_as_it_must_be_has_nothing_wrong():
    assert wrong() == ""


@pytest.mark.parametrize(
    ("made", "found", "said"),
    [
        (pod(qos="Guaranteed"), None, "class of service Guaranteed, expected Burstable"),
        ({**pod(), "metadata": {}}, None, "the pod has no plan"),
        (pod(volume="image"), None, "the shim's volume is of kind image, expected configMap"),
        ({**pod(), "spec": {}}, None, "the shim's volume is of kind none, expected configMap"),
        (pod(mounts=("/opt/raddle",)), None, "/etc/ld.so.preload is not mounted"),
        (None, seen(log="nothing"), "the application said nothing"),
        (None, seen(log=json.dumps({**LOOK, "threads": 2})), "threads 2, expected 1"),
        (None, seen(log=json.dumps({**LOOK, "quota_cpus": None})), "quota_cpus None, expected 0.5"),
        (None, seen(log=json.dumps({**LOOK, "cpus": "1", "caller": "1"})), "CPUs 1, expected 0-1"),
        (None, seen(log=json.dumps({**LOOK, "caller": "1"})), "threads are tied to 1 on shared CPUs 0-1"),
        (
            None,
            seen(log=json.dumps({**LOOK, "spinning": 1})),
            "1 workers burn CPU time half a second after the answer, expected 0",
        ),
        (None, seen(log=json.dumps({**LOOK, "workers": ["0"]})), "threads are tied to 0-1 0 on shared CPUs 0-1"),
        (None, seen(log="pthread_setaffinity_np failed\n" + json.dumps(LOOK)), "in the log: pthread_setaffinity_np"),
        (pod(threads=2), None, "the plan is 2 threads, expected 1"),
        (None, seen(asked=live(1, 2)), "`raddle explain --live` says [2] threads, expected 1"),
        (None, seen(asked=live(1)), "`raddle explain --live` says [] threads, expected 1"),
        (None, seen(effective=2), "`python -m raddle` says 2 threads, expected 1"),
        (None, seen(asked=(1, "not reached")), "`raddle explain --live` ended with 1: not reached"),
        (None, seen(asked=live(0)), "`raddle explain --live` ended with 0: {"),
    ],
)
def test_each_difference_is_said(made, found, said):
    assert said in wrong(made, found)


def test_who_has_no_python_is_not_asked():
    assert wrong(found=seen(show=False)) == ""


@pytest.mark.parametrize(
    ("cpus", "caller", "worker", "said"),
    [
        ("4-5", "4", "5", ""),
        ("4-5", "4-5", "4-5", ""),
        ("4-5", "4", "0-15", "threads may run on 0-15, outside the container's 4-5"),
        ("4-6", "4", "5", "CPUs 4-6 are 3, expected 2"),
        ("3-4", "4", "4", "CPUs 3-4 lie in none of 0-3 4-7"),
    ],
)
def test_exclusive_cpus_are_as_many_as_asked_for_in_one_numa_node_and_threads_may_be_tied_to_them(
    cpus, caller, worker, said
):
    container = Container(threads=2, cpus=None, cpu_count=2, within=("0-3", "4-7"), exclusive=True)
    scenario = Scenario(name="exclusive", why="", qos="Burstable", containers=(container,))
    look = {"cpus": cpus, "threads": 2, "caller": caller, "workers": [worker], "spinning": 1, "quota_cpus": None}
    found = seen(log=json.dumps(look), asked=live(1, 2), effective=2)
    assert wrong(pod(threads=2), found, scenario) == said


def test_a_worker_that_sleeps_on_exclusive_cpus_is_said():
    container = Container(threads=2, cpus=None, cpu_count=2, exclusive=True)
    scenario = Scenario(name="exclusive", why="", qos="Burstable", containers=(container,))
    look = {"cpus": "4-5", "threads": 2, "caller": "4", "workers": ["5"], "spinning": 0, "quota_cpus": None}
    found = seen(log=json.dumps(look), asked=live(1, 2), effective=2)
    said = "0 workers burn CPU time half a second after the answer, expected 1"
    assert wrong(pod(threads=2), found, scenario) == said


def test_a_scenario_of_two_nodes_is_a_deployment_with_a_pod_on_each_and_numbers_of_their_own():
    other = Container(limit="500m", threads=2, cpus="0-15", quota_cpus=0.5)
    scenario = Scenario(
        name="both",
        why="",
        qos="Burstable",
        containers=LIMITED.containers,
        nodes=(HOST, GUEST),
        elsewhere={GUEST: (other,)},
        kind="Deployment",
    )
    spec = scenario.manifest("here")["spec"]
    assert spec["replicas"] == 2
    assert spec["template"]["spec"]["topologySpreadConstraints"][0]["labelSelector"]["matchLabels"] == scenario.labels
    assert scenario.expected(GUEST) == (other,)
    assert wrong(scenario=scenario) == ""
    assert verdict.judge(scenario, other, pod(), seen())[0] == "threads 1, expected 2"


def test_what_requests_cost_is_measured_on_this_machine_only():
    def loads(*nodes):
        scenario = Scenario(name="one", why="", qos="Burstable", containers=LIMITED.containers, nodes=nodes)
        return "env" not in scenario.pod_spec()["containers"][0]

    assert (loads(HOST), loads(GUEST), loads(HOST, GUEST)) == (True, False, False)


def test_a_warning_in_the_log_is_no_error():
    assert (
        verdict.error_lines("[W:onnxruntime:Default] Failed to persist\nraddle: onnxruntime 1.31.1: intra_op=1") == []
    )


def test_the_last_line_of_json_is_the_look():
    assert verdict.sample('noise\n{"threads": 1}\n{"threads": 2}\n{broken\nmore')["threads"] == 2


@pytest.mark.parametrize(
    ("quota_cpus", "throttled", "stock", "said"),
    [
        (
            0.5,
            0.0,
            STOCK,
            "quota 0.5; threads: stock 2, planned 1, effective 1; CPU 20.0 ms -> 1.2 ms a request; throttled 62 % -> 0 %",
        ),
        (
            None,
            None,
            STOCK,
            "quota none; threads: stock 2, planned 1, effective 1; CPU 20.0 ms -> 1.2 ms a request; throttled 62 % -> -",
        ),
        (0.5, 0.0, None, "quota 0.5; threads: stock -, planned 1, effective 1; CPU 1.2 ms a request; throttled 0 %"),
    ],
)
def test_a_line_says_what_a_container_was_given_what_ran_and_what_it_costs(quota_cpus, throttled, stock, said):
    look = {**LOOK, "quota_cpus": quota_cpus, "load": {**LOAD, "throttled_percent": throttled}}
    line = verdict.summary(LIMITED.containers[0], pod(), seen(log=json.dumps(look)), stock)
    assert line == f"Burstable, CPUs 0-1, {said}"


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


def test_a_policy_names_the_native_sidecar_that_it_governs():
    (named,) = (one for one in SCENARIOS if "containers" in one.policy_spec)
    assert named.policy_spec["containers"] == [one.name for one in named.containers]
    assert any(one.sidecar for one in named.containers)

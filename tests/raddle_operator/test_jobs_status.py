"""What an InferenceTuning's status says, and that it is read back as it was."""

import jsonschema
import pytest
import yaml
from support.measured import BIG, NOW_S, SMALL, WINNER, nodes, outcome, places_of, run, tuning_object

from raddle_operator.cli import schema
from raddle_operator.controller.status import with_times
from raddle_operator.jobs.changes import JobChanges, TuningInputs, decide, stopped
from raddle_operator.jobs.places import Places
from raddle_operator.jobs.run import State
from raddle_operator.jobs.status import known, taken_until_s, tuning_status, unfinished
from raddle_operator.jobs.template import RefusedError
from raddle_operator.results.verdict import BoundTest, Interval, Verdict

IMAGE = "registry.example/app:1"
MACHINES = {"a": BIG, "b": BIG}
NOWHERE = Places(classes={}, left_out={})


def seen(*rounds, machines=MACHINES, refused=None, **spec):
    """The status after each of these lists of Jobs was seen, each time from what the last one said."""
    tuned, status = tuning_object(**spec), {}
    there, _ = nodes(**machines)
    found = places_of(tuned, **machines)
    for runs in ([], *rounds):
        inputs = TuningInputs(known=known(status, 1), places=found, nodes=there, runs=runs, now_s=NOW_S)
        plan = decide(tuned, inputs) if refused is None else stopped(tuned, inputs)
        status = tuning_status(plan, generation=1, places=None if refused else found, refused=refused)
    status["conditions"] = with_times(status["conditions"], {}, 1, NOW_S)
    jsonschema.validate(
        {"spec": {"objective": {"type": "Throughput"}}, "status": status}, schema.schema("InferenceTuning")
    )
    return status


def conditions(status):
    return {one["type"]: (one["status"], one["reason"]) for one in status["conditions"]}


def message(status, kind):
    return next(one["message"] for one in status["conditions"] if one["type"] == kind)


BETTER = [
    run("a", State.MEASURED, outcome=outcome(percent=-12.5), image=IMAGE),
    run("b", State.MEASURED, outcome=outcome(percent=-10.5), image=IMAGE),
]


def test_the_whole_of_it(golden):
    golden("tuning-status.yaml", yaml.safe_dump(seen(BETTER[:1], BETTER), sort_keys=False, width=120))


def test_before_anything_is_measured_it_says_where_that_can_be():
    status = seen(machines={**MACHINES, "c": SMALL, "d": None})
    assert conditions(status) == {
        "Accepted": ("True", "Accepted"),
        "Running": ("False", "Blocked"),
        "Valid": ("False", "NotMeasuredYet"),
        "Inconclusive": ("False", "Conclusive"),
    }
    expected = "3 nodes of 2 classes can be measured; excluded: d, because it has no valid NodeCPUTopology"
    assert message(status, "Accepted") == expected
    assert "1 of the 2 nodes that nodeClasses.nodesPerClass requires" in message(status, "Running")
    assert (status["nodeClass"], "verdict" in status, "gain" in status) == ("2 classes", False, False)


def test_while_pods_measure_it_says_which_do_what():
    status = seen([BETTER[0]], [BETTER[0], run("b", State.RUNNING)])
    assert conditions(status)["Running"] == ("True", "Measuring")
    assert message(status, "Running") == "b verifies the winner of a"


def test_a_pod_that_can_not_run_says_why():
    status = seen([run("a", State.WAITING, message="serve: ImagePullBackOff: not found")])
    assert conditions(status)["Running"] == ("False", "Blocked")
    assert message(status, "Running").endswith("a waits: serve: ImagePullBackOff: not found")


def kept_bound(node, percent):
    """The winner keeps the bound and the plan does not; the figure is no better with it."""
    interval = Interval(percent=percent, low=percent - 30, high=percent + 30)
    test = BoundTest(bound_ms=20.0, queries=900, over=1, needed=662)
    return run(node, State.MEASURED, outcome=outcome(gain=interval, bound=test), image=IMAGE)


def test_a_winner_that_only_keeps_the_bound_is_not_said_to_gain():
    runs = [kept_bound("a", 25), kept_bound("b", 8)]
    status = seen(runs[:1], runs)
    assert (status["verdict"], status["gain"]) == ("Better", "keeps p99 within 20 ms (the plan does not)")
    [found] = status["classes"]
    assert "gain" not in found
    kept = "mode Never, intraOp 3 (the plan has intraOp 4): keeps p99 within 20 ms (the plan does not) on 2 nodes"
    assert found["message"] == kept
    assert message(status, "Valid").endswith(found["message"])


def test_the_smallest_gain_of_several_classes_is_the_one_that_only_keeps_the_bound():
    machines = {"a": BIG, "c": SMALL}
    runs = [BETTER[0], kept_bound("c", -14)]
    status = seen(runs, machines=machines, parallelism=2, nodeClasses={"nodesPerClass": 1})
    assert status["gain"] == "keeps p99 within 20 ms (the plan does not)"


def test_classes_that_end_otherwise_are_mixed():
    runs = [*BETTER, run("c", State.MEASURED, outcome=outcome(Verdict.BOUND_NOT_MET))]
    machines = {**MACHINES, "c": SMALL, "d": SMALL}
    status = seen([BETTER[0], runs[2]], runs, machines=machines, parallelism=2)
    assert status["verdict"] == "Mixed"
    assert conditions(status)["Valid"] == ("True", "Measured")


def said(*rounds, **more):
    [found] = seen(*rounds, **more)["classes"]
    return found["message"]


def test_a_class_that_is_not_decided_says_what_its_nodes_wait_for_and_which_failed():
    assert said() == "a waits for its turn"
    assert said([run("a", State.WAITING)]) == "a waits for its pod to start"
    failed = run("a", State.FAILED, message="no model there")
    assert said([failed], machines={**MACHINES, "c": BIG}) == "b waits for its turn; a failed: no model there"


def test_a_bound_that_nothing_keeps_is_said_with_what_was_measured_and_what_to_do():
    late = BoundTest(bound_ms=20.0, queries=900, over=40, needed=2000)
    assert said([run("a", State.MEASURED, outcome=outcome(Verdict.BOUND_NOT_MET, bound=late))]) == (
        "No setting that was measured keeps p99 within 20 ms: with the plan, 40 of 900 requests took longer. "
        "Lower the rate, raise the bound, or give more CPUs."
    )


def test_a_budget_that_was_too_short_says_for_what_and_what_to_do():
    gain = Interval(percent=-4, low=-9, high=1)
    short = outcome(Verdict.INCONCLUSIVE, winner=WINNER, gain=gain)
    assert said([run("a", State.MEASURED, outcome=short)]) == (
        "the budget ran out before it was certain whether mode Never, intraOp 3 is better than the plan "
        "(-4.0 % [-9.0, +1.0]); raise budget.minutes"
    )


def test_nodes_that_disagree_are_inconclusive():
    runs = [BETTER[0], run("b", State.MEASURED, outcome=outcome(Verdict.NO_DIFFERENCE))]
    status = seen(runs[:1], runs)
    assert status["verdict"] == "Inconclusive"
    assert conditions(status)["Valid"] == ("False", "Inconclusive")
    assert conditions(status)["Inconclusive"] == ("True", "Inconclusive")
    assert message(status, "Inconclusive").endswith("b did not find it better (NoDifference)")


def test_what_can_not_be_carried_out_says_why_and_what_to_do():
    status = seen(refused=RefusedError("WorkloadNotFound", "there is no deployment/ranker; correct spec.workload"))
    assert conditions(status)["Accepted"] == ("False", "WorkloadNotFound")
    assert conditions(status)["Running"] == ("False", "WorkloadNotFound")


@pytest.mark.parametrize(
    ("left_out", "reason"),
    [
        ({}, "NoNodeMatches"),
        ({"a": "it has no valid NodeCPUTopology"}, "TopologyMissing"),
        ({"a": "it is cordoned"}, "NoNodeFits"),
    ],
)
def test_without_a_node_it_can_not_be_carried_out(left_out, reason):
    status = tuning_status(
        JobChanges(classes=()), generation=1, places=Places(classes={}, left_out=left_out), refused=None
    )
    assert conditions(status)["Accepted"] == ("False", reason)


def test_the_image_is_the_measured_one_whatever_has_become_of_the_workload():
    measured = seen(BETTER[:1], BETTER)
    inputs = TuningInputs(known=known(measured, 1), places=NOWHERE, nodes={}, runs=[], now_s=NOW_S)
    left = stopped(tuning_object(), inputs)
    gone = RefusedError("WorkloadNotFound", "there is no deployment/ranker")
    kept = tuning_status(left, generation=1, places=None, refused=gone)
    assert [status["classes"][0]["key"]["image"] for status in (measured, kept)] == [IMAGE, IMAGE]


def test_what_it_says_is_read_back():
    runs = [BETTER[0], run("b", State.FAILED, message="no model")]
    status = seen(runs[:1], runs, machines={**MACHINES, "c": BIG})
    [found] = known(status, 1)
    read = [(node.name, str(node.state), node.message) for node in found.nodes]
    assert read == [("a", "Measured", ""), ("b", "Failed", "no model"), ("c", "Pending", "")]
    assert found.nodes[0].outcome == BETTER[0].outcome


def test_it_names_the_nodes_that_are_taken_or_will_be():
    assert unfinished(seen([BETTER[0]], [BETTER[0], run("b", State.RUNNING)])) == {"b"}
    assert unfinished(seen([BETTER[0]])) == {"b"}
    assert unfinished(seen(BETTER[:1], BETTER)) == unfinished({"classes": "x"}) == set()


@pytest.mark.parametrize("state", [State.RUNNING, State.ENDING])
def test_a_job_takes_its_node_no_longer_than_its_tuning_allows(state):
    status, job, half_an_hour = seen([run("a", state)]), run("a", state).job, tuning_object(budget={"minutes": 30})
    assert taken_until_s(job, status, half_an_hour) == NOW_S + 30 * 60 + 1200 + 60
    assert taken_until_s(job, status, None) == NOW_S + 24 * 3600 + 1200 + 60, "it can't be read: at most a day"
    assert taken_until_s(run("b", state).job, status, half_an_hour) == 0, "the status does not name the node"


@pytest.mark.parametrize(
    "spoilt",
    [
        {"observedGeneration": 2},
        {"classes": "x"},
        {"classes": [{"nodeClass": "x", "nodes": [{"name": "a", "state": "Measured", "outcome": "{"}]}]},
        {"classes": [{"nodeClass": "x", "nodes": [{"name": "a", "state": "Odd"}]}]},
    ],
)
def test_what_can_not_be_read_or_speaks_of_another_generation_is_measured_again(spoilt):
    found = known({**seen(BETTER[:1]), **spoilt}, 1)
    assert [node for one in found for node in one.nodes] == []

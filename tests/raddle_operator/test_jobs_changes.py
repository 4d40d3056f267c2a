"""What is to be done for an InferenceTuning: tables over named situations, and what holds in all of them."""

import itertools
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.measured import BIG, DIGEST, NOW_S, SMALL, WINNER, nodes, outcome, places_of, run, tuning_object

from raddle_operator.jobs.changes import (
    MOST_FAILED,
    MOST_TRIES,
    NodeState,
    Start,
    Stop,
    TuningInputs,
    decide,
    failures,
    stopped,
)
from raddle_operator.jobs.places import LOST_AFTER_S, Node
from raddle_operator.jobs.run import POD_WITHIN_S, START_WITHIN_S, State
from raddle_operator.results.verdict import BoundTest, Interval, Verdict

TWO = {"a": BIG, "b": BIG}


def inputs(tuned, machines=TWO, *, known=(), runs=(), **more):
    there, _ = nodes(**machines)
    given = {"nodes": there, "places": places_of(tuned, **machines), "now_s": NOW_S, **more}
    return TuningInputs(known=tuple(known), runs=runs, **given)


def states(plan):
    return {node.name: str(node.state) for one in plan.classes for node in one.nodes}


def message(plan, node):
    return next(one.message for each in plan.classes for one in each.nodes if one.name == node)


def after(tuned, *rounds, machines=TWO, **more):
    """The plan after each of these lists of runs was seen, with what the status kept between them."""
    plan = decide(tuned, inputs(tuned, machines, **more))
    for runs in rounds:
        plan = decide(tuned, inputs(tuned, machines, known=plan.classes, runs=runs, **more))
    return plan


def test_while_it_searches_no_other_node_is_used():
    plan = after(tuning_object(), [run("a", State.RUNNING)])
    assert (plan.start, plan.stop, states(plan)) == ((), (), {"a": "Running"})


def test_another_node_tries_the_winner_again():
    plan = after(tuning_object(), [run("a", State.MEASURED, outcome=outcome())])
    assert plan.start == (Start(node="b", attempt=1, winner=WINNER),)
    assert plan.classes[0].verdict is None


def test_a_class_is_decided_when_as_many_nodes_agree_as_were_asked_for_and_the_smallest_gain_counts():
    done = [run(node, State.MEASURED, outcome=outcome(percent=percent)) for node, percent in (("a", -12), ("b", -9))]
    plan = after(tuning_object(), done[:1], done)
    assert plan.classes[0].verdict is Verdict.BETTER
    assert plan.classes[0].decided_by.name == "b"
    assert not plan.start


def test_a_node_where_the_winner_only_keeps_the_bound_counts_before_those_where_it_gains():
    bound = BoundTest(bound_ms=20.0, queries=900, over=1, needed=662)
    worse = Interval(percent=30, low=20, high=40)
    done = [
        run("a", State.MEASURED, outcome=outcome(percent=-9)),
        run("b", State.MEASURED, outcome=outcome(gain=worse, bound=bound)),
    ]
    assert after(tuning_object(), done[:1], done).classes[0].decided_by.name == "b"


@pytest.mark.parametrize("later", [(), ([],)], ids=["while its Job is there", "when its Job has gone"])
def test_one_node_is_enough_where_one_was_asked_for_and_its_result_stays_known(later):
    tuned = tuning_object(nodeClasses={"nodesPerClass": 1})
    plan = after(tuned, [run("a", State.MEASURED, outcome=outcome())], *later)
    assert (plan.classes[0].verdict, plan.start) == (Verdict.BETTER, ())


@pytest.mark.parametrize("verdict", [Verdict.NO_DIFFERENCE, Verdict.BOUND_NOT_MET, Verdict.INCONCLUSIVE])
def test_where_the_plan_stands_nobody_needs_to_try_again(verdict):
    plan = after(tuning_object(), [run("a", State.MEASURED, outcome=outcome(verdict))])
    assert (plan.classes[0].verdict, plan.start) == (verdict, ())


def test_nodes_that_disagree_decide_nothing():
    no_difference = run("b", State.MEASURED, outcome=outcome(Verdict.NO_DIFFERENCE))
    runs = [run("a", State.MEASURED, outcome=outcome()), no_difference]
    plan = after(tuning_object(), runs[:1], runs)
    assert plan.classes[0].verdict is Verdict.INCONCLUSIVE
    assert "a found" in plan.classes[0].message
    assert "b did not find it better (NoDifference)" in plan.classes[0].message


def test_nodes_that_measured_another_image_do_not_agree():
    other = of_image("sha256:" + "cd" * 32)
    runs = [run("a", State.MEASURED, outcome=outcome()), run("b", State.MEASURED, outcome=other)]
    plan = after(tuning_object(), runs[:1], runs)
    assert plan.classes[0].verdict is Verdict.INCONCLUSIVE
    assert "b measured something else: the image is sha256:cdcd" in plan.classes[0].message


@pytest.mark.parametrize("digest", ["", DIGEST])
def test_nodes_that_ran_other_images_do_not_agree_where_not_both_told_a_digest(digest):
    runs = [
        run("a", State.MEASURED, outcome=of_image(digest), image="app:1"),
        run("b", State.MEASURED, outcome=of_image(""), image="app:2"),
    ]
    plan = after(tuning_object(), runs[:1], runs)
    assert plan.classes[0].verdict is Verdict.INCONCLUSIVE
    assert "b measured something else: the image is app:2, but the tuning is for app:1" in plan.classes[0].message
    same = [runs[0], replace(runs[1], image="app:1")]
    assert after(tuning_object(), same[:1], same).classes[0].verdict is Verdict.BETTER


def test_one_image_by_two_names_is_the_same():
    runs = [run(node, State.MEASURED, outcome=outcome(), image=f"{node}.example/app") for node in "ab"]
    assert after(tuning_object(), runs[:1], runs).classes[0].verdict is Verdict.BETTER


def of_image(digest):
    found = outcome()
    return replace(found, key=replace(found.key, image=digest))


def test_the_first_node_of_each_class_searches_one_node_at_a_time():
    machines = {"a": BIG, "b": BIG, "c": SMALL, "d": SMALL}
    plan = after(tuning_object(), machines=machines)
    assert plan.start == (Start(node="a", attempt=1),)
    assert states(plan) == {"a": "Pending", "c": "Pending"}
    at_once = after(tuning_object(parallelism=2), machines=machines)
    assert [start.node for start in at_once.start] == ["a", "c"]


def test_of_more_than_16_classes_the_first_16_are_measured():
    machines = {f"n{number}": replace(BIG, cores=number) for number in range(20)}
    plan = after(tuning_object(nodeClasses={"nodesPerClass": 1}), machines=machines)
    assert len(plan.classes) == 16


def test_a_class_with_too_few_nodes_is_not_begun():
    plan = after(tuning_object(), machines={"a": BIG})
    assert not plan.start
    assert plan.classes[0].message.startswith("1 of the 2 nodes")


def test_a_spec_that_has_changed_begins_anew():
    tuned = tuning_object(generation=2)
    plan = decide(tuned, inputs(tuned, runs=[run("a", State.RUNNING, generation=1)]))
    assert plan.stop == (Stop(job="a-1-1", why="the tuning's spec has changed"),)
    assert plan.start == (), "the old pod may still be there"
    gone = decide(tuned, inputs(tuned, known=plan.classes, runs=[run("a", State.MEASURED, generation=1)]))
    assert gone.start == (Start(node="a", attempt=1),)


def test_nothing_runs_of_a_tuning_that_can_no_longer_be_carried_out_and_its_results_stay():
    tuned = tuning_object()
    known = after(tuned, [run("a", State.MEASURED, outcome=outcome())]).classes
    plan = stopped(tuned, inputs(tuned, known=known, runs=[run("b", State.RUNNING)]))
    assert plan.stop == (Stop(job="b-1-1", why="the tuning can't run"),)
    assert states(plan) == {"a": "Measured"}
    assert plan.classes[0].verdict is None


def test_a_result_stays_one_when_its_workload_is_gone():
    tuned = tuning_object(nodeClasses={"nodesPerClass": 1})
    known = after(tuned, [run("a", State.MEASURED, outcome=outcome())]).classes
    assert stopped(tuned, inputs(tuned, known=known)).classes == known


def test_a_node_where_another_tuning_measures_is_waited_for():
    plan = after(tuning_object(), busy={"a": NOW_S + 90})
    assert not plan.start
    assert message(plan, "a") == "another tuning is measuring on it"
    assert plan.again_s == 90, "its Job may stay, but not its turn"


@pytest.mark.parametrize("generation", [1, 2])
def test_a_node_whose_job_is_being_deleted_waits_and_says_for_what(generation):
    tuned = tuning_object(generation=2)
    plan = after(tuned, [run("a", State.ENDING, generation=generation)])
    assert not plan.start
    assert message(plan, "a") == f"job/a-{generation}-1 is being deleted"


WAITED_S = NOW_S - START_WITHIN_S
FAILURES = {
    "out of memory": run("a", State.FAILED, message="OOMKilled: needs more"),
    "took too long": run("a", State.FAILED, message="DeadlineExceeded"),
    "an image that can't be pulled": run("a", State.WAITING, since_s=WAITED_S, message="serve: ImagePullBackOff"),
    "no room on the node": run("a", State.WAITING, since_s=WAITED_S, message="Unschedulable: Insufficient cpu"),
    "evicted for the last time": run("a", State.DISRUPTED, attempt=MOST_TRIES, message="Evicted: low on memory"),
}


@pytest.mark.parametrize("case", FAILURES)
def test_where_a_node_fails_the_next_one_of_the_class_searches(case):
    failed = FAILURES[case]
    machines = {"a": BIG, "b": BIG, "c": BIG}
    plan = after(tuning_object(), [failed], machines=machines)
    assert states(plan) == {"a": "Failed", "b": "Pending"}
    assert failed.message in message(plan, "a")
    assert [stop.job for stop in plan.stop] == ([failed.job.name] if failed.state.is_active else [])
    if not failed.state.is_active:
        assert [start.node for start in plan.start] == ["b"]


def test_a_failure_is_told_once():
    known = after(tuning_object()).classes
    failed = decide(tuning_object(), inputs(tuning_object(), known=known, runs=[FAILURES["took too long"]])).classes
    assert [(one.name, one.message) for one in failures(known, failed)] == [("a", "DeadlineExceeded")]
    assert failures(failed, failed) == []


def test_a_class_without_enough_nodes_after_a_failure_is_inconclusive_and_says_what_failed():
    plan = after(tuning_object(), [FAILURES["out of memory"]])
    assert plan.classes[0].verdict is Verdict.INCONCLUSIVE
    assert "a failed: OOMKilled" in plan.classes[0].message
    assert not plan.start


def test_a_class_with_a_failure_goes_on_when_there_is_another_node():
    tuned, failed = tuning_object(), [FAILURES["out of memory"]]
    known = after(tuned, failed).classes
    plan = decide(tuned, inputs(tuned, {**TWO, "c": BIG}, known=known, runs=failed))
    assert plan.classes[0].verdict is None
    assert [start.node for start in plan.start] == ["b"]


def test_a_failure_ends_no_class_while_the_tuning_can_not_be_carried_out():
    tuned = tuning_object()
    known = after(tuned, [FAILURES["out of memory"]], machines={"a": BIG, "b": BIG, "c": BIG}).classes
    assert stopped(tuned, inputs(tuned, known=known)).classes[0].verdict is None


def test_a_class_in_which_too_many_nodes_failed_is_given_up():
    machines = dict.fromkeys("abcdef", BIG)
    rounds = [[run(name, State.FAILED, message="no model") for name in "abcdef"[:count]] for count in (1, 2, 3)]
    plan = after(tuning_object(), *rounds, machines=machines)
    assert len(plan.classes[0].nodes) == MOST_FAILED
    assert plan.classes[0].verdict is Verdict.INCONCLUSIVE
    assert "a: no model" in plan.classes[0].message
    assert not plan.start


def test_an_evicted_pod_is_made_again_on_its_node():
    plan = after(tuning_object(), [run("a", State.DISRUPTED, message="Evicted")])
    assert plan.start == (Start(node="a", attempt=2),)
    assert message(plan, "a") == "Evicted; its pod is recreated"


def test_a_pod_that_still_waits_is_given_its_time():
    plan = after(tuning_object(), [run("a", State.WAITING, since_s=NOW_S - 30, message="Unschedulable")])
    assert (plan.stop, states(plan), message(plan, "a")) == ((), {"a": "Pending"}, "Unschedulable")
    assert plan.again_s == START_WITHIN_S - 30


def test_a_job_that_gets_no_pod_says_so_and_is_made_again_later():
    waits = [run("a", State.NO_POD, since_s=NOW_S - POD_WITHIN_S, message="job/a gets no pod")]
    plan = after(tuning_object(), waits)
    assert message(plan, "a") == "job/a gets no pod"
    assert not plan.stop
    late = [run("a", State.NO_POD, since_s=WAITED_S, message="job/a gets no pod")]
    assert after(tuning_object(), late).stop == (
        Stop(job="a-1-1", why="no pod was created for it; the Job is recreated"),
    )
    assert after(tuning_object(), late, []).start == (Start(node="a", attempt=1),), "that pod was never made"


def test_a_job_that_the_api_server_refuses_is_a_message_and_is_tried_again():
    plan = after(tuning_object(), refused={"a": "exceeded quota: jobs"})
    assert plan.start == (Start(node="a", attempt=1),)
    assert message(plan, "a") == "exceeded quota: jobs"


@pytest.mark.parametrize("there", [None, Node(labels={}, unready_s=NOW_S - LOST_AFTER_S)], ids=["gone", "not ready"])
def test_a_lost_nodes_job_is_deleted_and_another_node_is_taken(there):
    machines = {"b": BIG, "c": BIG}
    known = after(tuning_object(), machines={"a": BIG, "b": BIG, "c": BIG}).classes
    runs = [run("a", State.RUNNING)]
    more = {name: Node(labels={}) for name in machines}
    lost = inputs(tuning_object(), machines, known=known, runs=runs, nodes=more | ({"a": there} if there else {}))
    plan = decide(tuning_object(), lost)
    assert plan.stop == (Stop(job="a-1-1", why="node a is lost: it is gone or not Ready"),)
    assert states(plan) == {"b": "Pending"}
    assert [start.node for start in plan.start] == ["b"], "nobody says when the pod there will have ended"


def test_a_node_that_is_silent_for_a_moment_goes_on():
    known = after(tuning_object()).classes
    there = {"a": Node(labels={}, unready_s=NOW_S - 5), "b": Node(labels={})}
    plan = decide(tuning_object(), inputs(tuning_object(), known=known, runs=[run("a", State.RUNNING)], nodes=there))
    assert (plan.stop, states(plan), plan.again_s) == ((), {"a": "Running"}, LOST_AFTER_S - 5)


ENDS = st.sampled_from(
    [
        {"state": State.MEASURED, "outcome": outcome()},
        {"state": State.MEASURED, "outcome": outcome(Verdict.NO_DIFFERENCE)},
        {"state": State.FAILED, "message": "no model"},
        {"state": State.DISRUPTED, "message": "Evicted"},
    ]
)
MACHINES = st.dictionaries(st.sampled_from("abcdefgh"), st.sampled_from([BIG, SMALL]), min_size=1)


class Cluster:
    """Jobs of one tuning, of which any may move on at any time, and a controller that may see it late or twice."""

    def __init__(self, tuned, machines):
        self.tuned, self.machines = tuned, machines
        self.jobs, self.known, self.made = {}, (), []

    def reconcile(self):
        plan = decide(self.tuned, inputs(self.tuned, self.machines, known=self.known, runs=list(self.jobs.values())))
        self.known = plan.classes
        for stop in plan.stop:
            self.jobs.pop(stop.job)
        for start in plan.start:
            made = run(start.node, State.WAITING, attempt=start.attempt)
            self.made.append(made.job.name)
            self.jobs[made.job.name] = made
        self.check()
        return plan

    def check(self):
        active = [one.job.node for one in self.jobs.values() if one.state.is_active]
        assert len(active) <= self.tuned.parallelism
        assert len(set(active)) == len(active), "two Jobs on one node"
        assert len(set(self.made)) == len(self.made), "a Job was made twice"

    @property
    def is_at_rest(self):
        return not any(one.state.is_active for one in self.jobs.values())


@given(data=st.data(), machines=MACHINES, parallelism=st.integers(1, 3), per_class=st.integers(1, 3))
def test_no_node_has_two_jobs_and_no_more_run_than_allowed_whatever_happens(data, machines, parallelism, per_class):
    tuned = tuning_object(parallelism=parallelism, nodeClasses={"nodesPerClass": per_class})
    cluster = Cluster(tuned, machines)
    for _ in range(60):
        for _ in range(data.draw(st.integers(1, 2))):
            cluster.reconcile()
        active = sorted(name for name, one in cluster.jobs.items() if one.state.is_active)
        if not active:
            break
        moved = data.draw(st.sampled_from(active))
        if cluster.jobs[moved].state is State.WAITING:
            cluster.jobs[moved] = replace(cluster.jobs[moved], state=State.RUNNING)
        else:
            cluster.jobs[moved] = replace(cluster.jobs[moved], **data.draw(ENDS))
        if data.draw(st.booleans()):
            ended = [name for name, one in cluster.jobs.items() if not one.state.is_active]
            seen = {node.name for one in cluster.known for node in one.nodes if node.state is not NodeState.RUNNING}
            for name in ended:
                if cluster.jobs[name].job.node in seen:
                    cluster.jobs.pop(name)  # its time to live is over
    assert cluster.is_at_rest
    assert cluster.reconcile().start == ()


@given(
    machines=MACHINES,
    parallelism=st.integers(1, 4),
    per_class=st.integers(1, 3),
    order=st.randoms(use_true_random=False),
)
def test_the_end_is_the_same_in_any_order(machines, parallelism, per_class, order):
    """What a node measures depends on the node; when its Job ends does not matter."""

    def ended(choose):
        tuned = tuning_object(parallelism=parallelism, nodeClasses={"nodesPerClass": per_class})
        cluster = Cluster(tuned, machines)
        for _ in itertools.count():
            cluster.reconcile()
            active = sorted(name for name, one in cluster.jobs.items() if one.state.is_active)
            if not active:
                decided = [one.decided_by.name if one.decided_by else None for one in cluster.known]
                return [(one.title, one.verdict, by) for one, by in zip(cluster.known, decided, strict=True)]
            name = choose(active)
            node = cluster.jobs[name].job.node
            end = {"state": State.FAILED, "message": "no model"}
            if node not in "ag":
                verdict = Verdict.NO_DIFFERENCE if node == "c" else Verdict.BETTER
                end = {"state": State.MEASURED, "outcome": outcome(verdict, -ord(node))}
            cluster.jobs[name] = replace(cluster.jobs[name], **end)
        return None

    assert ended(order.choice) == ended(lambda active: active[0])


@given(machines=MACHINES)
def test_deciding_again_changes_nothing(machines):
    tuned = tuning_object(parallelism=4)
    plan = decide(tuned, inputs(tuned, machines))
    assert decide(tuned, inputs(tuned, machines, known=plan.classes)) == plan

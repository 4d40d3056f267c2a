"""A tuning's result on a real API server: from a tuning's status to a bound pod's plan and the policy's condition."""

import pytest
from support import rights, tunings

import machines
from cluster import Cluster, namespaces
from cluster.local_raddle import NAMESPACE, LocalRaddle
from cluster.objects import container, plan_of, pod, policy, threads
from cluster.waiting import wait
from raddle.machine.sysfs import read_machine

pytestmark = pytest.mark.cluster

MACHINE = machines.path("2s16c32t")
SERVE = container(cpu="4", image=tunings.SERVED_IMAGE)


@pytest.fixture(scope="module")
def raddle():
    """Webhook and controller; the webhook reads tunings."""
    values = {"webhook": {"timeoutSeconds": {"pods": 30, "bindings": 30}}}
    options = ["--lookup-timeout", "20", "--tuning"]
    with Cluster(name="tuned") as cluster:
        rules = [rights.rule("raddle.dev", "inferencetunings", "get list watch")]
        rights.grant(cluster.client, "reads-tunings", rules, rights.account("raddle-webhook", NAMESPACE))
        with LocalRaddle(cluster, values=values, webhook_options=options) as running:
            running.register_machine("n1", MACHINE)
            yield running


@pytest.fixture(scope="module")
def space(raddle):
    """A namespace that is opted in."""
    made = namespaces.made(raddle, "models")
    made.wait_for_webhook()
    return made


def tuned(space):
    """The policy's condition."""
    conditions = space.policy_status().get("conditions", [])
    found = next((one for one in conditions if one["type"] == "Tuned"), {})
    return found.get("reason"), found.get("message")


def test_a_pod_follows_a_tuning_from_its_result_on_and_the_policy_counts_it(raddle, space):
    space.apply(policy(tuning="ranker"))
    space.create(pod(SERVE, name="before"))
    before = space.bound("before")
    assert threads(before) == 4
    assert plan_of(before).because["tuned"] == "there is no InferenceTuning ranker in namespace models"

    of_class = tunings.of_class(tunings.summary(read_machine(str(MACHINE))))
    found = tunings.with_status(of_class, namespace=space.name, **tunings.IMAGE)
    path = f"/apis/raddle.dev/v1alpha1/namespaces/{space.name}/inferencetunings"
    space.client.post(path, {key: value for key, value in found.items() if key != "status"})
    space.client.merge(f"{path}/ranker/status", {"status": found["status"]})
    known = wait(lambda: raddle.webhook.metric("raddle_webhook_cache_objects", kind="InferenceTuning"))
    assert known == 1

    def following():
        # The webhook's watch brings the result a moment after the API server has it.
        space.create(pod(SERVE, name="after"))
        after = space.bound("after")
        if threads(after) == 3:
            return after
        space.delete("after")
        return None

    after = wait(following)
    assert plan_of(after).because["tuned"].startswith("intraOp 3, slowest tenth -18.0 % [-23.0, -12.0] on ")
    assert plan_of(after).tuning.by == "ranker"
    _, message = wait(lambda: said if (said := tuned(space))[0] == "PartlyTuned" else None)
    assert message.startswith("1 of 2 pods follow InferenceTuning ranker; the others use the plan: there is no")

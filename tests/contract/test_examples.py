"""Every example applies to a real API server as it is, asks for something a planner can use, and is explained."""

import itertools
from pathlib import Path

import pytest
import yaml

import machines
from cluster.client import APPLY_PATCH
from raddle import env
from raddle.machine import sysfs
from raddle.planning import policy
from raddle_operator.cli import manifests, offline, workloads
from raddle_operator.injection.matching import Policies
from raddle_operator.objects.reasons import SkipReason

REPOSITORY = Path(__file__).parents[2]
EXAMPLES = sorted((REPOSITORY / "examples").glob("*.yaml"))
POLICY_KINDS = {"InferenceThreading", "ClusterInferenceThreading"}


def documents(path):
    return [document for document in yaml.safe_load_all(path.read_text()) if document]


def policies(path):
    return [document for document in documents(path) if document["kind"] in POLICY_KINDS]


@pytest.fixture(scope="module")
def cluster(api_server):
    yield api_server
    for one in itertools.chain.from_iterable(map(policies, EXAMPLES)):
        api_server.client.delete(api_server.client.path_of(one), missing_ok=True)


@pytest.fixture(scope="module")
def applied(cluster):
    """The cluster once kubectl has applied all examples."""
    cluster.kubectl("apply", "--server-side", "--validate=strict", "-f", str(REPOSITORY / "examples"))
    return cluster


@pytest.mark.cluster
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_the_api_server_takes_it_as_it_is(applied, path):
    # What kubectl has sent, again, since some examples have objects of the same name. A second time nothing changes:
    # no field is one that the API server drops or rewrites.
    query = {"fieldManager": "kubectl", "fieldValidation": "Strict"}
    for document in documents(path):
        where = applied.client.path_of(document)
        there, again = (
            applied.client.request("PATCH", where, document, query=query | dry, content_type=APPLY_PATCH)
            for dry in ({}, {"dryRun": "All"})
        )
        for one in (again, there):
            del one["metadata"]["managedFields"]
        assert again == there


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_it_holds_one_policy_that_the_planner_reads(path):
    (found,) = policies(path)
    policy.parse(found["spec"])


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_it_starts_with_a_short_comment(path):
    comment = path.read_text().split("apiVersion", 1)[0].splitlines()
    assert 1 <= len(comment) <= 4
    assert all(line.startswith("# ") and len(line) <= 120 for line in comment)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_its_workloads_are_opted_in_and_selected(path):
    """Otherwise somebody applies it and nothing happens."""
    found = documents(path)
    states = {
        document["metadata"]["name"]: document["metadata"]["labels"]["raddle.dev/inject"]
        for document in found
        if document["kind"] == "Namespace"
    }
    for document in found:
        if document["kind"] in {"Deployment", "Job"}:
            labels = document["spec"]["template"]["metadata"]["labels"]
            state = states[document["metadata"]["namespace"]]
            assert state == "enabled" or (state == "labelled" and labels["raddle.dev/inject"] == "enabled")
            (governing,) = policies(path)
            assert governing["metadata"]["namespace"] == document["metadata"]["namespace"]
            assert selects(governing["spec"]["podSelector"], labels)


def selects(selector, labels):
    """The two forms that the examples use."""
    exact = all(labels.get(key) == value for key, value in selector.get("matchLabels", {}).items())
    return exact and all(
        expression["operator"] == "In" and labels.get(expression["key"]) in expression["values"]
        for expression in selector.get("matchExpressions", [])
    )


def test_the_readme_lists_every_example():
    text = (REPOSITORY / "examples" / "README.md").read_text()
    assert [path.name for path in EXAMPLES if f"]({path.name})" not in text] == []
    assert text.count(".yaml](") == len(EXAMPLES)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_its_workloads_get_all_that_the_policy_asks_for(path):
    found = manifests.load([str(path)])
    machine = sysfs.read_machine(str(machines.path("2s16c32t")))
    known = Policies(list(workloads.read_policies(found)))
    for workload in workloads.read_workloads(found):
        planned = offline.decide(workload, known, {env.INJECT_LABEL: "enabled"}, "node", machine)
        skip = planned.decision.skip
        assert skip is None or skip.reason is SkipReason.OBSERVED
        withheld = [skip for outcome in planned.decision.containers for skip in outcome.withheld]
        # A checkout need not have been given a build of the native shim.
        assert [skip for skip in withheld if "this build has no native shim" not in skip.detail] == []

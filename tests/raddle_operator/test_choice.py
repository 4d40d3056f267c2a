"""Which pods a command line means."""

import pytest
from aiohttp import web
from support.api_server import answering

from raddle_operator.cli.choice import Choice, chosen, pods
from raddle_operator.kube import DAEMON_SETS, DEPLOYMENTS, JOBS, PODS, REPLICA_SETS, STATEFUL_SETS


@pytest.mark.parametrize(
    ("target", "kind", "name"),
    [
        ("x", PODS, "x"),
        ("pod/x", PODS, "x"),
        ("po/x", PODS, "x"),
        ("Deployment/x", DEPLOYMENTS, "x"),
        ("deploy/x", DEPLOYMENTS, "x"),
        ("sts/x", STATEFUL_SETS, "x"),
        ("daemonsets/x", DAEMON_SETS, "x"),
        ("rs/x", REPLICA_SETS, "x"),
        ("job/x", JOBS, "x"),
        (None, PODS, ""),
    ],
)
def test_what_people_write_is_a_kind_and_a_name(target, kind, name):
    found = chosen(target, "models", "", None, None, everywhere=False)
    assert found == Choice(kind=kind, name=name, namespace="models")
    assert found.is_one_pod == (kind is PODS and bool(name))


@pytest.mark.parametrize(
    ("choice", "words"),
    [
        (Choice(kind=JOBS, name="x", namespace="a"), "job/x in namespace a"),
        (Choice(namespace="a"), "namespace a"),
        (Choice(selector="app=x"), "the cluster with labels app=x"),
    ],
)
def test_a_choice_can_be_said(choice, words):
    assert choice.words == words


async def test_a_workload_stands_for_the_pods_that_it_selects_and_that_have_not_ended(tmp_path):
    async def handler(request):
        if request.path == "/apis/batch/v1/namespaces/a/jobs/x":
            return web.json_response({"spec": {"selector": {"matchLabels": {"controller-uid": "7"}}}})
        assert request.path == "/api/v1/namespaces/a/pods"
        assert request.query["labelSelector"] == "raddle.dev/injected=true,controller-uid=7"
        phases = ("Running", "Succeeded", "Failed", "Pending")
        return web.json_response({"items": [{"status": {"phase": phase}} for phase in phases]})

    async with answering(handler, tmp_path) as (kube, _):
        choice = Choice(kind=JOBS, name="x", namespace="a")
        found = [pod["status"]["phase"] async for pod in pods(kube, choice, "raddle.dev/injected=true")]
    assert found == ["Running", "Pending"]

"""Agents' reports as commands read them: all at once within a bound, and what is said of nodes that give none."""

import asyncio
from types import MappingProxyType

import pytest
from aiohttp import web
from support import nodereports
from support.api_server import answering

from raddle_operator.cli import reports
from raddle_operator.cli.reports import Reports
from raddle_operator.cli.top import rows
from raddle_operator.kube import Forbidden, NotFound, Unavailable
from raddle_operator.objects import nodereport

GOOD = nodereport.to_document(nodereports.report("n1", nodereports.sixteen()))


async def test_many_nodes_are_asked_at_once_but_not_all():
    now, most, told = 0, 0, []

    async def fetch(_):
        nonlocal now, most
        now += 1
        most = max(most, now)
        await asyncio.sleep(0)
        now -= 1
        return GOOD

    nodes = {f"n{number}": f"agent-{number}" for number in range(100)}
    found = await reports.read(nodes, fetch, lambda *counts: told.append(counts))
    assert (len(found.by_node), found.failed, most) == (100, {}, reports.AT_ONCE)
    assert told == [(number, 100) for number in range(1, 101)]


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (
            Forbidden(403, "Forbidden", "no"),
            ("you can't query its agent: that requires permission to get pods/proxy there"),
        ),
        (Unavailable(503, "ServiceUnavailable", "error trying to reach service: dial tcp: refused"), reports.SILENT),
        (Unavailable(503, "", "no window of two looks yet\n"), "its agent says: no window of two looks yet"),
        (NotFound(404, "NotFound", "gone"), reports.SILENT),
        ({**GOOD, "level": "Everything"}, "its agent's report can't be read: level: is 'Everything', must be one of"),
        ([], "its agent's report can't be read: report"),
        (ValueError("no\x1b JSON"), "its agent's report can't be read: no? JSON"),
    ],
)
async def test_a_node_that_gives_no_report_says_why_and_the_others_are_read(answer, said):
    async def fetch(pod):
        if pod == "bad" and isinstance(answer, Exception):
            raise answer
        return answer if pod == "bad" else GOOD

    found = await reports.read({"n1": "good", "n2": "bad"}, fetch)
    assert list(found.by_node) == ["n1"]
    assert found.failed["n2"].startswith(said)
    assert found.missing(["n1"]) == ""
    assert found.missing(["n1", "n2"]) == f"node n2: {found.failed['n2']}"


def test_what_is_missing_is_one_line_for_many_nodes():
    failed = {f"n{number}": "no answer within 10 s" for number in range(9)}
    found = reports.Reports(failed=MappingProxyType(failed))
    assert found.missing([*failed, "other"]) == (
        "nodes n0, n1, n2 and 6 more: no answer within 10 s; 1 more nodes for other reasons"
    )
    assert reports.Reports(problem="nobody").missing(["n1"]) == "nobody"


def agent(node, phase="Running"):
    return {"metadata": {"name": f"agent-{node}"}, "spec": {"nodeName": node}, "status": {"phase": phase}}


async def test_agents_are_asked_where_raddle_is_installed_and_only_those_of_the_nodes(tmp_path):
    asked = []

    async def handler(request):
        if request.path.endswith("mutatingwebhookconfigurations/raddle"):
            return web.json_response({"webhooks": [{"clientConfig": {"service": {"namespace": "elsewhere"}}}]})
        if request.path == "/api/v1/namespaces/elsewhere/pods":
            assert request.query["labelSelector"] == reports.AGENTS
            return web.json_response({"items": [agent("n1"), agent("n2"), agent("n3", "Pending")]})
        asked.append(request.path)
        return web.json_response(GOOD)

    async with answering(handler, tmp_path) as (kube, _):
        found = await reports.of_nodes(kube, {"n1", "n3"})
    assert asked == ["/api/v1/namespaces/elsewhere/pods/agent-n1:8082/proxy/v1/report"]
    assert found.by_node["n1"] == reports.summed(nodereports.report("n1", nodereports.sixteen()))
    assert found.missing(["n3"]) == "node n3: no agent observes containers there"


@pytest.mark.parametrize(
    ("status", "problem"),
    [
        (403, "you can't list the agents: that requires permission to list pods in raddle-system"),
        (200, "no agent runs in raddle-system"),
    ],
)
async def test_why_nobody_can_be_asked_is_said(tmp_path, status, problem):
    async def handler(request):
        if request.path.endswith("raddle"):
            return web.json_response({}, status=403)
        return web.json_response({"items": []}, status=status)

    async with answering(handler, tmp_path) as (kube, _):
        assert await reports.of_nodes(kube) == reports.Reports(problem=problem)


async def test_the_report_of_one_node_is_whole(tmp_path):
    async def handler(request):
        if request.path.endswith("/pods"):
            return web.json_response({"items": [agent("n1")]})
        return web.json_response(GOOD if request.path.endswith("report") else {})

    async with answering(handler, tmp_path) as (kube, _):
        found = await reports.of_nodes(kube, {"n1"})
    assert found.by_node["n1"] == nodereport.from_document(GOOD)


def test_a_table_loses_nothing_by_the_sum_of_a_containers_pools():
    two = nodereports.sixteen().processes + nodereports.sixteen().processes
    others = (nodereports.container("none", processes=()), nodereports.container("b"))
    whole = nodereports.report("n1", nodereports.sixteen(processes=two), *others)
    found = Reports(by_node={"n1": whole}), Reports(by_node={"n1": reports.summed(whole)})
    assert rows.pods(rows.seen(found[1]), "delay") == rows.pods(rows.seen(found[0]), "delay")
    assert rows.summed(found[1], {}) == rows.summed(found[0], {})
    assert sum(len(one.processes) for one in found[1].by_node["n1"].containers) == 1

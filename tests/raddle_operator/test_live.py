"""`raddle explain --live`: a command in a container by the API server's protocol, and what its answer comes to.

The real API server: integration/test_explain_live.py.
"""

import asyncio
import contextlib
import io
import json

import pytest
from aiohttp import web
from rich.console import Console
from support.api_server import answering

from raddle_operator import kube as k
from raddle_operator.cli import live
from raddle_operator.cli.choice import Choice

PID = {"pid": 7, "command": "python", "readable": True, "threads": 5, "door": True, "python": True, "counts": {}}
SERVES = {**PID, "runtimes": ["onnxruntime"], "reached": True, "why": "", "marks": ["onnxruntime 1.30.0: intra_op=2"]}
LEFT = {
    **PID,
    "pid": 8,
    "runtimes": ["openblas"],
    "reached": False,
    "why": "it says so",
    "counts": {"OMP_NUM_THREADS": "2"},
}
PLAIN = {**PID, "pid": 1, "command": "sh", "runtimes": []}


def said(*processes, **more):
    return json.dumps({"v": 1, "processes": processes, **more}).encode()


def ended(status):
    causes = [{"reason": "ExitCode", "message": str(status)}]
    failure = {"status": "Failure", "reason": "NonZeroExitCode", "details": {"causes": causes}}
    return json.dumps(failure if status else {"status": "Success"}).encode()


def speaking(*messages, wait_s=0.0, seen=None):
    """A handler that sends these (channel, content) messages and closes."""

    async def handler(request):
        if seen is not None:
            seen.append((request.path, request.query, request.headers))
        connection = web.WebSocketResponse(protocols=("v4.channel.k8s.io",))
        await connection.prepare(request)
        for channel, content in messages:
            await connection.send_bytes(bytes([channel]) + content)
        await asyncio.sleep(wait_s)
        await connection.close()
        return connection

    return handler


@pytest.mark.parametrize(
    ("process", "runtimes"),
    [
        (SERVES, {"serve": ("onnxruntime", "1.30.0")}),
        ({**SERVES, "marks": ["facts: none", "torch 2.1+cpu: intra_op=1"]}, {"serve": ("torch", "2.1+cpu")}),
        ({**SERVES, "marks": []}, {}),
        (LEFT, {}),
        (PLAIN, {}),
    ],
)
def test_the_runtime_is_the_one_that_a_process_says_it_has(process, runtimes):
    assert live.runtimes([live.Answer(namespace="ns", pod="p", container="serve", processes=(process,))]) == runtimes


async def test_a_command_s_output_and_status_come_back_whole(tmp_path):
    seen = []
    handler = speaking((1, b""), (1, b"one "), (2, b"oh"), (1, b"two"), (3, ended(3)), seen=seen)
    async with answering(handler, tmp_path) as (client, _):
        assert await client.execute("app", "shop", "serve", ("a", "-b c")) == k.Executed(3, b"one two", b"oh")
    ((path, query, headers),) = seen
    assert path == "/api/v1/namespaces/shop/pods/app/exec"
    assert query.getall("command") == ["a", "-b c"]
    assert (query["container"], query["stdout"], query["stderr"]) == ("serve", "true", "true")
    assert headers["Authorization"] == "Bearer first"


@pytest.mark.parametrize(
    ("messages", "words"),
    [
        ([(1, b"half")], "did not finish"),
        ([(3, b"no json")], "did not finish"),
        ([(3, b'{"status":"Failure","message":"exec failed","code":500}')], "exec failed"),
    ],
)
async def test_a_command_that_does_not_end_is_no_answer(tmp_path, messages, words):
    async with answering(speaking(*messages), tmp_path) as (client, _):
        with pytest.raises(k.Unavailable, match=words):
            await client.execute("app", "shop", "serve", ("a",))


async def test_what_says_more_than_anybody_asked_for_is_cut_off(tmp_path, monkeypatch):
    monkeypatch.setattr("raddle_operator.kube.client.MAX_SAID_BYTES", 1000)
    async with answering(speaking(*[(1, b"x" * 600)] * 2, (3, ended(0))), tmp_path) as (client, _):
        with pytest.raises(k.Unavailable, match="more than 1000 bytes"):
            await client.execute("app", "shop", "serve", ("a",))


def pod(**status):
    mounts = [{"name": "raddle-shim", "mountPath": "/etc/ld.so.preload"}]
    annotations = {"plan.raddle.dev/serve": "x", "other/serve": ""}
    return {
        "metadata": {"name": "app", "namespace": "shop", "annotations": annotations},
        "spec": {"containers": [{"name": "serve", "volumeMounts": mounts}]},
        "status": {"containerStatuses": [{"name": "serve", "state": {"running": {}}}], **status},
    }


@pytest.mark.parametrize(
    ("messages", "problem"),
    [
        ([(1, said(SERVES)), (3, ended(0))], ""),
        ([(1, said(SERVES, LEFT)), (3, ended(1))], ""),
        ([(2, b"raddle: /proc shows no other process\n"), (3, ended(2))], "raddle: /proc shows no other process"),
        ([(2, b"\x1b[2J"), (3, ended(2))], "?[2J"),
        ([(3, ended(0))], "its answer can't be read"),
        ([(1, b"[" * 100_000), (3, ended(0))], "its answer can't be read"),
        ([(1, b'{"v":2}'), (3, ended(0))], "it answered in version 2, but this raddle reads version 1"),
        ([(3, ended(127))], live._MISSING),
        ([(3, b'{"status":"Failure","message":"stat x: no such file or directory"}')], live._MISSING),
        ([(3, b'{"status":"Failure","message":"failed to exec in container"}')], "failed to exec in container"),
    ],
)
async def test_a_container_that_says_nothing_says_why(tmp_path, messages, problem):
    async with answering(speaking(*messages), tmp_path) as (client, _):
        answer = await live.ask(client, pod(), "serve")
    assert answer.problem == problem
    assert bool(answer.processes) == (not problem)


@pytest.mark.parametrize(
    ("status", "words"), [(403, "permission to get and create pods/exec"), (404, "the pod is gone"), (500, "exec")]
)
async def test_a_refusal_is_said_in_words(tmp_path, status, words):
    async def handler(_):
        return web.json_response({"message": "no"}, status=status)

    async with answering(handler, tmp_path) as (client, _):
        assert words in (await live.ask(client, pod(), "serve")).problem


async def test_a_container_that_hangs_is_waited_for_only_so_long(tmp_path, monkeypatch):
    monkeypatch.setattr(live, "TIMEOUT_S", 0.2)
    async with answering(speaking(wait_s=2), tmp_path) as (client, _):
        assert (await live.ask(client, pod(), "serve")).problem == "no answer within 0.2 s"


@pytest.mark.parametrize(
    ("status", "problem"),
    [
        ({"phase": "Pending", "containerStatuses": []}, "it does not run: the pod is Pending"),
        ({"containerStatuses": None}, "it does not run: the pod is new"),
        ({"containerStatuses": [{"name": "serve", "state": {"terminated": {"reason": "OOMKilled"}}}]}, "OOMKilled"),
        ({"containerStatuses": [{"name": "serve", "state": {"waiting": None}}]}, "it does not run: waiting"),
    ],
)
async def test_a_container_that_does_not_run_is_not_asked(status, problem):
    assert (await live.ask(None, pod(**status), "serve")).problem.endswith(problem)


async def test_pods_that_have_come_to_their_end_are_not_counted(tmp_path, monkeypatch):
    async def handler(request):
        assert request.query["labelSelector"] == "raddle.dev/injected=true,app=x"
        phases = ("Succeeded", "Failed", "Pending", "Unknown")
        return web.json_response({"items": [pod(phase=phase, containerStatuses=[]) for phase in phases]})

    async with answering(handler, tmp_path) as (client, _):

        @contextlib.asynccontextmanager
        async def connected(*_):
            yield client

        monkeypatch.setattr(live.cluster, "connected", connected)
        answers = await live.of_choice(Choice(namespace="shop", selector="app=x"), None, None)
    assert [one.problem for one in answers] == [
        f"it does not run: the pod is {phase}" for phase in ("Pending", "Unknown")
    ]


def test_only_containers_with_a_plan_are_asked():
    assert live.injected(pod()) == ["serve"]
    assert live.injected({"metadata": {"annotations": None}}) == []


@pytest.mark.parametrize(
    ("process", "words"),
    [
        (SERVES, "onnxruntime 1.30.0: intra_op=2"),
        (LEFT, "not reached: it says so; OMP_NUM_THREADS=2"),
        (PLAIN, "-"),
        ({"pid": 1, "readable": False}, "may not be read"),
        ({**SERVES, "marks": []}, "-"),
        ({**SERVES, "marks": ["a 1: x", "b 2: y"], "counts": {"C": "3"}}, "a 1: x; b 2: y; C=3"),
        ({**SERVES, "marks": [{}, "a 1: x"]}, "a 1: x"),
    ],
)
def test_what_a_process_got_is_one_line(process, words):
    assert live.got(process) == words


def answer(*processes, problem="", pod_name="app"):
    return live.Answer(namespace="shop", pod=pod_name, container="serve", problem=problem, processes=processes)


def test_the_total_counts_containers_of_which_every_process_is_reached():
    answers = [answer(SERVES, PLAIN), answer(SERVES, LEFT), answer(PLAIN), answer(problem="gone")]
    assert live.total(answers) == "reached in 1 of 4 injected containers, 1 gave no answer, 1 without a runtime"
    assert [one.fails for one in answers] == [False, True, False, True]
    document = live.document(answers)
    assert (document["injected"], document["reached"], document["unanswered"]) == (4, 1, 1)
    assert [one["reached"] for one in document["containers"]] == [1, 1, 0, 0]
    assert live.total([]) == "reached in 0 of 0 injected containers"


def test_what_a_container_says_can_steer_no_terminal():
    evil = {**LEFT, "command": "\x1b[31mx", "why": "[red]\n\x07", "runtimes": ["[bold]"], "counts": {"\x1b": "\r"}}
    processes, problem = live.read(said(evil, "no process", {"pid": "none"}))
    assert (len(processes), problem) == (1, "")
    for print_it in (live.show, live.show_many):
        text = io.StringIO()
        print_it(Console(file=text, width=200, force_terminal=False), [answer(*processes)])
        assert "\x1b" not in text.getvalue()
        assert "[red]" in text.getvalue()


@pytest.mark.parametrize(
    "evil", [{"runtimes": 5}, {"marks": {"a": 1}}, {"door": []}, {"counts": 5}, {"marks": [["a"], None, 5]}]
)
def test_an_answer_of_any_kind_is_shown_or_left_out(evil):
    processes, problem = live.read(said({**SERVES, **evil}, SERVES))
    assert problem == ""
    for print_it in (live.show, live.show_many):
        print_it(Console(file=io.StringIO()), [answer(*processes)])


@pytest.mark.parametrize("depth", [100, 500, 1000, 5000, 100_000])
def test_an_answer_as_deep_as_anybody_likes_is_read_or_refused(depth):
    nested = b"[" * depth + b"]" * depth
    processes, problem = live.read(b'{"v":1,"processes":[{"pid":1,"x":' + nested + b"}]}")
    assert processes or problem == "its answer can't be read"

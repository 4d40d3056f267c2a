"""Blocks of real runners and real servers, started as containers: what they show, what fails, and that nothing is left.

No timing is asserted.
"""

import contextlib
import os
import signal
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import psutil
import pytest
from support import tiny_models
from support.machines import of_size

from cluster import waiting
from raddle_operator.local import quota
from raddle_operator.local.container import Container, StartedContainer
from raddle_operator.results.candidate import Candidate
from raddle_operator.results.objective import Kind, Objective
from raddle_tuner.search.blocks import Block, Failure, MeasurementRequest
from raddle_tuner.trials import inputs, models, programs
from raddle_tuner.trials.base import Base
from raddle_tuner.trials.http_load import Request
from raddle_tuner.trials.measuring import Measuring
from raddle_tuner.trials.processes import LocalProcesses

pytestmark = pytest.mark.slow

NOTHING = Candidate()
ONE = Candidate.of({"threads.intraOp": 1})
needs_quota = pytest.mark.skipif(quota.available() is not None, reason=str(quota.available()))


def answered(measured):
    """The block that was measured, which is no failure."""
    assert isinstance(measured, Block), measured
    return measured


def reason(measured):
    """Why it failed."""
    assert isinstance(measured, Failure)
    return measured.reason


def ask(candidate=NOTHING, rate=50.0, seconds=0.2, seed=1):
    return MeasurementRequest(candidate=candidate, rate=rate, seconds=seconds, seed=seed, phase="test")


def given(cpus=None, **variables):
    return Container(cpus=cpus, variables=variables, mounts=(), notes=())


def written(folder, arrays):
    path = folder / "inputs"
    path.mkdir()
    models.write_inputs(path, arrays)
    return path


@pytest.fixture
def said():
    return []


@pytest.fixture
def measuring(said, monkeypatch, tmp_path):
    """measuring(start): measures what `start(candidate)` starts; at the end no process and no folder is left."""
    made, folder, before = [], tmp_path / "temporary", set(psutil.Process().children(recursive=True))
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr("tempfile.tempdir", None)

    def make(start, **more):
        made.append(Measuring(start=start, say=said.append, warm_up_s=0.02, **more))
        return made[-1]

    yield make
    for one in made:
        one.__exit__()
    assert not list(folder.glob("raddle-*"))
    assert set(psutil.Process().children(recursive=True)) <= before
    assert not list(Path("/sys/fs/cgroup").glob(f"**/raddle-cpu-{os.getpid()}-*"))


@pytest.fixture
def model(tmp_path):
    return tiny_models.write(tmp_path)


def python(model, tmp_path, said, cpus=None, instances=1, arrays=None, io_binding=False):
    folder = tmp_path / "inputs"
    if not folder.exists():
        made = inputs.made(inputs.read(model)) if arrays is None else arrays
        written(tmp_path, made)
    command = models.Runner().command(model, folder, io_binding=io_binding)
    return lambda candidate: programs.runners(given(cpus), command, instances, said.append)


def test_a_block_of_a_runner_has_a_latency_for_each_request(measuring, model, tmp_path, said):
    block = answered(measuring(python(model, tmp_path, said)).measure(ask()))
    assert (len(block.latencies_ms), block.missed, said) == (10, 0, [])
    assert block.cpu_s is not None
    assert {"steal_percent", "others_percent"} <= dict(block.conditions).keys()


@needs_quota
def test_a_block_under_a_quota_counts_its_periods(measuring, model, tmp_path, said):
    block = answered(measuring(python(model, tmp_path, said, cpus=0.5, instances=2)).measure(ask(rate=None)))
    assert block.periods
    assert block.throttled_periods is not None


def test_a_model_that_does_not_load_says_why(measuring, tmp_path, said):
    broken = tmp_path / "broken.onnx"
    broken.write_bytes(b"no model")
    assert "broken.onnx" in reason(measuring(python(broken, tmp_path, said, arrays={})).measure(ask()))


def test_inputs_that_do_not_fit_are_said(measuring, model, tmp_path, said):
    arrays = {"x": np.ones((1, 2, 3), np.float32)}
    assert "invalid dimensions" in reason(measuring(python(model, tmp_path, said, arrays=arrays)).measure(ask()))


def test_a_runner_is_asked_with_io_binding(measuring, model, tmp_path, said):
    answered(measuring(python(model, tmp_path, said, io_binding=True)).measure(ask()))


# A server of aiohttp: it answers /ask as `how` says; sometimes: one of any 60 in a row fails.
SERVER = """
import asyncio, os, sys
from aiohttp import web
how, port = sys.argv[1:3]
asked = 0
async def ask(request):
    global asked
    asked += 1
    body = await request.read()
    if how == "by ONNX Runtime" and asked == 1:
        print("raddle: onnxruntime 1.23.2: intra_op=4, spinning off", file=sys.stderr, flush=True)
    if how == "never":
        await asyncio.sleep(3600)
    if how == "500" or (how == "sometimes" and asked % 60 == 0):
        return web.Response(status=500, text="no model here")
    if how == "dies" and asked > 3:
        os._exit(7)
    if body != b"\\x00question":
        return web.Response(status=400, text="not the question")
    return web.Response(text="answer")
app = web.Application()
app.router.add_post("/ask", ask)
if how == "not at all":
    sys.exit("no such model")
if how == "forks" and os.fork():
    os.wait()
web.run_app(app, host="127.0.0.1", port=int(port), print=None)
"""


@pytest.fixture
def server(tmp_path, said):
    """server(how, ...): starts one for each candidate."""
    (tmp_path / "server.py").write_text(SERVER)
    (tmp_path / "question").write_bytes(b"\x00question")

    def make(how, path="ask", body="question", start_s=60.0, port="{port}"):
        url = f"http://127.0.0.1:{port}/{path}"
        command = (sys.executable, str(tmp_path / "server.py"), how, port)
        found = programs.Server(command=command, request=Request(url=url, file=str(tmp_path / body)), start_s=start_s)
        return lambda candidate: programs.server(given(0.9 if not quota.available() else None), found, 2, said.append)

    return make


def test_a_server_is_asked_over_http(measuring, server, said):
    one = measuring(server("well"))
    block = answered(one.measure(ask()))
    assert (len(block.latencies_ms), block.missed, said) == (10, 0, [])
    closed = answered(one.measure(ask(rate=None)))
    assert len(closed.latencies_ms) > 2


def test_a_result_of_a_server_is_for_the_onnxruntime_that_its_shim_tells_of(measuring, server):
    base = Base(spec={}, cpus=None, machine=of_size(16), applied=lambda spec: given())
    keys, versions = {}, {}
    for how in ("by ONNX Runtime", "well"):
        one = measuring(server(how))
        first = one.program(NOTHING)
        versions[how] = base.case(first, ()).onnxruntime
        one.close()
        # It is asked when all programs have ended.
        keys[how] = base.key("", Objective(kind=Kind.THROUGHPUT), first)
    assert versions == {"by ONNX Runtime": (1, 23, 2), "well": None}
    assert {how: (key.runtime, key.runtime_version) for how, key in keys.items()} == {
        "by ONNX Runtime": ("onnxruntime", "1.23.2"),
        "well": ("", ""),
    }


@pytest.mark.parametrize(
    ("how", "path", "why"),
    [
        ("500", "ask", "it answers 500 Internal Server Error: no model here"),
        ("never", "ask", "it accepts connections but does not answer"),
        ("not at all", "ask", "ended with status 1: no such model"),
        ("well", "elsewhere", "it answers 404 Not Found"),
    ],
)
def test_a_server_that_gives_no_good_answer_is_said(how, path, why, measuring, server):
    assert why in reason(measuring(server(how, path=path, start_s=60.0 if how == "not at all" else 3.0)).measure(ask()))


def test_a_request_that_the_server_refuses_is_not_tried_for_long(measuring, server, tmp_path):
    (tmp_path / "other").write_bytes(b"what?")
    assert "it answers 400 Bad Request: not the question" in reason(
        measuring(server("well", body="other")).measure(ask())
    )


def test_a_server_that_dies_under_load_is_said(measuring, server):
    assert "the program ended with status 7" in reason(measuring(server("dies")).measure(ask()))


def test_single_failed_answers_are_missed_and_said(measuring, server, said):
    block = answered(measuring(server("sometimes")).measure(ask(rate=200, seconds=0.3)))
    assert block.missed == 1
    assert said == ["1 of 60 requests failed: 500 Internal Server Error: no model here"]


def test_processes_that_a_server_starts_end_with_it(measuring, server):
    answered(measuring(server("forks")).measure(ask()))


# It works for a while, and so does a child in a session of its own; then the child says so.
WORKS = """
import os, signal, time
def work():
    while time.process_time() < 0.2:
        pass
pid = os.fork()
if pid:
    work()
    os.wait()
os.setsid()
work()
print("worked", flush=True)
signal.pause()
"""


@pytest.fixture
def working():
    """working(prefix): its processes, behind this command, without a cgroup that they know of; both have worked."""
    with contextlib.ExitStack() as stack:

        def start(prefix=()):
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            entered = StartedContainer(argv=[*prefix, sys.executable, "-c", WORKS], environment=os.environ, group=None)
            here = LocalProcesses(entered, folder)
            stack.callback(here.end)
            here.start()
            waiting.wait(lambda: here.check() or "worked" in here.output(), "both have worked")
            return here

        yield start


@pytest.mark.timeout(30)
def test_without_a_cgroup_all_that_a_program_started_is_counted_and_ended(working):
    here = working()
    assert here.usage().cpu_s >= 0.3
    pids = here.pids()
    assert len(pids) == 2
    here.end()
    # Who is killed may need a moment.
    while {one.pid for one in psutil.process_iter(["status"]) if one.info["status"] != psutil.STATUS_ZOMBIE} & pids:
        pass


@needs_quota
def test_in_a_cgroup_that_another_made_its_periods_are_counted(working):
    with quota.limited(0.5) as group:
        here = working(group.command([]))
        assert here.usage().periods
        assert here.pids() == set(group.pids())


def counting(start):
    """A start that notes each candidate that it starts, and the list of them."""
    started = []

    def counted(candidate):
        started.append(candidate)
        return start(candidate)

    return counted, started


def test_all_are_stopped_that_are_not_measured(measuring, model, tmp_path, said):
    one = measuring(python(model, tmp_path, said))
    for candidate in (NOTHING, ONE, NOTHING):
        answered(one.measure(ask(candidate)))
    for candidate in (NOTHING, ONE):
        for pid in one.program(candidate).processes.pids():
            assert os.waitid(os.P_PID, pid, os.WSTOPPED | os.WNOWAIT).si_status == signal.SIGSTOP


def test_no_more_are_kept_than_asked_for_the_one_longest_unused_ends_first(measuring, model, tmp_path, said):
    counted, started = counting(python(model, tmp_path, said))
    one = measuring(counted, kept=1)
    for candidate in (NOTHING, NOTHING, ONE, NOTHING):
        answered(one.measure(ask(candidate, seconds=0.1)))
    assert started == [NOTHING, ONE, NOTHING]


def test_a_block_that_shall_be_fresh_is_of_a_program_that_has_not_worked(measuring, model, tmp_path, said):
    counted, started = counting(python(model, tmp_path, said))
    one = measuring(counted)
    one.program(NOTHING)
    for fresh in (True, False, True):
        answered(one.measure(replace(ask(seconds=0.1), fresh=fresh)))
    assert len(started) == 2


def test_one_that_has_ended_meanwhile_fails_and_is_started_again(measuring, model, tmp_path, said):
    one = measuring(python(model, tmp_path, said))
    answered(one.measure(ask()))
    for pid in one.program(NOTHING).processes.pids():
        os.kill(pid, signal.SIGKILL)
    assert "the program ended by SIGKILL" in reason(one.measure(ask()))
    answered(one.measure(ask()))

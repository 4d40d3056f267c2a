"""What real ONNX Runtime processes tell the node's agent, and show on their own /metrics."""

import json
import socket

import pytest
from support.runtimes import shim_lab

from raddle import env
from raddle_operator.agent import datagrams
from runtimes import pythons

pytestmark = pytest.mark.runtime

RELEASE = "onnxruntime==1.31.1"
PLAN = "v=1;intra_op=2;inter_op=1;spinning=never;execution_mode=sequential;affinity=none;observe={}"
SESSIONS = """
import sys
import numpy as np, onnxruntime as ort
model, count = sys.argv[1], int(sys.argv[2])
planned = ort.InferenceSession(model, providers=["CPUExecutionProvider"])
options = ort.SessionOptions()
options.intra_op_num_threads = 3
coded = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
given = planned.get_inputs()[0]
[planned.run(None, {given.name: np.zeros(given.shape, np.float32)}) for _ in range(count)]
"""
SHOW = """
import json, urllib.request
import prometheus_client
from raddle.report import observe
server, thread = prometheus_client.start_http_server(0, addr="127.0.0.1")
observe._offer()
text = urllib.request.urlopen(f"http://127.0.0.1:{server.server_port}/metrics").read().decode()
print(json.dumps([line for line in text.splitlines() if line.startswith("raddle_")]))
server.shutdown()
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """(a mount, a model)."""
    folder = tmp_path_factory.mktemp("telling")
    return shim_lab.mount(folder / "raddle"), shim_lab.write_model(folder / "model.onnx")


@pytest.fixture
def tell(place):
    """tell(code, executable, level): the output of a process with the shim, and its datagrams as the agent reads them."""
    mounted, model = place
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as agent:
        agent.bind(("127.0.0.1", 0))
        agent.setblocking(False)

        def call(code, executable, level="sessions"):
            where = f"127.0.0.1:{agent.getsockname()[1]}/serve"
            variables = {**shim_lab.python_path(mounted), env.PLAN: PLAN.format(level), env.AGENT: where}
            done = shim_lab.python(executable, "-c", code, str(model), "5", env=variables)
            found = []
            while True:
                try:
                    found.append(datagrams.parse(agent.recv(65536)))
                except BlockingIOError:
                    return done.stdout, found

        yield call


def test_the_agent_learns_each_sessions_threads_and_who_has_set_them(tell):
    _, told = tell(SESSIONS, pythons.venv("ort-1.31.1", "3.11", [RELEASE]))
    assert [[(one.runtime, one.threads, one.source) for one in each.sessions] for each in told] == [
        [("onnxruntime", 2, "plan")],
        [("onnxruntime", 3, "code"), ("onnxruntime", 2, "plan")],
        [],
    ]
    assert told[-1].ended


@pytest.mark.parametrize(
    ("package", "patch"),
    [
        ("gevent==26.9.0", "from gevent import monkey\nmonkey.patch_all()\n"),
        ("eventlet==0.41.3", "import eventlet\neventlet.monkey_patch()\n"),
    ],
    ids=["gevent", "eventlet"],
)
def test_beside_greenlets_it_is_told_the_same(tell, package, patch):
    executable = pythons.venv("telling-" + package.partition("=")[0], "3.11", [RELEASE, package])
    _, told = tell(patch + SESSIONS, executable, "runs")
    assert [len(each.sessions) for each in told] == [1, 2, 0]


def test_a_programs_own_metrics_page_has_its_sessions_and_their_runs(tell):
    executable = pythons.venv("telling-prometheus", "3.11", [RELEASE, "prometheus_client==0.26.0"])
    lines = json.loads(tell(SESSIONS + SHOW, executable, "runs")[0].splitlines()[-1])
    assert lines[:3] == [
        'raddle_sessions{runtime="onnxruntime"} 2.0',
        'raddle_session_threads{runtime="onnxruntime",source="code"} 3.0',
        'raddle_session_threads{runtime="onnxruntime",source="plan"} 2.0',
    ]
    assert 'raddle_session_run_seconds_count{runtime="onnxruntime"} 5.0' in lines

"""`raddle tuner`: a real one beside a workload's container, each a user of its own, and what it leaves behind.

No timing is asserted.
"""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import onnx
import pytest
from click.testing import CliRunner
from onnx import TensorProto, helper
from support import tiny_models, tuning_pods, tunings

from cluster import local_container, objects
from raddle.planning.capacity import is_exclusive
from raddle_operator.cli import main
from raddle_operator.jobs.manifest import LIMITS
from raddle_operator.local import quota
from raddle_operator.objects.quantities import parse
from raddle_operator.objects.reading import SpecError
from raddle_operator.results import summary
from raddle_operator.results.verdict import Verdict
from raddle_tuner.commands.tuner import Order, _base, too_large
from raddle_tuner.search import document
from raddle_tuner.trials import driving
from raddle_tuner.trials.pod import Pod

RADDLE = str(Path(sys.executable).with_name("raddle"))
TUNERS_UID = 10456
LIMIT = {"resources": {"limits": {"cpu": "2"}}}
LEFT = {"inputs", "run_model.py", "request"}
CONTAINER = {"name": "serve", "image": "registry.example/serve:1", "command": [sys.executable, "serve.py"], **LIMIT}
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(quota.available() is not None, reason=str(quota.available())),
]


def order(container=CONTAINER, policy=None, confirm=None, **spec):
    made = tunings.tuning(**{"budget": {"minutes": 1, "trials": 2}, **spec})
    made["metadata"].update(namespace="models", uid="1")
    return {"tuning": made, "container": container, "policy": policy, "confirm": confirm, "image": "sha256:1a2b"}


def of_model(path, **more):
    return order(**{"server": None, "model": str(path), **more})


@pytest.fixture
def theirs():
    """A folder of the workload's."""
    with tuning_pods.folder() as made:
        yield made


@contextlib.contextmanager
def tuner(given, theirs, **variables):
    """The tuner while it runs, and where its termination message will be; the container has the variables."""
    with tuning_pods.folder() as shared, tuning_pods.container(shared, variables=variables):
        message = theirs / "termination-log"
        message.touch()
        message.chmod(0o666)
        command = [RADDLE, "tuner", f"--folder={shared}", f"--message={message}", f"--request={theirs / 'request'}"]
        command = [*local_container.as_user(TUNERS_UID), *command]
        env = {**os.environ, "RADDLE_TUNING": json.dumps(given), "TMPDIR": str(theirs)}
        started = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        try:
            yield started, message
        finally:
            started.terminate()
            started.communicate()
        assert {path.name for path in shared.iterdir()} <= LEFT


def ended(given, theirs, **variables):
    """The summary and the document, "" for none, of a tuner that ends by itself; it is this process."""
    message = theirs / "termination-log"
    with tuning_pods.folder() as shared, tuning_pods.container(shared, variables=variables):
        options = [f"--folder={shared}", f"--message={message}", f"--request={theirs / 'request'}"]
        done = CliRunner().invoke(main, ["tuner", *options], env={"RADDLE_TUNING": json.dumps(given)})
        found = summary.from_text(message.read_text())
        assert done.exit_code == isinstance(found, summary.Failed), done.output
        assert {path.name for path in shared.iterdir()} <= LEFT
    return found, done.stdout


def test_sigterm_ends_it_in_order_with_what_is_known_in_the_log_and_no_verdict(theirs):
    model = tiny_models.write(theirs)
    with tuner(of_model(model), theirs) as (started, message):
        while "A/A: the plan" not in started.stderr.readline():
            assert started.poll() is None
        started.send_signal(signal.SIGTERM)
        out, said = started.communicate(timeout=60)
        assert started.returncode == 1, said
        left = summary.from_text(message.read_text())
    assert left == summary.Failed("ended before anything was certain: its pod was stopped")
    [line] = out.splitlines()
    found = document.summary_of(document.from_document(json.loads(line)))
    assert found.verdict is Verdict.INCONCLUSIVE
    assert found.key.image == "sha256:1a2b"
    assert found.key.limit_cpus == 2.0
    assert found.key.runtime == "onnxruntime"
    assert found.key.model.startswith("sha256:")
    assert found.capacity > 0


def test_a_candidate_to_be_confirmed_is_not_searched_for(theirs):
    model = tiny_models.write(theirs)
    with tuner(of_model(model, confirm={"threads.intraOp": 1}), theirs) as (started, message):
        assert started.stderr.readline().startswith("raddle tuner: A/A: the plan, ")
        started.terminate()
        out, _ = started.communicate(timeout=60)
        assert isinstance(summary.from_text(message.read_text()), summary.Failed)
        assert document.from_document(json.loads(out)).result.verdict is Verdict.INCONCLUSIVE


def test_a_rate_above_the_capacity_is_said(theirs):
    model = tiny_models.write(theirs)
    objective = {"type": "Latency", "requestsPerSecond": 900000}
    # No other threads or instances to try.
    found, out = ended(of_model(model, objective=objective, space=["threads.spinning"]), theirs)
    assert found.error.startswith("900000 requests a second are above the capacity: ")
    assert document.from_document(json.loads(out)).result.verdict is Verdict.BOUND_NOT_MET


def serve(theirs, text, **server):
    (theirs / "serve.py").write_text(text)
    container = {**CONTAINER, "command": [sys.executable], "args": [str(theirs / "serve.py"), "$(PORT)"]}
    return order(container=container, server={**tunings.SERVER, **server})


SERVER = """
import http.server, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        asked = self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200 if asked == b"the question" else 422)
        self.end_headers()
        self.wfile.write(b"not the question")
    def log_message(self, *_):
        pass
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""


@pytest.fixture
def asked(theirs):
    """asked(key): an order for a server that answers what is under one key of a ConfigMap, and its own variables."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    (theirs / "request").mkdir()
    (theirs / "request" / "one").write_text("the question")
    (theirs / "request" / "other").write_text("another")

    def make(key):
        request = {"configMap": {"name": "requests", "key": key}}
        return serve(theirs, SERVER, url=f"http://localhost:{port}/", request=request), {"PORT": str(port)}

    return make


def test_the_containers_own_command_is_asked_with_what_the_config_map_has(asked, theirs):
    given, variables = asked("one")
    with tuner(given, theirs, **variables) as (started, _):
        while not (line := started.stderr.readline()).startswith("raddle tuner: capacity: the plan"):
            assert line, "it ended before"


@pytest.mark.parametrize(
    ("key", "said"),
    [
        ("other", "it answers 422 Unprocessable"),
        ("typo", "spec.server.request.configMap: ConfigMap requests does not exist or has no key typo"),
    ],
)
def test_a_request_that_the_server_refuses_or_that_is_not_there_is_said(asked, theirs, key, said):
    given, variables = asked(key)
    assert said in ended(given, theirs, **variables)[0].error


def test_a_model_that_does_not_load_is_said(theirs):
    node = helper.make_node("NoSuchOperator", ["x"], ["y"])
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]) for name in "xy")
    graph = helper.make_graph([node], "odd", [x], [y])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)
    onnx.save(model, theirs / "odd.onnx")
    found, out = ended(of_model(theirs / "odd.onnx"), theirs)
    assert "NoSuchOperator" in found.error
    assert out == ""


def test_a_model_that_the_tuners_memory_can_not_hold_is_refused_before_it_is_read():
    tuners_bytes = int(parse(LIMITS["memory"]))
    assert too_large(384 << 20, tuners_bytes) == too_large(2 << 30, None) == ""
    said = too_large(800 << 20, tuners_bytes)
    assert said.startswith("has 800 MiB, and the tuner reads at most 384: keep its weights in an external file")


def test_a_script_of_torch_is_refused(theirs):
    found, _ = ended(of_model("/models/net.pt"), theirs)
    assert found.error == (
        "spec.model: /models/net.pt is TorchScript, which does not describe its inputs: tune its server"
    )


def test_inputs_that_can_not_be_made_are_named_with_the_field_that_helps(theirs):
    node = helper.make_node("Identity", ["x"], ["y"])
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in "xy")
    onnx.save(helper.make_model(helper.make_graph([node], "any", [x], [y])), theirs / "any.onnx")
    found, _ = ended(of_model(theirs / "any.onnx"), theirs)
    assert found.error == (
        "spec.model: input x is float of any shape, which can't be generated: tune its server with spec.server"
    )


def test_what_is_no_model_is_said_by_its_path_in_the_container(theirs):
    (theirs / "notes.txt").write_text("no model")
    found, _ = ended(of_model(theirs / "notes.txt"), theirs)
    assert found.error.startswith(f"{theirs}/notes.txt: is not an ONNX model")


def test_a_server_that_ends_is_said_with_its_last_words(theirs):
    found, _ = ended(serve(theirs, "raise SystemExit('no weights')"), theirs)
    assert "the program ended with status 1: no weights" in found.error


def test_an_image_without_a_command_of_its_own_is_said(theirs):
    found, _ = ended(order(container={"name": "serve", "image": "serve", **LIMIT}), theirs)
    assert found.error.startswith(
        "spec.server.command: must be set: the container has no command, and the image's is not known"
    )


BROKEN = {
    "no JSON": ("{", "order", "must be JSON"),
    "no tuning": ({**order(), "tuning": None}, "tuning", "object"),
    "no container": ({**order(), "container": []}, "container", "object"),
    "a list": ({**order(), "confirm": {"threads.intraOp": [1]}}, "confirm.threads.intraOp", "a text, a number"),
    "an image": ({**order(), "image": 7}, "image", "text"),
}


@pytest.mark.parametrize(("given", "path", "said"), BROKEN.values(), ids=BROKEN)
def test_what_is_no_order_is_named_by_its_field(given, path, said):
    with pytest.raises(SpecError) as raised:
        Order.read(given if isinstance(given, str) else json.dumps(given))
    assert raised.value.path == path
    assert said in raised.value.message


WHOLE = {"limits": {"cpu": "1", "memory": "1Gi"}}


@pytest.mark.parametrize(
    ("resources", "guaranteed", "one_cpu", "exclusive"),
    [
        (WHOLE, True, True, True),
        (WHOLE, True, False, False),
        (WHOLE, False, True, False),
        ({"limits": {"cpu": "1"}}, True, True, False),
    ],
    ids=["as many as it asks for", "more", "others in the pod ask for less", "it asks for less"],
)
def test_cpus_are_exclusive_where_the_container_has_as_many_as_it_asks_for(resources, guaranteed, one_cpu, exclusive):
    cpus = sorted(os.sched_getaffinity(0))
    if len(cpus) < 2:
        pytest.skip("one CPU only")
    asked = {**order(container={**CONTAINER, "resources": resources}), "guaranteed": guaranteed}
    given = Order.read(json.dumps(asked))
    with tuning_pods.folder() as shared, Pod(shared) as there, tuning_pods.container(shared) as first:
        first.cpu_affinity(cpus[:1] if one_cpu else cpus)
        there.await_ready()
        base = _base(given, there)
    assert is_exclusive(base.machine, base.budget) is exclusive


def test_what_the_policy_reserves_is_not_measured_with():
    reserving = objects.policy(budget={"reserve": "200m"})
    asked = order(container={**CONTAINER, "resources": {"limits": {"cpu": "4"}}}, policy=reserving)
    with tuning_pods.folder() as shared, Pod(shared) as there, tuning_pods.container(shared):
        there.await_ready()
        base = _base(Order.read(json.dumps(asked)), there)
    assert base.cpus == base.budget.quota_cpus == 3.0
    assert base.container(driving.BASELINE).notes == (), "that it has no shim its mounts say"

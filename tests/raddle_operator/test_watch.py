"""The agent's loop of looks, the pods that it looks at, and what it serves."""

import http.client
import io
import json
import socket
import threading

import pytest
from prometheus_client.parser import text_string_to_metric_families

from raddle import env
from raddle.planning.planner import Budget
from raddle.planning.policy import Policy
from raddle_operator.agent import governed, server, watching
from raddle_operator.agent.client import AgentClient, ApiError
from raddle_operator.agent.datagrams import ReportedSessions
from raddle_operator.agent.reflector import Backoff, Reflector
from raddle_operator.agent.samples import ContainerSample, Counters, ProcessSample, Sample, ThreadSample
from raddle_operator.agent.served import Served
from raddle_operator.agent.server import Server
from raddle_operator.agent.settings import AgentSettings
from raddle_operator.agent.watching import Watcher
from raddle_operator.injection import plan_annotations
from raddle_operator.objects import nodereport
from raddle_operator.objects.nodereport import Cause, Level

BOX = "9a8b" * 16
REFERENCE = "InferenceThreading/small"


def pod_object(name="resnet-1", *, cpu="2", state="running", plans=("server",), containers=("server", "other")):
    _, values = plan_annotations.compose(
        None, Budget(quota_cpus=2.0, because="limits.cpu 2"), Policy(), governed_by=REFERENCE
    )
    annotations = {prefix + plan: text for plan in plans for prefix, text in values.items()}
    annotations |= {env.GOVERNED_BY: REFERENCE, "other.dev/x": "y"}
    running = {"containerID": f"containerd://{BOX}", "state": {state: {}}}
    return {
        "metadata": {"namespace": "models", "name": name, "uid": "1f2e", "annotations": annotations},
        "spec": {"containers": [{"name": one, "resources": {"limits": {"cpu": cpu}}} for one in containers]},
        "status": {"podIP": "10.0.0.7", "containerStatuses": [{"name": one, **running} for one in containers]},
    }


def test_of_a_pod_only_its_planned_containers_are_kept():
    found = governed.read(pod_object())
    assert (found.namespace, found.name, found.uid, found.ip) == ("models", "resnet-1", "1f2e", "10.0.0.7")
    assert found.policy == REFERENCE
    assert [(one.name, one.id, one.limit_cpus) for one in found.containers] == [("server", BOX, 2.0)]
    assert found.planned["server"].threads == 2


@pytest.mark.parametrize(
    ("variables", "tells"),
    [([], False), ([{"name": env.AGENT, "value": "10.96.0.12:8126/server"}], True), ([{"name": env.AGENT}], False)],
)
def test_shims_tell_where_they_know_whom(variables, tells):
    pod = pod_object()
    for one in pod["spec"]["containers"]:
        one["env"] = variables
    assert governed.read(pod).containers[0].tells == tells


@pytest.mark.parametrize("state", ["waiting", "terminated"])
def test_a_container_that_does_not_run_has_no_id(state):
    assert governed.read(pod_object(state=state)).containers[0].id == ""


@pytest.mark.parametrize(
    ("phase", "is_kept"), [("Running", True), ("Pending", True), ("Succeeded", False), ("Failed", False)]
)
def test_a_pod_that_has_ended_is_none(phase, is_kept):
    pod = pod_object()
    pod["status"]["phase"] = phase
    assert (governed.read(pod) is not None) == is_kept


def test_a_planned_sidecar_counts():
    pod = pod_object()
    pod["spec"]["initContainers"] = pod["spec"].pop("containers")
    pod["status"]["initContainerStatuses"] = pod["status"].pop("containerStatuses")
    assert governed.read(pod).containers[0].id == BOX


@pytest.mark.parametrize(
    "change",
    [
        {"metadata": {}}, {"metadata": {"annotations": {env.PLAN_PREFIX + "server": "{"}}},
        {"metadata": {"annotations": []}}, {"metadata": None}, {"spec": {"containers": ["x"]}},
        {"spec": {"containers": {}}}, {"spec": {"containers": [{"name": "server", "env": ["x"]}]}},
        {"status": {"containerStatuses": [{"containerID": 3, "state": {}}]}}, {"status": []},
    ],
)  # fmt: skip
def test_a_pod_without_plans_or_of_a_strange_shape_is_none(change):
    assert governed.read(pod_object() | change) is None


@pytest.mark.parametrize("name", ["../../etc", "", "a/b", "x" * 200])
def test_an_id_never_leads_out_of_its_folder(name):
    pod = pod_object()
    pod["status"]["containerStatuses"][0]["containerID"] = f"x://{name}"
    assert governed.read(pod).containers[0].id in ("", "b")


class Streamed:
    """Stands in for the client: a server whose watches end, of which one says that its version is too old."""

    def __init__(self, *streams):
        self.streams = list(streams)
        self.versions = []
        self.silent = threading.Event()

    def watch(self, path, query, accept, *, timeout_s):
        assert query["fieldSelector"] == "spec.nodeName=worker"
        self.versions.append(query["resourceVersion"])
        if not self.streams:
            self.silent.set()
            threading.Event().wait()
        yield from self.streams.pop(0)


def event(kind, name, version, **more):
    obj = pod_object(name, **more)
    obj["metadata"]["resourceVersion"] = version
    return {"type": kind, "object": obj}


def pods_of(*streams):
    api = Streamed(*streams)
    more = {"changed": lambda: None, "backoff": Backoff(0.001, 0.001), "streamed": True}
    reflector = Reflector(api, watching.PODS, "spec.nodeName=worker", keep=governed.read, **more)
    threading.Thread(target=reflector.run, daemon=True).start()
    assert api.silent.wait(10)
    return api, sorted(pod.name for pod in reflector.values)


def test_pods_come_one_by_one_and_no_list_is_asked_for():
    events = [
        event("ADDED", "a", "7"),
        event("ADDED", "b", "5"),
        event("ADDED", "other", "6", plans=()),
        {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "9"}}},
    ]
    api, names = pods_of(events)
    assert (api.versions, names) == (["0", "0"], ["a", "b"])


def test_a_pod_that_is_deleted_or_loses_its_plan_is_forgotten():
    events = [event("ADDED", name, "1") for name in "abc"]
    events += [event("DELETED", "a", "2"), event("MODIFIED", "b", "3", plans=())]
    assert pods_of(events)[1] == ["c"]


def test_a_watch_that_starts_over_forgets_what_is_not_there_any_more():
    gone = {"type": "ERROR", "object": {"code": 410, "message": "too old"}}
    assert pods_of([event("ADDED", "a", "1"), gone], [event("ADDED", "b", "8")])[1] == ["b"]


class Scripted:
    """A sampler that shows these looks in turn; an exception among them is raised."""

    def __init__(self, *shown):
        self.shown = list(shown)
        self.given = []

    def sample(self, pods, before):
        self.given.append(before)
        found = self.shown.pop(0)
        if isinstance(found, Exception):
            raise found
        return found


def seen(at_s, ran_s=0.0, cpuset="0-3", threads=1):
    found = {n: ThreadSample(1.0, "pool", ran_s, 0.5 * ran_s, int(ran_s), 0, b"") for n in range(threads)}
    counters = Counters(at_s, used_s=ran_s * threads, cpuset=cpuset)
    return Sample(at_s, {BOX: ContainerSample(counters, {7: ProcessSample(1.0, 1, "python", None, threads, found)})})


def watcher(*shown, watch=Level.PROCESSES, pod=None, heard=None, **settings):
    told, pods = [], lambda: [governed.read(pod or pod_object())]
    settings = AgentSettings(node_name="worker", watch=watch, **settings)
    return Watcher(settings, Scripted(*shown), pods, lambda: None, told.append, heard), told


def test_two_looks_make_a_report_with_what_was_planned():
    made, told = watcher(seen(100.0), seen(115.0, 3.0, threads=4))
    assert made.sample() == 15.0
    assert told == []
    made.sample()
    (report,) = told
    assert (report.node, report.level, report.window_s) == ("worker", Level.PROCESSES, 15.0)
    assert report.containers[0].planned_threads == 2


def deaf(missed_in_s):
    """What was told, of which something will be missed in so many seconds."""
    told = ReportedSessions()
    told.missed_at = watching.time.monotonic() + missed_in_s
    return told


@pytest.mark.parametrize(
    ("heard", "is_heard"),
    [(ReportedSessions, True), (lambda: None, False), (lambda: deaf(500), True), (lambda: deaf(700), False)],
    ids=["heard", "nobody listens", "something was missed before it began", "something was missed since"],
)
def test_a_process_whose_agent_did_not_hear_all_since_it_began_may_have_spoken_to_nobody(heard, is_heard):
    pod = pod_object()
    pod["spec"]["containers"][0]["env"] = [{"name": env.AGENT, "value": "10.96.0.12:8126/server"}]
    later_s = watching.time.clock_gettime(watching.time.CLOCK_BOOTTIME) + 600
    begun = [
        Sample(at_s, {BOX: ContainerSample(Counters(at_s), {7: ProcessSample(start_s, 1, "python", None, 0, {})})})
        for at_s, start_s in ((100.0, 1.0), (115.0, 1.0), (later_s + 15, later_s))
    ]
    made, told = watcher(*begun, pod=pod, heard=heard())
    for _ in begun:
        made.sample()
    listened = [one.listened for report in told for one in report.containers[0].processes]
    assert listened == [False, is_heard]


def test_a_look_that_fails_leaves_no_report_of_long_ago():
    made, told = watcher(seen(100.0), OSError("no route"), seen(130.0), seen(145.0))
    for _ in range(4):
        made.sample()
    assert [report and report.window_s for report in told] == [None, 30.0, 15.0]


def test_a_cpuset_that_is_another_than_at_first_is_told():
    made, told = watcher(seen(100.0), seen(115.0), seen(130.0, cpuset="0"))
    for _ in range(3):
        made.sample()
    causes = [[finding.cause for finding in report.containers[0].findings] for report in told]
    assert causes == [[], [Cause.CPUSET_CHANGED]]


def test_a_container_that_was_started_again_has_its_first_cpuset_anew():
    pod, told, again = pod_object(), [], "1c2d" * 16
    shown = Scripted(seen(100.0), seen(115.0), Sample(130.0, {again: seen(130.0, cpuset="0").containers[BOX]}))
    settings = AgentSettings(node_name="worker", watch=Level.PROCESSES)
    made = Watcher(settings, shown, lambda: [governed.read(pod)], lambda: None, told.append)
    made.sample()
    made.sample()
    for one in pod["status"]["containerStatuses"]:
        one["containerID"] = f"containerd://{again}"
    made.sample()
    assert ["they were" in finding.detail for finding in told[-1].containers[0].findings] == [False]


def test_the_kubelet_is_asked_no_oftener_than_it_looks_itself():
    assert watcher(seen(1.0), watch=Level.KUBELET)[0].sample() == watching.KUBELET_LEAST_S
    assert watcher(seen(1.0), watch=Level.KUBELET, watch_interval_s=90.0)[0].sample() == 90.0


def test_all_looks_together_take_a_hundredth_of_a_cpu():
    class Slow(Scripted):
        def sample(self, pods, before):
            end = watching.time.thread_time() + 0.05
            while watching.time.thread_time() < end:
                pass
            return super().sample(pods, before)

    made, _ = watcher(watch_interval_s=1.0)
    made._sampler = Slow(seen(1.0))
    assert made.sample() >= 5.0


@pytest.fixture
def told():
    served = Served()
    made, reports = watcher(seen(100.0), seen(110.0, 3.0, threads=4), seen(120.0, 5.0, threads=4), seen(130.0))
    for _ in range(3):
        made.sample()
    for report in reports:
        served.update(report)
    return served, reports


def samples(served):
    families = text_string_to_metric_families(served.metrics().decode())
    return {sample.name: sample for family in families for sample in family.samples}


def test_the_report_is_served_as_it_is(told):
    served, reports = told
    assert nodereport.from_document(json.loads(served.document)) == reports[-1]


def test_metrics_name_the_container_and_counters_rise_by_each_window(told):
    found = samples(told[0])
    assert found["raddle_container_threads"].labels == {"namespace": "models", "pod": "resnet-1", "container": "server"}
    counts = [found[f"raddle_container_{name}"].value for name in ("threads", "threads_ran", "threads_planned")]
    assert counts == [4, 4, 2]
    # Of the threads that were not there at first nothing is known of before the second look.
    assert found["raddle_container_cpu_threads_seconds_total"].value == 3.0 + 4 * 2.0
    assert found["raddle_container_cpu_delay_seconds_total"].value == 0.5 * (3.0 + 4 * 2.0)


def test_without_a_report_there_are_no_samples(told):
    served, _ = told
    served.update(None)
    assert (served.document, samples(served)) == (None, {})


@pytest.fixture
def port():
    answers = {
        "/livez": lambda: (server.HTTPStatus.OK, server.TEXT, b"ok\n"),
        "/none": lambda: (server.HTTPStatus.SERVICE_UNAVAILABLE, server.TEXT, b"not yet\n"),
    }
    with Server(0, answers) as found:
        thread = threading.Thread(target=found.serve_forever, daemon=True)
        thread.start()
        yield found.server_address[1]
        found.shutdown()


def ask(port, path, method="GET", host="127.0.0.1"):
    connection = http.client.HTTPConnection(host, port, timeout=10)
    try:
        connection.request(method, path)
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


def test_the_server_answers_the_paths_that_it_has(port):
    assert ask(port, "/livez?x=1") == (200, b"ok\n")
    assert ask(port, "/none") == (503, b"not yet\n")
    assert ask(port, "/../etc/passwd")[0] == 404
    assert ask(port, "/livez", "POST")[0] == 501


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="the machine has no IPv6 beside IPv4")
def test_the_server_answers_over_ipv6_too(port):
    assert ask(port, "/livez", host="::1")[0] == 200


def test_clients_that_say_nothing_take_no_more_than_the_places(port):
    silent = []
    try:
        silent.extend(socket.create_connection(("127.0.0.1", port), timeout=10) for _ in range(server.MOST_CLIENTS))
        with socket.create_connection(("127.0.0.1", port), timeout=10) as late:
            assert late.recv(1) == b""
    finally:
        for one in silent:
            one.close()


class Answering(AgentClient):
    """A client whose one connection gives these bytes."""

    def __init__(self, text):
        super().__init__(None)
        self._text = text

    def _connect(self, timeout_s):
        return io.BytesIO(self._text)

    def _send(self, connection, *rest):
        if self._text == b"refused":
            raise ApiError(403, "no")
        return connection


def test_a_text_is_read_by_lines_whatever_its_pieces():
    text = b"".join(b"%d\n" % n * 3 for n in range(50_000))
    assert b"\n".join(Answering(text).lines("/", "text/plain")) + b"\n" == text
    with pytest.raises(ApiError):
        list(Answering(b"refused").lines("/", "text/plain"))


def test_an_event_that_is_too_large_does_not_end_the_watch():
    huge = json.dumps({"type": "ADDED", "object": {"x": "y" * (5 << 20)}}).encode()
    text = b'{"type": "A"}\n' + huge + b'\n{"type": "B"}\n'
    events = Answering(text).watch("/", {}, "application/json", timeout_s=1)
    assert [one["type"] for one in events] == ["A", "B"]

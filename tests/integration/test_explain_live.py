"""`raddle explain --live` against a real API server: its rights, its errors, and the program, which really runs.

The node is a stand-in for a kubelet that runs the command on this machine, behind the door and in process and mount
namespaces of its own, where one program with a runtime's library runs.
"""

import asyncio
import json
import os
import ssl
import subprocess
import threading
from pathlib import Path

import pytest
import yaml
from aiohttp import WSMsgType, web
from click.testing import CliRunner
from support.rights import grant, rule, user
from support.runtimes import door_lab

from raddle import delivery
from raddle.planning.policy import WITHOUT_SHIM
from raddle_operator import certificates, cli

pytestmark = pytest.mark.cluster

PLAN = "v=1;intra_op=2;inter_op=1;spinning=never"
# Container -> what it is.
REACHED, EMPTY, CLOSED, CRASHED, MISSING, SILENT = "serve", "plain", "closed", "crashed", "missing", "silent"
POLICY = """
apiVersion: raddle.dev/v1alpha1
kind: InferenceThreading
metadata: {name: all, namespace: default}
spec: {podSelector: {}}
"""
# A process with a runtime, and the program beside it.
WITH_RUNTIME = """
mount -t tmpfs none /mnt && cp "$0" /mnt/libgomp.so.1
LD_PRELOAD=/mnt/libgomp.so.1 sleep 60 &
until grep -q libgomp /proc/$!/maps; do :; done
"$@"; status=$?
kill $!
exit $status
"""


class Node:
    """A kubelet's exec, for containers that are this machine."""

    def __init__(self, folder: Path) -> None:
        self.tree = door_lab.tree()
        self.prefix = (*door_lab.prefix(self.tree), "unshare", "--pid", "--fork", "--mount-proc")
        certificates.local_issue(folder, ["127.0.0.1"])
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(folder / "tls.crt", folder / "tls.key")
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever)
        self.thread.start()
        self.port = self._run(self._start(context))

    def _run(self, call):
        return asyncio.run_coroutine_threadsafe(call, self.loop).result(30)

    async def _start(self, context):
        application = web.Application()
        application.router.add_get("/exec/{namespace}/{pod}/{container}", self._exec)
        self.runner = web.AppRunner(application, shutdown_timeout=0.1)
        await self.runner.setup()
        site = web.TCPSite(self.runner, "127.0.0.1", 0, ssl_context=context)
        await site.start()
        return self.runner.addresses[0][1]

    def stop(self):
        self._run(self.runner.cleanup())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()
        self.loop.close()

    async def _exec(self, request):
        container, command = request.match_info["container"], request.query.getall("command")
        connection = web.WebSocketResponse(protocols=("v4.channel.k8s.io",))
        await connection.prepare(request)
        if container == SILENT:
            async for message in connection:
                assert message.type != WSMsgType.ERROR
            return connection
        if container == MISSING:
            said = {"status": "Failure", "reason": "InternalError", "code": 500}
            said["message"] = f'exec: "{command[0]}": stat {command[0]}: no such file or directory: unknown'
        else:
            script = WITH_RUNTIME if container == REACHED else '"$@"; exit $?'
            words = ["sh", "-c", script, str(self.tree / "libraddle.so"), *command]
            environ = {"PATH": os.environ["PATH"], "RADDLE_PLAN": PLAN, "OMP_NUM_THREADS": "2"}
            done = await asyncio.to_thread(
                subprocess.run, [*self.prefix, *words], env=environ, capture_output=True, check=False
            )
            for start in range(0, len(done.stdout), 1000):
                await connection.send_bytes(b"\x01" + done.stdout[start : start + 1000])
            await connection.send_bytes(b"\x02" + done.stderr)
            causes = [{"reason": "ExitCode", "message": str(done.returncode)}]
            said = {"status": "Failure", "reason": "NonZeroExitCode", "details": {"causes": causes}}
            said = said if done.returncode else {"status": "Success"}
        await connection.send_bytes(b"\x03" + json.dumps(said).encode())
        await connection.close()
        return connection


@pytest.fixture(scope="module")
def cluster(only_installed, tmp_path_factory):
    node, cluster = Node(tmp_path_factory.mktemp("kubelet")), only_installed.cluster
    cluster.client.apply({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": _meta("default")})
    cluster.client.apply(yaml.safe_load(POLICY))
    cluster.client.apply({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "here"}})
    status = {
        "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": node.port}},
    }
    cluster.client.merge("/api/v1/nodes/here/status", {"status": status})
    yield cluster
    node.stop()


def _meta(name, **more):
    return {"name": name, "namespace": "default", **more}


@pytest.fixture
def pod(cluster, tmp_path):
    """pod(container, ...): an injected pod with these containers, as the kubelet would have it; it runs."""
    made = []

    def create(*containers, name="app", labels=None):
        listed = [{"name": one, "image": "x", "resources": {"limits": {"cpu": "2"}}} for one in containers]
        plain = {"apiVersion": "v1", "kind": "Pod", "metadata": _meta(name, labels=labels or {})}
        (tmp_path / "policy.yaml").write_text(POLICY)
        (tmp_path / "pod.yaml").write_text(yaml.safe_dump({**plain, "spec": {"containers": listed}}))
        done = CliRunner().invoke(cli.main, ["plan", "-f", str(tmp_path), "-o", "yaml"])
        assert done.exit_code == 0, done.stderr
        planned = yaml.safe_load(done.stdout)
        planned["spec"]["nodeName"] = "here"
        planned["spec"]["volumes"] = [{"name": "door", "emptyDir": {}}]
        for one in planned["spec"]["containers"]:
            path = delivery.PRELOAD_FILE if one["name"] != CLOSED else "/elsewhere"
            one["volumeMounts"] = [{"name": "door", "mountPath": path}]
        planned["metadata"]["labels"] = {**(labels or {}), "raddle.dev/injected": "true"}
        cluster.client.post("/api/v1/namespaces/default/pods", planned)
        made.append(name)
        running, crashed = (
            {"running": {"startedAt": "2026-01-01T00:00:00Z"}},
            {"waiting": {"reason": "CrashLoopBackOff"}},
        )
        common = {"image": "x", "imageID": "x", "ready": True, "restartCount": 0}
        states = [{**common, "name": one, "state": crashed if one == CRASHED else running} for one in containers]
        status = {"phase": "Running", "containerStatuses": states}
        cluster.client.merge(f"/api/v1/namespaces/default/pods/{name}/status", {"status": status})

    yield create
    for name in made:
        cluster.client.delete(f"/api/v1/namespaces/default/pods/{name}")


def explain(cluster, *arguments, kubeconfig=None):
    command = ["explain", *arguments, "-n", "default"]
    command += ["--kubeconfig", str(kubeconfig)] if kubeconfig else []
    return CliRunner(env=cluster.environment()).invoke(cli.main, command)


def test_a_pod_s_processes_are_listed_below_its_numbers(cluster, pod):
    pod(REACHED)
    done = explain(cluster, "--live", "pod/app")
    assert done.exit_code == 0, done.stderr
    assert "governed by InferenceThreading/all" in done.stdout
    assert "live, container serve: reached: 1 of 1 process with a runtime" in done.stdout
    counts = ["OMP_NUM_THREADS=2", "ORT_INTRA_OP_NUM_THREADS=2", "ORT_INTER_OP_NUM_THREADS=1"]
    assert ["sleep", "open", "1", "libgomp", *counts] in [line.split()[1:] for line in done.stdout.splitlines()]
    assert "live" not in explain(cluster, "pod/app").stdout


def test_the_same_for_programs(cluster, pod):
    pod(REACHED)
    live = json.loads(explain(cluster, "--live", "app", "-o", "json").stdout)["live"]
    assert (live["injected"], live["reached"], live["unanswered"]) == (1, 1, 0)
    (said,) = live["containers"]
    assert (said["namespace"], said["pod"], said["container"], said["problem"]) == ("default", "app", "serve", None)
    (sleep,) = [one for one in said["processes"] if one["runtimes"]]
    assert (sleep["command"], sleep["plan"], sleep["reached"]) == ("sleep", PLAN, True)


def test_containers_that_say_nothing_say_why_and_are_counted(cluster, pod):
    pod(REACHED, EMPTY, name="one", labels={"app": "a"})
    pod(CLOSED, CRASHED, MISSING, name="two", labels={"app": "b"})
    done = explain(cluster, "--live")
    rows = {line.split()[2]: line for line in done.stdout.splitlines() if line.startswith("default")}
    assert rows[REACHED].split()[3] == "1/1"
    assert rows[EMPTY].split()[3] == "-"
    assert f"it has no shim: {WITHOUT_SHIM}" in rows[CLOSED]
    assert rows[CRASHED].rstrip().endswith("it does not run: CrashLoopBackOff")
    assert "there is no /opt/raddle/raddle in it" in rows[MISSING]
    last = "reached in 1 of 5 injected containers, 3 gave no answer, 1 without a runtime"
    assert (done.stdout.splitlines()[-1], done.exit_code) == (last, 1)
    some = explain(cluster, "--live", "-l", "app=a")
    assert some.stdout.splitlines()[-1] == "reached in 1 of 2 injected containers, 1 without a runtime"
    assert some.exit_code == 0
    everywhere = json.loads(explain(cluster, "--live", "-A", "-o", "json").stdout)
    assert (everywhere["injected"], everywhere["reached"], everywhere["unanswered"]) == (5, 1, 3)


def test_without_the_right_it_says_which_is_missing(cluster, pod):
    pod(REACHED)
    name = "reader"
    rules = [rule("", "pods namespaces", "get list"), rule("raddle.dev", "*", "get list")]
    grant(cluster.client, name, rules, user(name))
    reader = cluster.user(name)
    done = explain(cluster, "--live", "app", kubeconfig=reader)
    assert "you can't run a command in it: that requires permission to get and create pods/exec" in done.stdout
    assert done.exit_code == 1
    grant(cluster.client, name, [*rules, rule("", "pods/exec", "get create")], user(name))
    assert explain(cluster, "--live", "app", kubeconfig=reader).exit_code == 0


def test_a_pod_that_has_nothing_is_not_asked(cluster):
    plain = {"apiVersion": "v1", "kind": "Pod", "metadata": _meta("stock")}
    spec = {"containers": [{"name": "serve", "image": "x"}], "nodeName": "here"}
    cluster.client.post("/api/v1/namespaces/default/pods", {**plain, "spec": spec})
    done = explain(cluster, "--live", "stock")
    assert "Raddle has set nothing" in done.stdout
    assert done.exit_code == 0
    assert explain(cluster, "--live").stdout == "reached in 0 of 0 injected containers\n"
    cluster.client.delete("/api/v1/namespaces/default/pods/stock")

"""The local cluster is real, several run side by side, and nothing outlives its owner."""

import base64
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from cluster import ApiError, Cluster, DevclusterError, binaries, registry
from cluster.__main__ import main
from cluster.waiting import wait

pytestmark = pytest.mark.cluster

TOOLS = Path(sys.modules["cluster"].__file__).parents[1]
WAIT_SECONDS = 60.0
CRD = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "nodecputopologies.raddle.dev"},
    "spec": {
        "group": "raddle.dev",
        "scope": "Cluster",
        "names": {"kind": "NodeCPUTopology", "plural": "nodecputopologies", "singular": "nodecputopology"},
        "versions": [
            {
                "name": "v1alpha1",
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
            }
        ],
    },
}
TOPOLOGY = {"apiVersion": "raddle.dev/v1alpha1", "kind": "NodeCPUTopology", "metadata": {"name": "any"}, "spec": {}}


@pytest.fixture(scope="module")
def cluster():
    with Cluster(name="tests") as running:
        yield running


def processes_in(directory):
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if (process / "cwd").readlink() == directory:
                found.append(int(process.name))
        except OSError:
            continue
    return found


def runs(pid):
    return Path(f"/proc/{pid}").exists()


@pytest.fixture
def child():
    """An owner in a process of its own: `up` without controllers, as (process, the cluster's directory)."""
    command = [sys.executable, "-m", "cluster", "up", "--api-only", "--name", "child"]
    with subprocess.Popen(
        command,
        cwd=TOOLS,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        # A test run in the background is started with SIGINT ignored, and children inherit that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509 (no threads here)
    ) as process:
        try:
            line = process.stdout.readline()
            kubeconfig = Path(line.removeprefix("export KUBECONFIG=").split()[0])
            yield process, kubeconfig.parent
        finally:
            process.kill()


@pytest.mark.parametrize(
    "number", [pytest.param(signal.SIGINT, marks=pytest.mark.matrix), signal.SIGTERM, signal.SIGKILL]
)
def test_nothing_outlives_an_owner_that_gets(number, child):
    process, directory = child
    pids = processes_in(directory)
    assert len(pids) == 2
    process.send_signal(number)
    assert process.wait(WAIT_SECONDS) == (-signal.SIGKILL if number == signal.SIGKILL else 0)
    wait(lambda: not directory.exists())
    wait(lambda: not any(runs(pid) for pid in pids))


def test_what_even_the_janitor_could_not_clean_up_is_swept_later(child):
    process, directory = child
    pids = processes_in(directory)
    os.kill(os.getpgid(pids[0]), signal.SIGKILL)  # the janitor leads the group
    process.kill()
    process.wait()
    assert directory.exists()
    assert directory in registry.sweep()
    assert not directory.exists()
    wait(lambda: not any(runs(pid) for pid in pids))


def test_programs_named_by_kubebuilder_assets_are_used_without_a_build(monkeypatch, tmp_path):
    program = binaries.control_plane()
    commands = ["etcd", "kube-apiserver", "kubectl"]
    assets = binaries.find(program, commands)["etcd"].parent
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(assets))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert binaries.find(program, commands) == {name: assets / name for name in commands}
    assert list(tmp_path.iterdir()) == []


def test_two_clusters_run_side_by_side_and_share_nothing_and_an_exception_ends_one_too(cluster):
    broken = Cluster(scheduler=False, controller_manager=False)
    pids = {}

    def fail():
        with broken:
            assert broken.server != cluster.server
            broken.kubectl("create", "namespace", "only-here")
            assert cluster.kubectl("get", "namespace", "only-here", check=False).returncode == 1
            pids.update(broken.pids())
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert set(pids) == {"etcd", "kube-apiserver"}
    assert not any(runs(pid) for pid in pids.values())
    assert not broken.directory.exists()
    assert set(cluster.pids()) == {"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"}


def test_a_component_that_can_not_start_is_shown_with_the_end_of_its_log():
    broken = Cluster(extra_flags={"kube-apiserver": ["--no-such-flag"]})
    with pytest.raises(
        DevclusterError, match=r"(?s)kube-apiserver ended with exit code 1.*unknown flag: --no-such-flag"
    ):
        broken.__enter__()
    assert not broken.directory.exists()


def test_the_scheduler_binds_the_pods_of_a_deployment_to_a_registered_node(cluster):
    namespace = "scheduling"
    cluster.kubectl("create", "namespace", namespace)
    cluster.register_node("small", cpus=1, labels={"pool": "here"})
    cluster.register_node("large", cpus=16, labels={"pool": "here"})
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "serve", "namespace": namespace},
        "spec": {
            "replicas": 2,
            "selector": {"matchLabels": {"app": "serve"}},
            "template": {
                "metadata": {"labels": {"app": "serve"}},
                "spec": {
                    "nodeSelector": {"pool": "here"},
                    "containers": [{"name": "serve", "image": "x", "resources": {"requests": {"cpu": "4"}}}],
                },
            },
        },
    }
    cluster.kubectl("apply", "-f", "-", input=json.dumps(deployment))

    def bound():
        pods = cluster.client.get(f"/api/v1/namespaces/{namespace}/pods", fieldSelector="spec.nodeName!=")["items"]
        return pods if len(pods) == 2 else None

    pods = wait(bound)
    assert {pod["spec"]["nodeName"] for pod in pods} == {"large"}
    assert {pod["status"]["phase"] for pod in pods} == {"Pending"}
    for pod in pods:
        cluster.mark_running(namespace, pod["metadata"]["name"])
    path = f"/apis/apps/v1/namespaces/{namespace}/deployments/serve"
    wait(lambda: cluster.client.get(path)["status"].get("availableReplicas") == 2)


def test_a_node_can_be_made_again_under_its_name_with_its_topology(cluster):
    cluster.client.apply(CRD)
    wait(lambda: served(cluster, "/apis/raddle.dev/v1alpha1/nodecputopologies"))
    first = cluster.register_node("again", cpus=4, boot_id="boot-1", topology=TOPOLOGY)
    cluster.kubectl("delete", "node", "again")
    second = cluster.register_node("again", cpus=8, boot_id="boot-2", topology=TOPOLOGY)
    assert second.uid != first.uid
    node = cluster.client.get("/api/v1/nodes/again")
    assert node["metadata"]["uid"] == second.uid
    assert node["status"]["allocatable"]["cpu"] == "8"
    assert node["status"]["nodeInfo"]["bootID"] == "boot-2"
    assert "taints" not in node["spec"]
    owners = cluster.client.get("/apis/raddle.dev/v1alpha1/nodecputopologies/again")["metadata"]["ownerReferences"]
    assert [(owner["uid"], owner.get("blockOwnerDeletion")) for owner in owners] == [(second.uid, None)]
    first.delete()  # a node that is gone: the newer one of that name stays
    assert served(cluster, "/api/v1/nodes/again")
    second.delete()
    assert not served(cluster, "/api/v1/nodes/again")


def served(cluster, path):
    try:
        cluster.client.get(path)
    except ApiError as error:
        if error.status != 404:
            raise
        return False
    return True


def test_service_account_tokens_are_bound_to_a_node(cluster):
    node = cluster.register_node("token-node", cpus=2)
    bound = {"kind": "Node", "apiVersion": "v1", "name": node.name, "uid": node.uid}
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"boundObjectRef": bound}}
    answer = cluster.client.post("/api/v1/namespaces/default/serviceaccounts/default/token", request)
    payload = answer["status"]["token"].split(".")[1]
    claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    assert claims["kubernetes.io"]["node"] == {"name": "token-node", "uid": node.uid}


def test_a_user_may_do_what_its_roles_say_and_no_more(cluster):
    kubeconfig = str(cluster.user("alice", groups=["readers"]))
    cluster.kubectl("create", "clusterrole", "read-config", "--verb=get,list", "--resource=configmaps")
    cluster.kubectl("create", "rolebinding", "readers", "--clusterrole=read-config", "--group=readers", "-n", "default")
    allowed = ["--kubeconfig", kubeconfig, "get", "configmaps", "-n", "default"]
    wait(lambda: cluster.kubectl(*allowed, check=False).returncode == 0)
    with pytest.raises(DevclusterError, match=r'User "alice" cannot list resource "secrets"'):
        cluster.kubectl("--kubeconfig", kubeconfig, "get", "secrets", "-n", "default")
    assert cluster.user("alice", groups=["readers"]) == Path(kubeconfig)
    assert cluster.user("alice") != Path(kubeconfig)


def test_a_restarted_api_server_keeps_its_port_and_its_data_until_the_cluster_ends():
    with Cluster(scheduler=False, controller_manager=False) as other:
        other.kubectl("create", "configmap", "kept", "--from-literal=a=b")
        server, directory, before = other.server, other.directory, other.pids()
        other.stop("apiserver")
        assert set(other.pids()) == {"etcd"}
        with pytest.raises(OSError, match="refused"):
            other.new_client().get("/readyz")
        other.start("apiserver")
        other.restart("etcd")
        after = other.pids()
        assert other.server == server
        assert set(after) == set(before)
        assert set(after.values()).isdisjoint(before.values())
        assert other.client.get("/api/v1/namespaces/default/configmaps/kept")["data"] == {"a": "b"}
        with pytest.raises(DevclusterError, match="got 'scheduler', this cluster has etcd, kube-apiserver"):
            other.restart("scheduler")
    assert not any(runs(pid) for pid in after.values())
    assert not directory.exists()


def test_a_command_runs_in_a_cluster_of_its_own_and_its_exit_code_is_kept(capfd):
    code = main(["up", "--api-only", "--nodes", "2", "--", "sh", "-c", "kubectl get nodes -o name; exit 7"])
    out, err = capfd.readouterr()
    assert code == 7
    assert out.splitlines() == ["node/node-0", "node/node-1"]
    assert "ready in" in err


def test_a_mistake_on_the_command_line_says_what_is_allowed(capsys):
    assert main(["up", "--feature-gates", "Nonsense"]) == 1
    assert "got 'Nonsense', expected NAME=true or NAME=false" in capsys.readouterr().err

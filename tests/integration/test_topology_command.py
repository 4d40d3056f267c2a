"""`raddle topology` draws a node, and a pod on its node, of a real API server."""

import pytest
from click.testing import CliRunner

from cluster.objects import guaranteed, pod, policy
from raddle_operator.cli import main


@pytest.fixture
def topology(space):
    """topology("--node", "n"): what the command prints with the cluster's own kubeconfig."""

    def run(*arguments):
        command = ["topology", *arguments, "--kubeconfig", str(space.cluster.kubeconfig)]
        return CliRunner(env={"COLUMNS": "80"}).invoke(main, command)

    return run


def test_a_node_is_drawn_with_what_its_kubelet_does(topology):
    shown = topology("--node", "two-sockets").stdout
    assert "kubelet       CPU manager static" in shown
    assert "socket 1 · NUMA node 1" in shown


def test_a_pod_with_exclusive_cpus_is_drawn_beside_its_node_until_somebody_says_which(space, topology):
    space.apply(policy(placement={"affinity": "PerCore"}))
    space.create(pod(guaranteed(cpu="4"), nodeSelector={"node": "two-sockets"}))
    space.bound()
    beside = topology("--pod", "app", "-n", space.name).stdout
    assert "container serve · 2 threads" in beside
    assert "4 exclusive CPUs" in beside
    placed = topology("--pod", "app", "-n", space.name, "--exclusive", "4-7").stdout
    assert "worker 1      CPUs 6-7" in placed
    assert "4c  │  6w1" in placed


def test_a_node_or_pod_that_is_not_there_is_one_line_and_exit_code_one(space, topology):
    for arguments, message in (
        (("--node", "nowhere"), "nodecputopology/nowhere not found"),
        (("--pod", "nobody", "-n", space.name), f"pod/nobody not found in namespace {space.name}"),
    ):
        result = topology(*arguments)
        assert (result.exit_code, result.stderr) == (1, f"Error: {message}\n")

"""`raddle topology`: what it reads, what it draws, how it ends."""

import xml.etree.ElementTree as ET

import click
import pytest
from click.testing import CliRunner
from support.machines import of_size

import machines
from raddle import env
from raddle.planning import wire
from raddle.planning.planner import Budget, plan
from raddle.planning.policy import Policy
from raddle_operator.cli import cluster, main, topology

POLICY = """\
apiVersion: raddle.dev/v1alpha1
kind: InferenceThreading
metadata: {name: resnet}
spec:
  podSelector:
    matchLabels: {app: resnet}
  placement: {affinity: PerCore}
"""
POD = """\
apiVersion: v1
kind: Pod
metadata:
  name: resnet
  labels: {app: resnet}
spec:
  containers:
    - name: serve
      image: registry.example/resnet:1
      resources:
        limits: {cpu: "8", memory: 1Gi}
        requests: {cpu: "8", memory: 1Gi}
"""
SIDECAR = """\
    - name: sidecar
      image: registry.example/sidecar:1
      resources:
        limits: {cpu: "2", memory: 1Gi}
        requests: {cpu: "2", memory: 1Gi}
"""
FILES = ("-f", "policy.yaml", "-f", "pod.yaml")


@pytest.fixture
def run(tmp_path, monkeypatch):
    """run("-o", "json", files={"a.yaml": text}): the result of `raddle topology` in a folder of these files."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments, files=None, env=None):
        for name, text in {"policy.yaml": POLICY, "pod.yaml": POD, **(files or {})}.items():
            (tmp_path / name).write_text(text)
        # A recorded machine's own cgroup must not decide what these tests see.
        return CliRunner(env={"COLUMNS": "80", **(env or {})}).invoke(main, ["topology", *arguments])

    return call


def root(name):
    return "--root", str(machines.path(name))


@pytest.mark.parametrize("name", ["2s16c32t", "1s2n4l3-8c16t", "hybrid-6p8e-20t", "2s3n-8c16t-memory"])
def test_a_machine_is_drawn(run, golden, name):
    result = run(*root(name))
    assert result.exit_code == 0, result.output
    golden(f"topology-{name}.txt", result.stdout)


def test_a_pipe_gets_80_columns_without_colours_and_columns_sets_others(run):
    lines = run(*root("2s16c32t"), env={"COLUMNS": ""}).stdout.splitlines()
    assert max(map(len, lines)) <= 80
    assert "\x1b" not in "".join(lines)
    wide = run(*root("2s16c32t"), env={"COLUMNS": "120"}).stdout.splitlines()
    assert 80 < max(map(len, wide)) <= 120


def test_colours_are_for_terminals_and_no_color_turns_them_off(run):
    assert "\x1b[" in run(*root("2s16c32t"), env={"FORCE_COLOR": "1", "TERM": "xterm"}).stdout
    without = run(*root("2s16c32t"), env={"FORCE_COLOR": "1", "TERM": "xterm", "NO_COLOR": "1"}).stdout
    assert "\x1b[3" not in without


def test_without_utf_8_it_is_ascii():
    result = CliRunner(charset="ascii", env={"COLUMNS": "80"}).invoke(main, ["topology", *root("2s16c32t")])
    assert result.exit_code == 0, result.output
    assert "+ socket 0 - NUMA node 0" in result.stdout


def test_svg_goes_to_standard_output(run):
    svg = ET.fromstring(run(*root("2s16c32t"), "-o", "svg").stdout)
    assert svg.tag == "{http://www.w3.org/2000/svg}svg"


def test_a_pool_on_given_cpus_is_drawn_without_a_manifest(run, golden):
    golden("topology-exclusive.txt", run(*root("2s16c32t"), "--exclusive", "4-17").stdout)


def test_a_workload_of_manifests_is_drawn_on_the_cpus_that_it_may_get(run, golden):
    golden("topology-manifests.txt", run(*root("2s16c32t"), *FILES, "--exclusive", "4-11").stdout)


def test_without_cpus_a_workload_is_drawn_beside_the_machine(run, golden):
    result = run(*root("2s16c32t"), *FILES, files={"pod.yaml": POD + SIDECAR})
    golden("topology-unplaced.txt", result.stdout)


def test_one_container_can_be_chosen(run):
    shown = run(*root("2s16c32t"), *FILES, "--container", "sidecar", files={"pod.yaml": POD + SIDECAR}).stdout
    assert "container sidecar" in shown
    assert "container serve" not in shown


@pytest.mark.parametrize("form", ["json", "yaml"])
def test_json_and_yaml_are_the_document_whatever_is_drawn(run, form):
    assert run(*root("2s16c32t"), "-o", form).stdout == run(*root("2s16c32t"), *FILES, "-o", form).stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--root", "."), "no online CPU found"),
        ((*root("2s16c32t"), "--node", "worker-7"), "--root and --node exclude each other"),
        (("--pod", "a", "-f", "pod.yaml"), "--pod and --filename exclude each other"),
        (("--namespace", "models"), "--namespace needs --pod"),
        (("--context", "here"), "--context needs --node or --pod"),
        (("--container", "serve"), "--container needs --pod or --filename or --exclusive"),
        ((*root("2s16c32t"), "--exclusive", "7-4"), "--exclusive: CPU range '7-4' runs backwards"),
        ((*root("2s16c32t"), "--exclusive", "99"), "CPUs 99 are not online"),
        ((*root("2s16c32t"), *FILES, "--exclusive", "0-2"), "container serve asks for 8 CPUs for itself; 3 are given"),
        ((*root("2s16c32t"), *FILES, "--container", "nobody"), "container nobody has no plan; there are serve"),
        ((*root("2s16c32t"), "-f", "policy.yaml"), "no workload in the files gets a plan"),
    ],
)
def test_what_cannot_be_drawn_is_said_in_a_line_with_exit_code_two(run, arguments, message):
    result = run(*arguments)
    assert result.exit_code == 2
    assert message in result.stderr


def test_which_container_gets_the_cpus_must_be_clear(run):
    result = run(*root("2s16c32t"), *FILES, "--exclusive", "0-7", files={"pod.yaml": POD + SIDECAR})
    assert result.exit_code == 2
    assert "--exclusive is for one container; choose one: serve, sidecar" in result.stderr


def test_a_file_that_cannot_be_read_is_told_below_the_picture(run, tmp_path):
    machine = machines.write(machines.synthesize(sockets=1, numa_nodes=1, l3_domains=1, cores=2), tmp_path)
    (machine / "sys/devices/system/cpu/cpu1/topology/core_cpus_list").write_text("nonsense")
    (machine / "sys/devices/system/cpu/cpu1/topology/thread_siblings_list").write_text("nonsense")
    result = run("--root", str(machine))
    assert result.exit_code == 0
    assert "problem  sys/devices/system/cpu/cpu1/topology/core_cpus_list" in result.stdout


def world(*, annotations=None, machine=None, node="worker-7"):
    metadata = {"name": "resnet-7d9f", "annotations": annotations or {}}
    pod = {"metadata": metadata, "spec": {"nodeName": node} if node else {}}
    return cluster.Snapshot(pod=pod, namespace="models", namespace_labels={}, policies=(), machine=machine)


def test_a_pod_is_drawn_on_its_node_by_the_plan_that_it_carries():
    text = wire.plan_text(plan(of_size(32), Budget(quota_cpus=4.0), Policy()), Budget(quota_cpus=4.0), Policy(), "p")
    seen = topology.of_snapshot(world(annotations={env.PLAN_PREFIX + "serve": text}, machine=of_size(32)))
    assert seen.machine == of_size(32)
    assert {name: one.values["intraOp"] for name, one in seen.plans.items()} == {"serve": 4}


@pytest.mark.parametrize(
    ("found", "message"),
    [
        (world(), "node worker-7 has no NodeCPUTopology that can be read"),
        (world(node=None), "it is not bound to a node yet"),
        (world(machine=of_size(2)), "pod resnet-7d9f has no plan; `raddle explain resnet-7d9f` says why"),
        (world(machine=of_size(2), annotations={env.PLAN_PREFIX + "serve": "{"}), "plan.raddle.dev/serve: "),
    ],
)
def test_a_pod_that_cannot_be_drawn_says_why(found, message):
    with pytest.raises(click.ClickException, match=message):
        topology.of_snapshot(found)

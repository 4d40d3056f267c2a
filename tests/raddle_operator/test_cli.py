"""The `raddle` command as people use it: what it prints, its exit codes, and errors that name file, line and field."""

import io
import json
import os
import signal
import subprocess
import sys
import textwrap
from dataclasses import fields, replace
from pathlib import Path

import click
import pytest
import yaml
from click.testing import CliRunner
from rich.console import Console
from support import tunings
from support.injections import KNOWN, inject

import machines
from cluster import objects
from generate import chart
from raddle import delivery, env
from raddle.cpus.topology import Machine
from raddle.machine import sysfs
from raddle.planning.policy import WITHOUT_SHIM
from raddle_operator.agent.settings import AgentSettings
from raddle_operator.cli import COMMANDS, cluster, explain, main, manifests, processes, why
from raddle_operator.controller.settings import ControllerSettings
from raddle_operator.objects.policy import policy_from_object
from raddle_operator.results.candidate import Candidate
from raddle_operator.webhook.settings import WebhookSettings

POLICY = """\
apiVersion: raddle.dev/v1alpha1
kind: InferenceThreading
metadata:
  name: resnet
spec:
  podSelector:
    matchLabels: {app: resnet}
"""
DEPLOYMENT = """\
apiVersion: apps/v1
kind: Deployment
metadata:
  name: resnet
spec:
  template:
    metadata:
      labels: {app: resnet}
    spec:
      containers:
        - name: serve
          image: registry.example/resnet:1
          resources:
            limits: {cpu: "12"}
"""


TUNED_FOR = machines.path("2s16c32t")
ON_MACHINE = ("--machine", str(TUNED_FOR))


@pytest.fixture
def run(tmp_path, monkeypatch):
    """run("plan", ..., files={"a.yaml": text}): the command's result, with the files in the current folder."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments, files=None, stdin=None):
        for name, text in (files or {}).items():
            (tmp_path / name).write_text(text)
        return CliRunner().invoke(main, arguments, input=stdin)

    return call


def plan(run, *arguments, policy=POLICY, deployment=DEPLOYMENT, files=None):
    files = files or {"policy.yaml": policy, "deployment.yaml": deployment}
    sources = [part for name in files for part in ("-f", name)]
    return run("plan", *sources, *arguments, files=files)


def planned(run, *arguments, **files):
    """The only container of `plan -o json`, and its workload."""
    (workload,) = json.loads(plan(run, "-o", "json", *arguments, **files).stdout)
    (container,) = workload["containers"]
    return container, workload


def created(run, *arguments, **files):
    """The pod of `plan -o yaml`."""
    (pod,) = yaml.safe_load_all(plan(run, "-o", "yaml", *arguments, **files).stdout)
    return pod


def test_plan_prints_each_container_with_its_number_and_the_reason(run):
    result = plan(run)
    assert result.exit_code == 0
    line = next(line for line in result.stdout.splitlines() if line.startswith("deployment/resnet"))
    assert line.split()[:5] == ["deployment/resnet", "serve", "12", "11", "1"]
    assert line.rstrip().endswith("limits.cpu 12")
    assert "safe values" in result.stdout


def test_plan_for_a_machine_gives_that_machines_numbers(run):
    container, workload = planned(run, *ON_MACHINE)
    assert container["values"]["intraOp"] == 12
    assert container["values"]["intraOpWithoutShim"] == 11
    assert container["because"]["intraOp"] == "limits.cpu 12"
    assert container["because"]["intraOpWithoutShim"] == "limits.cpu 12; spinning not controlled"
    assert container["node"] == str(TUNED_FOR)
    assert workload["governedBy"] == "InferenceThreading/resnet"


def test_plan_advises_how_many_instances_fill_the_cpus_for_throughput(run):
    policy = POLICY + "  objective: Throughput\n"
    advice = "advice deployment/resnet serve: instances x threads that fill its CPUs: 3 x 4 (4 cores per instance)"
    assert advice in plan(run, policy=policy).stdout.splitlines()
    container, _ = planned(run, *ON_MACHINE, policy=policy)
    assert container["values"]["layout"] == {"workers": 3, "threads": 4}
    assert container["because"]["layout"] == "4 cores per instance, none spans two L3 domains"
    assert "advice" not in plan(run).stdout


TUNING_LINE = "intraOp 3, slowest tenth -18.0 % [-23.0, -12.0] on "


def tuning_files(spec="  tuning: resnet\n", **key):
    """A policy that names a tuning, its workload, and the tuning with a result for that machine."""
    found = tunings.summary(sysfs.read_machine(str(TUNED_FOR)), key={"limit_cpus": 12.0, **key})
    workload = {"kind": "Deployment", "name": "resnet"}
    of_class = tunings.of_class(found, image="registry.example/resnet:1")
    tuning = tunings.with_status(of_class, name="resnet", namespace="default", workload=workload)
    return {"policy.yaml": POLICY + spec, "deployment.yaml": DEPLOYMENT, "tuning.yaml": yaml.safe_dump(tuning)}


@pytest.mark.parametrize("spec", ["  tuning: resnet\n", "  tuning: Auto\n"])
def test_plan_follows_the_tuning_that_is_among_the_files(run, spec):
    result = plan(run, *ON_MACHINE, files=tuning_files(spec))
    assert f"tuning deployment/resnet serve: tuned: {TUNING_LINE}" in result.stdout
    container, _ = planned(run, *ON_MACHINE, files=tuning_files(spec))
    assert (container["values"]["intraOp"], container["tuned"]) == (3, "resnet")
    assert container["because"]["tuned"].startswith(TUNING_LINE)


def test_plan_says_why_a_tuning_does_not_hold(run):
    said = "tuning deployment/resnet serve: not tuned: "
    result = plan(run, *ON_MACHINE, files=tuning_files(limit_cpus=2.0))
    reason = "InferenceTuning resnet: the CPU limit is 12 CPUs, but the tuning is for 2 CPUs"
    assert said + reason in result.stdout.splitlines()
    assert said + "the node is not known yet" in plan(run, files=tuning_files()).stdout.splitlines()
    files = tuning_files()
    del files["tuning.yaml"]
    result = plan(run, *ON_MACHINE, files=files)
    assert said + "there is no InferenceTuning resnet in namespace default" in result.stdout.splitlines()


def test_a_tuning_among_the_files_that_is_none_is_refused_with_its_line(run):
    files = {**tuning_files(), "tuning.yaml": tuning_files()["tuning.yaml"].replace("Better", "Fine")}
    result = plan(run, files=files)
    assert result.exit_code == 2
    assert "status.classes[0].verdict: 'Fine' is not allowed" in result.stderr


def test_plan_for_a_topology_file_needs_no_recorded_machine(run, tmp_path):
    spec = {"cpus": {"online": "0-3"}, "cores": ["0,2", "1,3"]}
    kind = {"apiVersion": "raddle.dev/v1alpha1", "kind": "NodeCPUTopology"}
    (tmp_path / "node.yaml").write_text(yaml.safe_dump({**kind, "metadata": {"name": "n1"}, "spec": spec}))
    assert planned(run, "--machine", "node.yaml")[0]["values"]["intraOp"] == 2


def test_plan_as_yaml_is_the_pod_that_would_be_created(run):
    pod = created(run)
    assert pod["kind"] == "Pod"
    shim = env.decode(pod["metadata"]["annotations"][env.SHIM_PREFIX + "serve"])
    assert (shim["intra_op"], shim["intra_op_without_shim"]) == (12, 11)
    assert [entry["name"] for entry in pod["spec"]["containers"][0]["env"]] == [env.PLAN, env.LITERALS]


@pytest.mark.parametrize(
    ("kind", "wrap"),
    [
        ("Pod", lambda template: template),
        ("StatefulSet", lambda template: {"spec": {"template": template}}),
        ("Job", lambda template: {"spec": {"template": template}}),
        ("CronJob", lambda template: {"spec": {"jobTemplate": {"spec": {"template": template}}}}),
    ],
)
def test_plan_reads_every_kind_of_workload(run, kind, wrap):
    template = yaml.safe_load(DEPLOYMENT)["spec"]["template"]
    body = wrap(template)
    body.setdefault("metadata", {})["name"] = "it"
    workload = yaml.safe_dump({"apiVersion": "v1", "kind": kind, **body})
    container, _ = planned(run, files={"all.yaml": f"{POLICY}---\n{workload}"})
    assert container["values"]["intraOp"] == 12


def test_plan_says_why_a_workload_gets_nothing(run):
    result = plan(run, deployment=DEPLOYMENT.replace("app: resnet", "app: other"))
    assert result.exit_code == 0
    assert "NoPolicy" in result.stdout


def test_plan_says_that_a_policy_is_in_another_namespace(run):
    elsewhere = POLICY.replace("  name: resnet\n", "  name: resnet\n  namespace: models\n")
    result = plan(run, policy=elsewhere)
    assert "deployment/resnet is in namespace default, the policies are in models" in result.stdout
    assert "is in namespace" not in plan(run).stdout


def test_plan_respects_a_namespace_that_is_not_opted_in(run):
    namespace = "apiVersion: v1\nkind: Namespace\nmetadata: {name: default}\n"
    result = plan(run, files={"all.yaml": f"{POLICY}---\n{namespace}---\n{DEPLOYMENT}"})
    assert "OptedOut" in result.stdout


OBSERVED = "observe: Runs\n  load: {source: Observed}\n"


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ("load: {runTime: 2s, requestsPerSecond: 0.5}\n", "load: runs of 2000 ms at 0.5/s"),
        ("load: {runTime: 2s, requestsPerSecond: 1}\n", "load: runs of 2000 ms at 1/s"),
        (OBSERVED, "no load observed yet"),
        (
            f"{OBSERVED}status:\n  load: {{runTime: 33ms, requestsPerSecond: 10, containers: 3}}\n",
            "observed load: runs of 33 ms at 10/s",
        ),
    ],
)
def test_plan_takes_the_load_that_the_policy_says_or_has_observed(run, spec, reason):
    result = plan(run, policy=f"{POLICY}  {spec}")
    assert result.exit_code == 0, result.stderr
    assert reason in result.stdout


@pytest.mark.parametrize(
    ("spec", "error"),
    [
        ("threads: {intraOp: 0}", "8: spec.threads.intraOp: 0 is not allowed; it must be at least 1"),
        ("load: {requestsPerSecond: 0}", "8: spec.load.requestsPerSecond: 0 is not allowed; it must be above 0"),
        ("threads: {intraOps: 4}", "8: spec.threads.intraOps: no such field; did you mean intraOp?"),
        ("objective: latency", "8: spec.objective: 'latency' is not allowed; it must be one of Latency, Throughput"),
        (
            "threads: {interOp: 2}",
            "8: spec.threads.interOp: 2 is not allowed; it must be 1, or set threads.executionMode: Parallel",
        ),
        ("threads: [", "9: not YAML: "),
    ],
)
def test_a_bad_policy_ends_with_file_line_and_field(run, spec, error):
    result = plan(run, policy=f"{POLICY}  {spec}\n")
    assert result.exit_code == 2
    assert f"policy.yaml:{error}" in result.stderr


@pytest.mark.parametrize(
    ("files", "error"),
    [
        ({"a.yaml": "just text"}, "a.yaml:1: kind: this document is not a Kubernetes object"),
        ({"a.yaml": POLICY}, "the files hold no workload"),
        ({"a.yaml": "kind: Deployment\nspec: {}\n"}, "a.yaml:2: template.spec: is missing or no mapping"),
        ({"a.yaml": "kind: Pod\nmetadata: [1]\nspec: {}\n"}, "a.yaml:2: metadata: is not a mapping"),
        (
            {"a.yaml": "kind: Pod\nspec:\n  containers: x\n"},
            "a.yaml:3: spec.containers: is of type str, must be a list",
        ),
        (
            {"a.yaml": DEPLOYMENT.replace("{app: resnet}", "[1]")},
            "a.yaml:8: template.metadata.labels: is of type list, must be an object",
        ),
        (
            {"a.yaml": DEPLOYMENT.replace('"12"', "twelve")},
            "a.yaml:14: template.spec.containers[0].resources.limits.cpu: 'twelve' is not a quantity",
        ),
        ({"a.yaml": POLICY.replace("  name: resnet\n", "") + "---\n" + DEPLOYMENT}, "metadata.name: must have 1 to 63"),
    ],
)
def test_bad_files_end_with_exit_code_two(run, files, error):
    result = plan(run, files=files)
    assert result.exit_code == 2
    assert error in result.stderr.replace("spec.template", "template")


def test_a_workload_and_a_namespace_without_metadata_are_planned_for_all_the_same(run):
    pod = "kind: Pod\nmetadata: null\nspec: {containers: [{name: serve}]}\n"
    result = plan(run, files={"policy.yaml": POLICY, "pod.yaml": pod, "namespace.yaml": "kind: Namespace\n"})
    assert result.exit_code == 0
    assert "NoPolicy" in result.stdout


def test_a_missing_file_is_named(run):
    result = run("plan", "-f", "nowhere.yaml")
    assert (result.exit_code, "nowhere.yaml: can't be read: No such file or directory" in result.stderr) == (2, True)


def test_manifests_come_from_standard_input_and_lists_are_taken_apart(run):
    items = [yaml.safe_load(POLICY), yaml.safe_load(DEPLOYMENT)]
    result = run("plan", "-f", "-", "-o", "json", stdin=yaml.safe_dump({"kind": "List", "items": items}))
    assert result.exit_code == 0
    assert json.loads(result.stdout)[0]["governedBy"] == "InferenceThreading/resnet"


def test_lines_are_found_in_nested_lists():
    text = textwrap.dedent("""\
        kind: Pod
        spec:
          containers:
            - name: a
            - name: b
              image: x
        """)
    (manifest,) = manifests._parse("pod.yaml", text)
    assert manifest.line("spec.containers[1].image") == 6
    assert manifest.line("spec.containers[1].missing.deeper") == 5


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself(run, command):
    result = run(command, "--help")
    assert result.exit_code == 0
    assert "Usage: main" in result.stdout


SETTINGS = [
    ("controller", ControllerSettings(identity="a"), ["--identity=a"]),
    ("webhook", WebhookSettings(tls_dir=Path("/tls")), []),
    ("agent", AgentSettings(node_name="a", root=Path("/")), ["--node-name=a"]),
]


@pytest.mark.parametrize(("command", "settings", "_"), SETTINGS, ids=[command for command, *_ in SETTINGS])
def test_every_option_of_a_process_is_a_field_of_its_settings(command, settings, _):
    with click.Context(main) as context:
        options = {parameter.name for parameter in main.get_command(context, command).params}
    assert options - {"log_level", "namespace"} <= {field.name for field in fields(settings)}


@pytest.mark.parametrize(("command", "settings", "arguments"), SETTINGS, ids=[command for command, *_ in SETTINGS])
def test_an_option_that_is_not_given_is_what_the_settings_say(command, settings, arguments):
    with click.Context(main) as context:
        given = main.get_command(context, command).make_context(command, arguments).params
    given = {name: None if value == "None" else value for name, value in given.items()}  # the word for no level
    names = [field.name for field in fields(settings) if field.name in given]
    assert {name: given[name] for name in names} == {name: getattr(settings, name) for name in names}


@pytest.mark.parametrize(
    ("arguments", "wrong"),
    [
        (("cronjob/x",), "names a cronjob, which owns no pods that can be selected: use daemonset, deployment"),
        (("deployment/",), "lacks a name after the slash"),
        (("deployment/x", "-l", "app=x"), "name an object, or select pods"),
    ],
)
def test_explain_refuses_what_names_no_pods_with_the_reason(run, arguments, wrong):
    result = run("explain", *arguments)
    assert result.exit_code == 2
    assert wrong in " ".join(result.stderr.split())


@pytest.mark.parametrize("command", [("webhook",), ("agent", "--node-name", "n1"), ("explain", "pod/x")])
def test_no_way_to_the_cluster_is_one_line_and_exit_code_one(run, tmp_path, monkeypatch, command):
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "nowhere"))
    result = run(*command)
    assert (result.exit_code, result.stderr.count("\n")) == (1, 1)
    assert result.stderr.startswith("Error: ")


@pytest.mark.parametrize("state", ["disabled", "labelled", "enabled"])
def test_explain_takes_an_unlabelled_namespace_for_what_the_installed_webhook_does(state):
    rendered = chart.objects({"injection": {"default": state}})
    (configuration,) = [item for item in rendered if item["kind"] == "MutatingWebhookConfiguration"]
    assert configuration["metadata"]["name"] == cluster.CONFIGURATION
    assert cluster.unlabelled_in(configuration) == state


RESNET = policy_from_object({**yaml.safe_load(POLICY), "metadata": {"name": "resnet", "namespace": "default"}})
DEFAULT = {"namespace": "default", "namespace_labels": {env.INJECT_LABEL: "enabled"}, "policies": (RESNET,)}


@pytest.mark.parametrize(
    ("limits", "node", "reason"),
    [
        ({"cpu": "2"}, None, "WebhookMissed"),
        ({}, Machine(online=0b11, cores=(1, 2)), "WebhookMissed"),
        ({}, None, "NoCPUBound"),
    ],
)
def test_explain_calls_a_pod_without_a_limit_missed_where_its_node_is_known(limits, node, reason):
    serve = {"name": "serve", "image": "x", "resources": {"limits": limits}}
    pod = objects.pod(serve, name="a", labels={"app": "resnet"}, **({"nodeName": "n1"} if node else {}))
    assert why.why_not(cluster.Snapshot(pod=pod, machine=node, **DEFAULT)).reason == reason


def test_explain_shows_literals_and_what_a_container_does_not_get(run):
    closed = DEPLOYMENT.replace("labels: {app: resnet}", "labels: {app: resnet, raddle.dev/door: closed}")
    snapshot = cluster.Snapshot(pod=created(run, deployment=closed), **DEFAULT)
    (found,) = why.explained(snapshot)
    assert found.variables["KMP_BLOCKTIME"] == "1"
    assert [str(skip.reason) for skip in found.withheld] == ["DoorClosed"]
    assert found.withheld[0].detail.endswith(WITHOUT_SHIM)
    document = explain._document(snapshot)
    assert yaml.safe_load(yaml.safe_dump(document))["containers"][0]["withheld"][0]["reason"] == "DoorClosed"
    del snapshot.pod["metadata"]["annotations"]
    assert why.explained(snapshot) == []


X86, BOTH = frozenset({"x86_64"}), frozenset({"x86_64", "aarch64"})


@pytest.mark.parametrize(
    ("door", "architectures", "reasons"),
    [
        (True, X86, []),
        (True, BOTH, []),
        (True, frozenset(), []),
        (False, BOTH, ["ArchitectureUnknown"]),
        (False, X86, ["DoorClosed"]),
    ],
)
def test_explain_says_of_the_door_what_the_pod_has_and_why_it_may_have_been_closed(
    run, monkeypatch, door, architectures, reasons
):
    pod = created(run)
    (container,) = pod["spec"]["containers"]
    pod["spec"]["nodeName"] = "n1"
    if not door:
        del container["volumeMounts"], pod["spec"]["volumes"]
    machine = Machine(online=0b11, cores=(1, 2), architecture="x86_64")
    snapshot = cluster.Snapshot(pod=pod, machine=machine, architectures=architectures, **DEFAULT)
    # As `pipx install` of a checkout has it: the operator's image has the native shims, not the user's machine.
    monkeypatch.setattr(delivery, "architectures", lambda: ())
    (found,) = why.explained(snapshot)
    assert [str(skip.reason) for skip in found.withheld] == reasons


@pytest.mark.parametrize("width", [80, 200])
def test_explain_prints_the_variables_of_runtimes_and_raddle_s_own_only_when_asked(run, width):
    pod = created(run)
    pod["metadata"]["name"] = "resnet-7d9f"
    snapshot = cluster.Snapshot(pod=pod, namespace="default", namespace_labels={}, policies=())
    printed = {}
    for wide in (False, True):
        text = io.StringIO()
        explain.show(Console(file=text, width=width), snapshot, wide=wide)
        printed[wide] = text.getvalue().splitlines()
    assert "  OMP_NUM_THREADS=12" in printed[False]
    assert not [line for line in printed[False] if "RADDLE_" in line]
    own = {f"  RADDLE_PLAN={snapshot.annotations['shim.raddle.dev/serve']}"}
    assert set(printed[True]) - set(printed[False]) == own


@pytest.mark.parametrize(
    ("later", "stale_against"),
    [("", None), ("  priority: 5\n", None), ("  threads: {intraOp: 1}\n", "InferenceThreading/resnet")],
)
def test_explain_names_the_policy_whose_settings_are_others_now(run, later, stale_against):
    pod = created(run)
    now = {**yaml.safe_load(POLICY + later), "metadata": {"name": "resnet", "namespace": "default"}}
    snapshot = cluster.Snapshot(pod=pod, **{**DEFAULT, "policies": (policy_from_object(now),)})
    assert why.changed_since(snapshot) == stale_against
    snapshot.pod["metadata"]["labels"] = {"app": "another"}
    assert why.changed_since(snapshot) is None


def tuned_snapshot(run, image_id="", **key):
    """A pod that follows a tuning, in a cluster where it has found something since; its node tells the image's digest."""
    files = tuning_files(image="sha256:1a")
    pod = created(run, *ON_MACHINE, files=files)
    pod["status"] = {"containerStatuses": [{"name": "serve", "imageID": image_id}]}
    now = yaml.safe_load(tuning_files(**{"image": "sha256:1a", **key})["tuning.yaml"])
    machine = sysfs.read_machine(str(TUNED_FOR))
    made = {"namespace": "default", "namespace_labels": {}, "policies": (), "machine": machine}
    return cluster.Snapshot(pod=pod, tunings=tunings.by_name(now), **made)


@pytest.mark.parametrize(
    ("changes", "now"),
    [
        ({}, None),
        ({"image_id": "registry.example/resnet@sha256:1a"}, None),
        (
            {"image_id": "registry.example/resnet@sha256:77"},
            "not tuned: InferenceTuning resnet: the image is sha256:77, but the tuning is for sha256:1a",
        ),
        (
            {"limit_cpus": 8.0},
            "not tuned: InferenceTuning resnet: the CPU limit is 12 CPUs, but the tuning is for 8 CPUs",
        ),
    ],
)
def test_explain_quotes_the_tuning_and_says_when_it_no_longer_fits(run, changes, now):
    snapshot = tuned_snapshot(run, **changes)
    text = io.StringIO()
    explain.show(Console(file=text, width=200), snapshot, wide=False)
    assert f"  tuned: {TUNING_LINE}" in text.getvalue()
    assert (f"  Now: {now}" in text.getvalue()) is (now is not None)
    document = explain._document(snapshot)
    assert document["tunedNow"] == ({"serve": now} if now else {})
    assert document["containers"][0]["tuned"] == "resnet"


def test_explain_compares_the_runtimes_version_where_a_process_has_said_it(run):
    snapshot = tuned_snapshot(run)
    now = "not tuned: InferenceTuning resnet: onnxruntime is 1.30.0, but the tuning is for 1.23.2"
    assert explain._document(snapshot, {"serve": ("onnxruntime", "1.30.0")})["tunedNow"] == {"serve": now}
    assert explain._document(snapshot, {"serve": ("onnxruntime", "1.23.2")})["tunedNow"] == {}


def test_explain_of_a_pod_that_was_created_for_its_node_counts_what_it_was_given():
    machine = sysfs.read_machine(str(TUNED_FOR))
    won = tunings.summary(
        machine, winner=Candidate.of({"threads.spinning": "Never"}), key={"runtime": "torch", "runtime_version": ""}
    )
    owner = {"kind": "StatefulSet", "name": "ranker", "controller": True}
    workload = {"kind": "StatefulSet", "name": "ranker"}
    found = tunings.by_name(tunings.with_status(tunings.of_class(won), workload=workload))
    obj = objects.pod(objects.container(cpu="4", image=tunings.SERVED_IMAGE), name="ranker-0", nodeName="n1")
    obj["metadata"]["ownerReferences"] = [owner]
    pod, _ = inject(obj, {"tuning": "ranker"}, facts=replace(KNOWN, machines={"n1": machine}, tunings=found))
    made = {"namespace": "ns", "namespace_labels": {}, "policies": (), "machine": machine}
    document = explain._document(cluster.Snapshot(pod=pod, tunings=found, **made))
    assert document["containers"][0]["because"]["tuned"].startswith("spinning Never, slowest tenth")
    assert document["containers"][0]["variables"]["OMP_WAIT_POLICY"] == "PASSIVE"
    assert document["tunedNow"] == {}


def test_explain_does_not_guess_where_nobody_may_look_at_tunings(run):
    snapshot = replace(tuned_snapshot(run, limit_cpus=8.0), tunings=None)
    assert explain._document(snapshot)["tunedNow"] == {}


@pytest.mark.parametrize(("limit", "resized"), [("12", None), ("12000m", None), ("500m", 0.5), (None, None)])
def test_explain_says_when_a_container_was_resized_since_it_was_planned(run, limit, resized):
    pod = created(run)
    pod["spec"]["containers"][0]["resources"]["limits"] = {"cpu": limit} if limit else {}
    snapshot = cluster.Snapshot(pod=pod, namespace="default", namespace_labels={}, policies=())
    (found,) = why.explained(snapshot)
    assert why.resized_to(snapshot, found) == resized
    assert explain._document(snapshot)["resizedTo"] == ({"serve": resized} if resized else {})


def test_plan_lists_the_literals_that_it_would_set(run):
    container, _ = planned(run, policy=POLICY + "  runtimes: [go]\n")
    assert container["literals"]["GOMAXPROCS"] == "12"


@pytest.mark.parametrize(
    ("missing", "arguments", "package"),
    [
        ("onnx", ["tune", "--help"], "raddle-tuner[cli]"),
        ("scipy", ["tune", "--help"], "raddle-tuner[cli]"),
        ("onnx", ["analyze", __file__], "raddle-tuner[cli]"),
        ("rich", ["plan", "--help"], "raddle[cli]"),
        ("kopf", ["controller", "--namespace", "x"], "raddle[operator]"),
    ],
)
def test_a_command_whose_packages_are_missing_says_what_to_install(missing, arguments, package):
    program = "import sys; sys.modules[sys.argv.pop(1)] = None; from raddle_operator.cli import main; main()"
    command = [sys.executable, "-c", program, missing, *arguments]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    said = f"Error: raddle {arguments[0]} needs {missing}, which is not installed: pip install '{package}'\n"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", said)


@pytest.mark.parametrize("command", ["tune", "result", "analyze", "tuner"])
def test_a_command_of_the_tuner_where_that_is_not_installed_says_how_to_install_it(run, monkeypatch, command):
    monkeypatch.setattr("importlib.metadata.entry_points", lambda **_: ())
    done = run(command, "--help")
    package = "raddle-tuner" if command == "tuner" else "raddle-tuner[cli]"
    said = f"Error: raddle {command} is not installed: pip install '{package}'\n"
    assert (done.exit_code, done.stdout, done.stderr) == (2, "", said)


def test_ctrl_c_while_a_command_is_imported_ends_it_without_a_word(tmp_path):
    os.mkfifo(tmp_path / "importing")
    (tmp_path / "onnx.py").write_text(f"open({str(tmp_path / 'importing')!r}, 'w').close()\nwhile True: pass\n")
    command = [sys.executable, "-c", "from raddle_operator.cli import main; main()", "tune", "--help"]
    process = subprocess.Popen(
        # A shell that starts the tests in the background has them ignore SIGINT.
        ["env", "--default-signal=INT", *command],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    (tmp_path / "importing").read_text()
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=60)[0] == ""
    assert process.returncode == 128 + signal.SIGINT


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", ""),
        ("10.96.0.12:8126", "10.96.0.12:8126"),
        ("fd00::1:8126", "[fd00::1]:8126"),
        ("[fd00::1]:8126", "[fd00::1]:8126"),
        # As the kubelet leaves it where it has not seen the Service.
        ("$(RADDLE_AGENT_SERVICE_HOST):8126", ""),
        ("raddle-agent:8126", ""),
        ("10.96.0.12:0", ""),
        ("10.96.0.12:65536", ""),
        ("10.96.0.12", ""),
    ],
)
def test_an_agents_address_that_is_none_is_said_and_left_out(text, found, capsys):
    assert processes.address(None, None, text) == found
    assert ("shims can't report" in capsys.readouterr().err) is bool(text and not found)

"""An InferenceTuning from beginning to end: applied, measured in a Job's pod, and a new pod runs with its value."""

from __future__ import annotations

import base64
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import click

from cluster import Cluster, objects
from cluster.local_container import problem
from cluster.local_pod import Image, LocalPods
from cluster.local_raddle import LocalRaddle
from cluster.waiting import wait
from demo.__main__ import FAST, console, show, step, stopping, topologies_known
from load import models
from raddle_operator.jobs.run import TUNER, TUNING_LABEL

NAMESPACE: Final = "models"
NODE: Final = "this-machine"
APP: Final = "ranker"
# The limit of the Deployment's container, and what the tuning measures under.
LIMIT: Final = "2"
_IMAGE: Final = "registry.example/ranker:1"
_TUNER_IMAGE: Final = "registry.example/raddle-tuner:1"
_TUNING: Final = f"/apis/raddle.dev/v1alpha1/namespaces/{NAMESPACE}/inferencetunings/{APP}"
_PODS: Final = f"/api/v1/namespaces/{NAMESPACE}/pods"
# The budget of the manifest, what starts take, and the rest.
_WAIT_S: Final = 360.0


@click.command(epilog="\b\nExamples:\n  make demo ARGS=tune\n  make demo ARGS='tune --output /tmp/tuned'")
@click.option(
    "--output", "folder", type=click.Path(path_type=Path), default=Path("build/demo"), show_default=True,
    help="Where the page goes.",
)  # fmt: skip
def main(folder: Path) -> None:
    """Tune a model on a local cluster, from an InferenceTuning to a pod that runs with what was found."""
    why_not = problem()
    if why_not is not None:
        raise click.ClickException(f"pods can't be run here: {why_not}")
    folder.mkdir(parents=True, exist_ok=True)
    with stopping():
        run(folder)


def run(folder: Path) -> None:
    """Runs all steps in order."""
    with ExitStack() as stack:
        with step("Start etcd, the API server, scheduler and controller manager"):
            cluster = stack.enter_context(Cluster(name="raddle-demo-tune"))
        with step("Install the chart with tuning.enabled; this machine is the node, its pods are processes here"):
            raddle = stack.enter_context(
                LocalRaddle(
                    cluster,
                    values={"tuning": {"enabled": True}},
                    controller_options=(*FAST, "--tuning", "--tuner-image", _TUNER_IMAGE),
                    webhook_options=("--tuning",),
                )
            )
            raddle.register_machine(NODE, "/", publish=False)
            raddle.start_agent(NODE)
            wait(lambda: topologies_known(raddle, 1), "the node's topology is known")
            logs = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="raddle-demo-")))
            tunings = stack.enter_context(LocalPods(cluster.new_client, NODE, TUNING_LABEL, images(), logs))
            apps = stack.enter_context(LocalPods(cluster.new_client, NODE, f"app={APP}", images(), logs))
        with step("kubectl apply: a Deployment, its policy with `tuning: Auto`, an InferenceTuning"):
            apply(cluster)
            before = ready(cluster, apps, "")
        console.print(f"    {before}")
        with step("The controller's Job measures candidates on the node, never behind a Service (3 minutes at most)"):
            show(cluster, "get", "inferencetunings,jobs", "-n", NAMESPACE)
            wait(lambda: finished(cluster), "the tuning has a verdict", _WAIT_S)
        show(cluster, "get", "inferencetunings", "-n", NAMESPACE)
        page(next(iter(tunings.pods.values())).log(TUNER), folder)
        with step("kubectl rollout restart deployment/ranker: a new pod asks for its plan"):
            old = app_pod(cluster)["metadata"]["uid"]
            cluster.kubectl("rollout", "restart", f"deployment/{APP}", "-n", NAMESPACE)
            after = ready(cluster, apps, old)
        console.print(f"    before: {before}\n    now:    {after}")
        explain(cluster, app_pod(cluster, old)["metadata"]["name"])
        console.print(f"[bold]==>[/] The page is {folder / 'tuned.html'}.")


def images() -> dict[str, Image]:
    """What the images of the demo's pods would bring: this interpreter with its packages."""
    environment = {
        "PATH": f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    tuner = Image(entrypoint=(sys.executable, "-m", "raddle_operator"), environment=environment)
    return {_IMAGE: Image(environment=environment), _TUNER_IMAGE: tuner}


def apply(cluster: Cluster) -> None:
    """Applies the demo's manifests as a user would, the Deployment once the shim is in its namespace."""
    manifests = Path(__file__).parent / "manifests"
    cluster.kubectl("apply", "-f", str(manifests / "ranker.yaml"))
    path = f"/api/v1/namespaces/{NAMESPACE}/configmaps"
    wait(lambda: cluster.client.get(path, labelSelector="raddle.dev/shim")["items"], "the shim is there")
    with tempfile.TemporaryDirectory() as made:
        model = models.MEDIUM.file(Path(made)).read_bytes()
    program = (Path(__file__).parent / "ranker.py").read_text()
    files = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": APP, "namespace": NAMESPACE},
        "data": {"ranker.py": program},
        "binaryData": {"ranker.onnx": base64.b64encode(model).decode()},
    }
    container = {
        "name": "serve",
        "image": _IMAGE,
        "command": ["python", "/models/ranker.py"],
        "resources": {"limits": {"cpu": LIMIT}, "requests": {"cpu": "100m"}},
        "volumeMounts": [{"name": "files", "mountPath": "/models"}],
    }
    volume = {"name": "files", "configMap": {"name": APP}}
    cluster.client.apply(files)
    cluster.client.apply(objects.deployment(APP, 1, container, namespace=NAMESPACE, volumes=[volume]))
    cluster.kubectl("apply", "-f", str(manifests / "tuning.yaml"))


def app_pod(cluster: Cluster, other_than: str = "") -> dict[str, Any]:
    """The Deployment's pod, {} as long as there is none on the node."""
    result = cluster.client.get(_PODS, labelSelector=f"app={APP}")["items"]
    return next((pod for pod in result if pod["metadata"]["uid"] != other_than and pod["spec"].get("nodeName")), {})


def ready(cluster: Cluster, apps: LocalPods, other_than: str) -> str:
    """What the Deployment's program says when it has loaded the model, in a pod with another UID than this."""

    def ready_message() -> str:
        pod = app_pod(cluster, other_than)
        running = apps.pods.get(pod["metadata"]["uid"]) if pod else None
        lines = running.log("serve").splitlines() if running else []
        return next((line for line in lines if line.startswith("ready: ")), "")

    return wait(ready_message, "the Deployment's program is ready").removeprefix("ready: ")


def finished(cluster: Cluster) -> bool:
    """Whether the tuning has a verdict."""
    return bool(cluster.client.get(_TUNING).get("status", {}).get("verdict"))


def page(log: str, folder: Path) -> None:
    """Shows what the tuner's log says, and writes the page of it."""
    report = folder / "tuned.html"
    console.print(
        f"[bold]$[/] kubectl logs -n {NAMESPACE} -l {TUNING_LABEL} -c {TUNER} | raddle result - --report {report}"
    )
    command = [sys.executable, "-m", "raddle_operator", "result", "-", "--report", str(report)]
    subprocess.run(command, input=log, text=True, check=True)


def explain(cluster: Cluster, pod: str) -> None:
    """Prints `raddle explain` of the pod."""
    command = ["explain", f"pod/{pod}", "-n", NAMESPACE]
    console.print(f"[bold]$[/] kubectl raddle {' '.join(command)}")
    subprocess.run([sys.executable, "-m", "raddle_operator", *command], env=cluster.environment(), check=True)


if __name__ == "__main__":
    main()

"""Starts the cluster and Raddle, applies policies and Deployments, shows what every pod got, then measures one."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, TypeVar

import click
import yaml
from rich.console import Console
from rich.markup import escape

import machines
from cluster import Cluster, DevclusterError
from cluster.local_raddle import LocalRaddle
from cluster.waiting import wait
from demo import deployments, serving, table
from raddle.cpus import cpuset
from raddle.cpus.topology import Kubelet
from raddle.machine import sysfs

NODES = {
    "two-sockets": ("2s16c32t", Kubelet(cpu_manager_policy="static", reserved_cpus=0)),
    "four-caches": ("1s2n4l3-8c16t", Kubelet()),
    "hybrid": ("hybrid-6p8e-20t", Kubelet()),
}
POLICIES = ("clusterinferencethreadings", "inferencethreadings")
WAIT_SECONDS = 60.0
# Status every second: nobody wants to wait the ten of a large cluster here.
FAST = ("--status-interval-s", "1")
T = TypeVar("T")

console = Console(highlight=False, width=None if sys.stdout.isatty() else 160)


@contextmanager
def step(what: str) -> Iterator[None]:
    """Says what is being done, and how long it took."""
    start = time.monotonic()
    console.print(f"[bold]==>[/] {escape(what)}")
    yield
    console.print(f"    [dim]{time.monotonic() - start:.1f} s[/]")


@click.command(epilog="\b\nExamples:\n  make demo\n  make demo ARGS=--no-load\n  DEMO_KEEP=1 make demo")
@click.option("--keep", is_flag=True, envvar="DEMO_KEEP", help="Leave the cluster running until Ctrl-C.")
@click.option("--load/--no-load", default=True, show_default=True, help="Measure a serving process at the end.")
@click.option(
    "--output", "folder", type=click.Path(path_type=Path), default=Path("build/demo"), show_default=True,
    help="Where the chart and the pods' manifests go.",
)  # fmt: skip
@click.option("--write", is_flag=True, help="Put the measured figures and the chart into README.md.")
def main(*, keep: bool, load: bool, folder: Path, write: bool) -> None:
    """Run Raddle's main job from beginning to end on this machine."""
    folder.mkdir(parents=True, exist_ok=True)
    with stopping():
        run(keep=keep, load=load, folder=folder, write=write)


@contextmanager
def stopping() -> Iterator[None]:
    """Ctrl-C and a supervisor's SIGTERM unwind, so that everything that was started is stopped; errors are said."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        yield
    except KeyboardInterrupt:
        console.print("\nStopped.")
        sys.exit(130)
    except DevclusterError as error:
        console.print(f"[red]error[/] {escape(str(error))}")
        sys.exit(1)


def run(*, keep: bool, load: bool, folder: Path, write: bool) -> None:
    """Runs all steps in order."""
    with ExitStack() as stack:
        with step("Start etcd, the API server, scheduler and controller manager"):
            cluster = stack.enter_context(Cluster(name="raddle-demo"))
        with step("Install the chart; start webhook, controller, and the agent of this machine"):
            raddle = stack.enter_context(LocalRaddle(cluster, start=(), controller_options=FAST))
            register_nodes(raddle)
            for process in (raddle.webhook, raddle.controller):
                process.start()
            raddle.start_agent("this-machine")
            for process in (raddle.webhook, raddle.controller):
                process.wait_ready()
            wait(lambda: topologies_known(raddle, len(NODES) + 1), "every node's topology is known")
        show_nodes(cluster)
        with step("kubectl apply: a cluster policy, a namespace's own policy, five Deployments"):
            apply(cluster)
            pods = wait_until_bound(cluster)
        console.print(table.render(pods))
        save(pods, folder)
        wait(lambda: statuses_complete(cluster, len(pods)), "the policies' statuses count all pods")
        show(cluster, "get", "clusterinferencethreadings,inferencethreadings", "--all-namespaces")
        pinned = next(pod for pod in pods if pod["metadata"]["labels"]["app"] == "pinned")
        explain(cluster, pinned)
        if load:
            subject = next(pod for pod in pods if pod["metadata"]["labels"]["app"] == "small")
            with step("Serve: real onnxruntime, with exactly the environment and shim files of the pod of 'small'"):
                rows = serving.run(cluster, subject, folder, console)
            if write:
                serving.write(rows, folder)
        closing(cluster, folder, keep=keep)


def register_nodes(raddle: LocalRaddle) -> None:
    """Registers this machine and the three that the project carries; this machine's agent publishes for itself."""
    raddle.register_machine("this-machine", "/", labels={"shape": "here"}, publish=False)
    for name, (shape, kubelet) in NODES.items():
        labels = {"shape": "big", "cpu-manager": kubelet.cpu_manager_policy}
        raddle.register_machine(name, machines.path(shape), kubelet=kubelet, labels=labels)


def show_nodes(cluster: Cluster) -> None:
    """Prints what the nodes are made of; two were recorded from a kernel in QEMU, the hybrid one written by hand."""
    here = sysfs.read_machine()
    count = cpuset.count(here.online)
    console.print(
        f"    Four nodes: this machine ({count} CPUs, published by a real agent), two recorded from a Linux kernel in"
        " QEMU, and a hybrid one written by hand, which QEMU can't boot."
    )
    show(cluster, "get", "nodecputopologies")


def topologies_known(raddle: LocalRaddle, nodes: int) -> bool:
    """Whether the webhook knows so many nodes, and the controller has compared each with its Node."""
    items = raddle.cluster.client.get("/apis/raddle.dev/v1alpha1/nodecputopologies")["items"]
    fresh = [item for item in items if item.get("status", {}).get("conditions")]
    known = raddle.webhook.metric("raddle_webhook_cache_objects", kind="NodeCPUTopology")
    return bool(len(fresh) == known == nodes)


def apply(cluster: Cluster) -> None:
    """Applies the demo's manifests as a user would, the Deployments once the shim is in their namespace."""
    policies = Path(__file__).parent / "manifests" / "policies.yaml"
    cluster.kubectl("apply", "-f", str(policies))
    path = f"/api/v1/namespaces/{deployments.NAMESPACE}/configmaps"
    wait(lambda: cluster.client.get(path, labelSelector="raddle.dev/shim")["items"], "the shim is there")
    cluster.kubectl("apply", "-f", "-", input=yaml.safe_dump_all(deployments.manifests()))


def wait_until_bound(cluster: Cluster) -> list[dict[str, Any]]:
    """The demo's pods once the scheduler has bound all of them, in the order of the cases."""
    wanted = sum(case[0] for case in deployments.CASES.values())
    path = f"/api/v1/namespaces/{deployments.NAMESPACE}/pods"

    def bound() -> list[dict[str, Any]]:
        pods: list[dict[str, Any]] = cluster.client.get(path)["items"]
        complete = len(pods) == wanted and all(pod["spec"].get("nodeName") for pod in pods)
        return pods if complete else []

    order = list(deployments.CASES)
    return sorted(
        wait(bound, f"{wanted} pods are bound"),
        key=lambda pod: (order.index(pod["metadata"]["labels"]["app"]), pod["spec"]["nodeName"]),
    )


def statuses_complete(cluster: Cluster, pods: int) -> bool:
    """Whether the policies' statuses count all pods."""
    base = "/apis/raddle.dev/v1alpha1"
    policies = [item for kind in POLICIES for item in cluster.client.get(f"{base}/{kind}")["items"]]
    return bool(sum(policy.get("status", {}).get("injectedPods", 0) for policy in policies) == pods)


def show(cluster: Cluster, *arguments: str) -> None:
    """Prints a kubectl command and what it says."""
    console.print(f"[bold]$[/] kubectl {' '.join(arguments)}")
    print(cluster.kubectl(*arguments).stdout)


def explain(cluster: Cluster, pod: dict[str, Any]) -> None:
    """Prints `raddle explain` of a pod."""
    arguments = ["explain", f"pod/{pod['metadata']['name']}", "-n", pod["metadata"]["namespace"]]
    console.print(f"[bold]$[/] kubectl raddle {' '.join(arguments)}")
    command = [sys.executable, "-m", "raddle_operator", *arguments]
    done = subprocess.run(command, env=cluster.environment(), capture_output=True, text=True, check=False)
    print(done.stdout or done.stderr)


def save(pods: list[dict[str, Any]], folder: Path) -> None:
    """Writes the pods as they are in the cluster, for looking at."""
    (folder / "pods.json").write_text(json.dumps(pods, indent=2))


def closing(cluster: Cluster, folder: Path, *, keep: bool) -> None:
    """Says where things are; with `keep` it waits for Ctrl-C."""
    console.print(
        f"[bold]==>[/] The chart is {folder / 'load.svg'}, the pods as the cluster has them {folder / 'pods.json'}."
    )
    if not keep:
        console.print("    To look around: DEMO_KEEP=1 make demo, then kubectl with the KUBECONFIG it prints.")
        return
    directory = shutil.copy(cluster.kubeconfig, Path(tempfile.gettempdir()) / "raddle-demo.kubeconfig")
    console.print(f"    The cluster goes on until Ctrl-C. To look around:\n      export KUBECONFIG={directory}")
    console.print(f"      PATH={cluster.environment()['PATH'].split(os.pathsep)[0]}:$PATH kubectl get pods -n models")
    try:
        signal.pause()
    finally:
        Path(directory).unlink(missing_ok=True)


if __name__ == "__main__":
    main()

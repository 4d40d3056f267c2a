"""Raddle on the cluster as users install it: by Helm, with its processes as pods."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import yaml

from cluster import Cluster
from cluster.namespaces import TOPOLOGIES
from cluster.progress import Progress
from e2e import waiting
from e2e.errors import E2EError
from e2e.settings import HOST
from raddle import __version__

CHART = Path(__file__).resolve().parents[2] / "charts" / "raddle"
NAMESPACE = "raddle-system"
# A minute where nothing else runs.
INSTALL_SECONDS = 900
# The agent asks a kubelet that did not answer again after a minute.
PUBLISHED_SECONDS = 300.0
# On a node of two CPUs, of which one is kept back, a pod that asks for a whole one needs all that may be asked for.
NO_CPU = {"requests": {"cpu": "0"}}
# Emulated CPUs would make the webhook slow.
HERE = {"kubernetes.io/hostname": HOST.name}
VALUES: dict[str, Any] = {
    "image": {"repository": "raddle", "tag": __version__, "pullPolicy": "Never"},
    "controller": {"resources": NO_CPU, "nodeSelector": HERE},
    # As long as may be: a late answer leaves a pod as it is, which says nothing about Raddle on two busy CPUs.
    "webhook": {"resources": NO_CPU, "nodeSelector": HERE, "timeoutSeconds": {"pods": 10, "bindings": 10}},
    "agent": {
        "resources": NO_CPU,
        # To know which processes have a runtime that no shim has spoken of, and what the code sets.
        "watch": "Libraries",
        "datagrams": {"enabled": True},
        # A test waits for a window of two looks.
        "extraEnv": [{"name": "RADDLE_WATCH_INTERVAL", "value": "5"}],
    },
    "tuning": {"enabled": True},
}


def install(cluster: Cluster, agent_image: str, progress: Progress) -> None:
    """Install the chart and wait until its pods are Ready; "" is no image of the agent's own.

    Raises E2EError with what Helm and the pods say.
    """
    values = cluster.directory / "values.yaml"
    values.write_text(yaml.safe_dump({**VALUES, "agent": {**VALUES["agent"], "image": agent_image}}))
    progress.say("helm install raddle: controller, webhook and agent as pods")
    helm = str(cluster.provide_helm())
    arguments = ["install", "raddle", str(CHART), "--namespace", NAMESPACE, "--create-namespace"]
    command = [helm, *arguments, "--values", str(values), "--wait", "--timeout", f"{INSTALL_SECONDS}s"]
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=cluster.environment())
    if done.returncode:
        pods = cluster.kubectl("-n", NAMESPACE, "get", "pods,events", check=False).stdout
        raise E2EError(f"{pods}\nhelm install: {done.stderr.strip()[-600:]}")


def wait_for_topology(cluster: Cluster, node: str, progress: Progress, seconds: float) -> dict[str, Any]:
    """The node's NodeCPUTopology once the agent has put the kubelet's settings in. Raises NotInTimeError."""

    def published() -> dict[str, Any] | None:
        result = cluster.client.get(f"{TOPOLOGIES}/{node}")
        # Without a source the kubelet could not be asked so far, which is tried again.
        return result if result["spec"].get("kubelet", {}).get("source") else None

    return waiting.wait(published, f"the agent has published {node} with its kubelet's settings", seconds, progress)

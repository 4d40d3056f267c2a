"""The Deployment that autoscalers are put on: a server with ONNX Runtime, as a user writes it."""

from __future__ import annotations

import base64
import tempfile
from pathlib import Path
from typing import Any

from cluster import objects
from e2e.images import APP_IMAGE, PYTHON
from load.models import SMALL

SERVER = Path(__file__).with_name("inside") / "serve.py"
PORT = 8080


def ready(pods: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Those that a Service would send requests to."""
    return [
        pod
        for pod in pods
        if "deletionTimestamp" not in pod["metadata"]
        and any(one["type"] == "Ready" and one["status"] == "True" for one in pod["status"].get("conditions", []))
    ]


def files(namespace: str) -> dict[str, Any]:
    """The server and its model, mounted into the application's image."""
    with tempfile.TemporaryDirectory(prefix="raddle-model-") as folder:
        model = base64.b64encode(SMALL.file(Path(folder)).read_bytes()).decode()
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "serve", "namespace": namespace},
        "data": {"serve.py": SERVER.read_text()},
        "binaryData": {"model.onnx": model},
    }


def deployment(name: str, namespace: str, request_m: int, limit_m: int) -> dict[str, Any]:
    """One replica of the server, as a user writes it who thinks of no threads."""
    container = {
        "name": "serve",
        "image": APP_IMAGE,
        "imagePullPolicy": "Never",
        "command": [PYTHON, "/serve/serve.py", "/serve/model.onnx", str(PORT)],
        "resources": {"requests": {"cpu": f"{request_m}m"}, "limits": {"cpu": f"{limit_m}m"}},
        "readinessProbe": {"httpGet": {"path": "/ready", "port": PORT}, "periodSeconds": 2, "timeoutSeconds": 5},
        "volumeMounts": [{"name": "serve", "mountPath": "/serve"}],
    }
    return objects.deployment(
        name,
        1,
        container,
        namespace=namespace,
        automountServiceAccountToken=False,
        terminationGracePeriodSeconds=5,
        volumes=[{"name": "serve", "configMap": {"name": "serve"}}],
    )

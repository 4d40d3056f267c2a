"""A pod's containers as processes of this machine, where no kubelet runs: what `make demo ARGS=tune` and tests look at.

Each is a local_container with the pod's volumes where it mounts them, and the environment that a kubelet would make
(kubelet_env). The pod's status says what a kubelet would say of it.
"""

from __future__ import annotations

import contextlib
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self

from cluster.client import ApiError, Client
from cluster.kubelet_env import expand, mounts, variables, volumes
from cluster.local_container import container
from raddle_operator.objects.quantities import parse
from raddle_operator.objects.times import rfc3339

# As kubelets read of /dev/termination-log, and of the log's end.
_MOST_TERMINATION: Final = 4096
_POLL_S: Final = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """What an image would bring: its entrypoint and its environment."""

    entrypoint: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class _Running:
    container: Mapping[str, Any]
    process: subprocess.Popen[bytes]
    terminated: Path
    started: str


class LocalPod:
    """One pod from its start to `stop`, or to the end of its containers that are no sidecars.

    `images` are by the name that containers have. What a container says goes to `log(container)`.
    """

    def __init__(self, client: Client, pod: Mapping[str, Any], images: Mapping[str, Image], folder: Path) -> None:
        """Describes it; `start` starts it. `client` is its own: it is used in a thread."""
        self._client = client
        self._pod = pod
        self._images = images
        self._folder = folder
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"pod {pod['metadata']['name']}", daemon=True)
        self._path = f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}"
        self.processes: dict[str, int] = {}

    def start(self) -> Self:
        """Starts the containers, without waiting for anything."""
        self._folder.mkdir(parents=True, exist_ok=True)
        self._thread.start()
        return self

    def stop(self) -> None:
        """Kills what still runs."""
        self._ended.set()
        self._thread.join()

    def log(self, container: str) -> str:
        """All that a container has said until now."""
        path = self._folder / f"{container}.log"
        return path.read_text(errors="replace") if path.exists() else ""

    # --- the thread -------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        spec = self._pod["spec"]
        sidecars = [one for one in spec.get("initContainers", []) if one.get("restartPolicy") == "Always"]
        with contextlib.ExitStack() as stack:
            stack.callback(self._client.close)
            root = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="raddle-pod-")))
            root.chmod(0o755)
            made = volumes(self._client, self._pod, root)
            for one in spec.get("initContainers", []):
                if one not in sidecars and self._start(one, made, stack).process.wait() != 0:
                    self._write_status([], [], phase="Failed")
                    return
            beside = [self._start(one, made, stack) for one in sidecars]
            result = [self._start(one, made, stack) for one in spec["containers"]]
            self._write_status(beside, result)
            while any(one.process.poll() is None for one in result):
                if self._ended.wait(_POLL_S) or not self._exists():
                    return
            for one in beside:
                one.process.kill()
                one.process.wait()
            failed = any(one.process.returncode for one in result)
            self._write_status(beside, result, phase="Failed" if failed else "Succeeded")

    def _start(self, spec: Mapping[str, Any], made: Mapping[str, Path], stack: contextlib.ExitStack) -> _Running:
        name = spec["name"]
        image = self._images[spec["image"]]
        terminated = self._folder / f"{name}.terminated"
        terminated.write_text("")
        terminated.chmod(0o666)
        termination = {spec.get("terminationMessagePath", "/dev/termination-log"): terminated}
        limit = spec.get("resources", {}).get("limits", {}).get("cpu")
        environment = {"PATH": "/usr/local/bin:/usr/bin:/bin", **image.environment}
        environment |= variables(self._pod, name, self._client)
        given = [*spec.get("command", []), *spec.get("args", [])]
        program = [*(() if "command" in spec else image.entrypoint), *(expand(one, environment) for one in given)]
        with (self._folder / f"{name}.log").open("ab") as log:
            process = stack.enter_context(
                container(
                    program,
                    environment,
                    cpus=float(parse(limit)) if limit else None,
                    mounts={**termination, **mounts(spec, made)},
                    log=log,
                )
            )
        self.processes[name] = process.pid
        return _Running(spec, process, terminated, _now())

    def _exists(self) -> bool:
        try:
            result = self._client.get(self._path)
        except ApiError:
            return False
        return "deletionTimestamp" not in result["metadata"]

    def _write_status(self, beside: Sequence[_Running], result: Sequence[_Running], phase: str = "Running") -> None:
        now = _now()
        kinds = ("PodScheduled", "PodReadyToStartContainers", "Initialized", "ContainersReady", "Ready")
        ready = ("ContainersReady", "Ready") if phase != "Running" else ()
        conditions = [
            {"type": kind, "status": "False" if kind in ready else "True", "lastTransitionTime": now} for kind in kinds
        ]
        status = {
            "phase": phase,
            "startTime": now,
            "conditions": conditions,
            "initContainerStatuses": list(map(_status, beside)),
            "containerStatuses": list(map(_status, result)),
        }
        with contextlib.suppress(ApiError):  # deleted meanwhile
            self._client.merge(f"{self._path}/status", {"status": status})


def _status(one: _Running) -> dict[str, Any]:
    code = one.process.poll()
    state: dict[str, Any] = {"running": {"startedAt": one.started}}
    if code is not None:
        message = one.terminated.read_text(errors="replace")[:_MOST_TERMINATION]
        ended = {"exitCode": code if code >= 0 else 128 - code, "reason": "Error" if code else "Completed"}
        state = {"terminated": {**ended, "message": message, "startedAt": one.started, "finishedAt": _now()}}
    return {
        "name": one.container["name"],
        "image": one.container["image"],
        "imageID": "",
        "containerID": f"local://{one.process.pid}",
        "ready": code is None,
        "started": code is None,
        "restartCount": 0,
        "state": state,
    }


def _now() -> str:
    return rfc3339(time.time())


class LocalPods:
    """Runs the pods of one node that carry a label, as they are bound to it, until the end of the block."""

    def __init__(
        self, new_client: Callable[[], Client], node: str, selector: str, images: Mapping[str, Image], folder: Path
    ) -> None:
        """Describes it; entering starts to look."""
        self._new_client = new_client
        self._node = node
        self._selector = selector
        self._images = images
        self._folder = folder
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look, name=f"pods of {node}", daemon=True)
        self.pods: dict[str, LocalPod] = {}

    def __enter__(self) -> Self:
        """Starts to look for pods."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Kills all that runs."""
        self._ended.set()
        self._thread.join()
        for pod in self.pods.values():
            pod.stop()

    def _look(self) -> None:
        with self._new_client() as client:
            while not self._ended.wait(_POLL_S):
                for pod in _items(client, self._node, self._selector):
                    uid, name = pod["metadata"]["uid"], pod["metadata"]["name"]
                    if uid not in self.pods:
                        started = LocalPod(self._new_client(), pod, self._images, self._folder / name)
                        self.pods[uid] = started.start()


def _items(client: Client, node: str, selector: str) -> Iterator[dict[str, Any]]:
    query = {"fieldSelector": f"spec.nodeName={node}", "labelSelector": selector}
    for pod in client.get("/api/v1/pods", **query)["items"]:
        if pod["status"].get("phase") == "Pending" and "deletionTimestamp" not in pod["metadata"]:
            yield pod

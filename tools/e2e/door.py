"""Pods that were let in by the door, and whose ConfigMap is then gone or has lost a part when the kubelet mounts it.

A pod is admitted while a gate keeps it from its node. In between its namespace is opted out, so that the controller
does not bring back the ConfigMap, which is taken away or written again. The pod's process must be the one that it is
without Raddle, and may only have a line of the loader's in its log.
"""

from __future__ import annotations

import copy
import functools
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from cluster.waiting import NotInTimeError
from e2e import release, verdict, waiting
from e2e.checks import Check, Lab, Result
from e2e.errors import E2EError
from e2e.guest import PATIENCE_SECONDS
from e2e.images import VENV_IMAGE, VENV_PYTHON
from e2e.pods import STOCK
from e2e.scenarios import HARDENED, HOSTNAME, IN_RESTRICTED
from e2e.settings import GUEST, HOST
from raddle import delivery
from raddle_operator.injection.volumes import SHIM_LABEL, SHIM_VOLUME

GATE: Final = "e2e.raddle.dev/wait"
PODS_SECONDS: Final = 240.0
STEP_SECONDS: Final = 60.0
SETTLED_SECONDS: Final = 2.0
# What glibc's loader says of a library that its file names and that is not there.
COMPLAINT: Final = f"ERROR: ld.so: object '{delivery.LIBRARY}' from {delivery.PRELOAD_FILE} cannot be preloaded"
# What a process is, as far as it can tell itself.
PROGRAM: Final = """
import json, os, sys
descriptors = sorted(os.listdir("/proc/self/fd"))
print(json.dumps({"path": sys.path, "modules": sorted(sys.modules), "arguments": sys.argv, "descriptors": descriptors,
                  "environment": dict(os.environ)}))
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Damage:
    """What is left of the ConfigMap: `keep` says which keys, None: it is gone. `complains`: the loader does, once."""

    name: str
    keep: Callable[[str], bool] | None
    complains: bool = False


def _is_library(key: str) -> bool:
    return key.endswith(".so")


DAMAGES: Final = (
    Damage(name="gone", keep=None),
    Damage(name="without-library", keep=lambda key: not _is_library(key), complains=True),
    Damage(name="without-line", keep=lambda key: key != delivery.PRELOAD_KEY),
    Damage(name="without-python", keep=lambda key: _is_library(key) or key == delivery.PRELOAD_KEY),
)


def damaged(lab: Lab, node: str) -> Result:
    """Each damage on this node, against the same pod without Raddle."""
    stock = _process(_Pod(lab, STOCK, "door-stock", node).log())
    figures: dict[str, str] = {}
    wrong: list[str] = []
    for damage in DAMAGES:
        namespace = f"e2e-door-{damage.name}-{node}"
        try:
            log, given = _damaged(lab, namespace, damage, node)
        finally:
            lab.cluster.client.delete(f"/api/v1/namespaces/{namespace}", missing_ok=True)
        complaints = log.count(COMPLAINT)
        others = [line for line in log.splitlines() if COMPLAINT not in line and not line.startswith("{")]
        figures[damage.name] = f"{complaints} lines of the loader" if damage.complains else "nothing said"
        if complaints != damage.complains:
            wrong.append(f"{damage.name}: the loader complains {complaints} times, expected {int(damage.complains)}")
        wrong += [f"{damage.name}: in the log: {line}" for line in others]
        wrong += [f"{damage.name}: {text}" for text in differences(stock, _process(log), given)]
    return Result(figures=figures, wrong=tuple(wrong))


def _damaged(lab: Lab, namespace: str, damage: Damage, node: str) -> tuple[str, Mapping[str, str]]:
    """The log of the pod under this damage, and the variables that its spec sets."""
    client = lab.cluster.client
    gone = f"no namespace {namespace} is left"
    waiting.wait(
        lambda: release.get(lab.cluster, f"/api/v1/namespaces/{namespace}") is None, gone, STEP_SECONDS, lab.progress
    )
    release.opt_in(lab.cluster, namespace, IN_RESTRICTED, lab.progress)
    pod = _Pod(lab, namespace, "door", node)
    admitted = pod.admitted()
    client.merge(f"/api/v1/namespaces/{namespace}", {"metadata": {"labels": {"raddle.dev/inject": "disabled"}}})
    config_maps = f"/api/v1/namespaces/{namespace}/configmaps"
    (whole,) = client.get(config_maps, labelSelector=SHIM_LABEL)["items"]
    path = f"{config_maps}/{whole['metadata']['name']}"

    def without() -> bool:
        # The controller may not have heard of the label yet, and bring it back once.
        client.delete(path, missing_ok=True)
        time.sleep(SETTLED_SECONDS)
        return release.get(lab.cluster, path) is None

    waiting.wait(without, f"{namespace} has no ConfigMap", STEP_SECONDS, lab.progress)
    if damage.keep is not None:
        client.post(config_maps, part_of(whole, damage.keep))
    pod.let_go()
    container = admitted["spec"]["containers"][0]
    return pod.said(), {one["name"]: one.get("value", "") for one in container.get("env", [])}


def part_of(config_map: Mapping[str, Any], keep: Callable[[str], bool]) -> dict[str, Any]:
    """The ConfigMap, as it is created, with these keys only."""
    found = copy.deepcopy(dict(config_map))
    found["metadata"] = {name: found["metadata"][name] for name in ("name", "namespace")}
    for kind in ("data", "binaryData"):
        found[kind] = {key: value for key, value in found.get(kind, {}).items() if keep(key)}
    return found


def differences(stock: Mapping[str, Any], found: Mapping[str, Any], given: Mapping[str, str]) -> list[str]:
    """What the process is otherwise than without Raddle, but for the variables that its pod's spec gives it."""
    if not found:
        return ["the process said nothing"]
    said = [
        f"{name} {found[name]}, without Raddle {stock[name]}"
        for name in ("path", "modules", "arguments", "descriptors")
        if found[name] != stock[name]
    ]
    ours, theirs = (
        {name: value for name, value in one["environment"].items() if name not in given and name != "HOSTNAME"}
        for one in (found, stock)
    )
    if ours != theirs:
        said.append(f"environment {dict(set(ours.items()) ^ set(theirs.items()))}")
    return said


def _wait_until_gone(lab: Lab, path: str) -> None:
    waiting.wait(lambda: release.get(lab.cluster, path) is None, f"{path} is gone", STEP_SECONDS, lab.progress)


def _process(log: str) -> Mapping[str, Any]:
    return verdict.look(log) or {}


class _Pod:
    """A pod of the application's image, in a virtual environment, that says what its process is and ends."""

    def __init__(self, lab: Lab, namespace: str, name: str, node: str) -> None:
        self._lab = lab
        self._metadata = {"name": name, "namespace": namespace}
        self._path = f"/api/v1/namespaces/{namespace}/pods/{name}"
        self._node = node

    def log(self) -> str:
        """What it says, made and removed."""
        client = self._lab.cluster.client
        client.delete(self._path, missing_ok=True)
        waiting.wait(
            lambda: release.get(self._lab.cluster, self._path) is None, "it is gone", STEP_SECONDS, self._lab.progress
        )
        client.apply(self._manifest())
        try:
            return self.said()
        finally:
            client.delete(self._path, missing_ok=True)

    def admitted(self) -> dict[str, Any]:
        """The pod as it was let in, with the door, and waits. Raises E2EError where the door stays closed."""
        client = self._lab.cluster.client
        pods = self._path.rpartition("/")[0]
        manifest = self._manifest()
        manifest["spec"]["schedulingGates"] = [{"name": GATE}]

        def has_door(pod: Mapping[str, Any]) -> bool:
            mounts = pod["spec"]["containers"][0].get("volumeMounts", [])
            return any(one["name"] == SHIM_VOLUME and one["mountPath"] == delivery.PRELOAD_FILE for one in mounts)

        def tried() -> dict[str, Any]:
            return client.request("POST", pods, manifest, query={"dryRun": "All"})

        # The webhook hears of the ConfigMap a moment after us.
        what = f"pods of {self._metadata['namespace']} get {delivery.PRELOAD_FILE}"
        waiting.wait(lambda: has_door(tried()), what, STEP_SECONDS, self._lab.progress)
        found = client.post(pods, manifest)
        if not has_door(found):
            raise E2EError(f"{what}: this one did not")
        return found

    def let_go(self) -> None:
        """Have it scheduled."""
        self._lab.cluster.client.merge(self._path, {"spec": {"schedulingGates": None}})

    def said(self) -> str:
        """Its log once it has ended. Raises E2EError where it does not end well."""
        lab = self._lab
        phase = ""

        def ended() -> bool:
            nonlocal phase
            phase = lab.cluster.client.get(self._path)["status"].get("phase", "")
            return phase in {"Succeeded", "Failed"}

        seconds = PATIENCE_SECONDS if self._node == GUEST.name else PODS_SECONDS
        try:
            waiting.wait(ended, f"{self._path} has ended", seconds, lab.progress)
        except NotInTimeError as error:
            described = lab.cluster.kubectl("-n", self._metadata["namespace"], "describe", "pods", check=False).stdout
            raise E2EError(f"{error}\n{described[-1500:]}") from error
        log = lab.runner.log(self._metadata, "app")
        if phase != "Succeeded":
            raise E2EError(f"{self._path} has failed: {log[-800:]}")
        return log

    def _manifest(self) -> dict[str, Any]:
        container = {
            "name": "app",
            "image": VENV_IMAGE,
            "imagePullPolicy": "Never",
            "command": [VENV_PYTHON, "-c", PROGRAM],
            "resources": {"limits": {"cpu": "500m"}, "requests": {"cpu": "0"}},
            "securityContext": dict(HARDENED),
        }
        spec = {
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "restartPolicy": "Never",
            "nodeSelector": {HOSTNAME: self._node},
            "containers": [container],
        }
        return {"apiVersion": "v1", "kind": "Pod", "metadata": dict(self._metadata), "spec": spec}


CHECKS: Final = tuple(
    Check(
        name=name,
        why=f"a ConfigMap that is gone or half there when the kubelet of {node} mounts it harms no process",
        run=functools.partial(damaged, node=node),
        nodes=(node,),
    )
    for name, node in (("half-a-shim", HOST.name), ("half-a-shim-on-guest", GUEST.name))
)

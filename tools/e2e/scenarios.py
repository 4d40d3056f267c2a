"""What runs on the node, and what must come of it: a table, one row a workload."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from e2e.images import APP_IMAGE, PYTHON

# A node of two CPUs, of which the kubelet keeps CPU 0 back: shared containers may run on it, but it is not counted.
SHARED = "0-1"
LABEL = "e2e.raddle.dev/scenario"
REPORTS = "/opt/raddle-report"
RESTRICTED: Final[Mapping[str, Any]] = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "runAsNonRoot": True,
    "seccompProfile": {"type": "RuntimeDefault"},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    """A container with ONNX Runtime: what its spec says in CPUs (None: nothing), and what must be seen inside.

    `cpus` is its CPU set as a kernel list, `threads` what a session of default options must have. `sidecar`: it is an
    init container that stays. `memory` is request and limit at once, None for neither.
    """

    name: str = "app"
    request: str | None = None
    limit: str | None = None
    memory: str | None = None
    sidecar: bool = False
    security: Mapping[str, Any] = field(default_factory=dict)
    threads: int
    cpus: str = SHARED
    quota_cpus: float | None = None

    def spec(self) -> dict[str, Any]:
        """The container in a pod's spec."""
        requests = {"cpu": self.request, "memory": self.memory}
        limits = {"cpu": self.limit, "memory": self.memory}
        resources = {
            kind: {name: value for name, value in amounts.items() if value is not None}
            for kind, amounts in (("requests", requests), ("limits", limits))
        }
        return {
            "name": self.name,
            "image": APP_IMAGE,
            "imagePullPolicy": "Never",
            "resources": {kind: amounts for kind, amounts in resources.items() if amounts},
            **({"restartPolicy": "Always"} if self.sidecar else {}),
            **({"securityContext": dict(self.security)} if self.security else {}),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A workload of one pod: `qos` is its class of service with Raddle and without.

    `kind` is the workload's. `namespace_labels` are those of its namespace. `named`: a policy of its own names all its
    containers, since only regular ones are planned otherwise.
    """

    name: str
    why: str
    qos: str
    containers: tuple[Container, ...]
    kind: str = "Pod"
    namespace_labels: Mapping[str, str] = field(default_factory=dict)
    named: bool = False

    @property
    def labels(self) -> dict[str, str]:
        """By which the pod is found."""
        return {LABEL: self.name}

    def policies(self, namespace: str) -> list[dict[str, Any]]:
        """The policy of its own, if it has one."""
        if not self.named:
            return []
        names = [one.name for one in self.containers]
        return [policy(self.name, namespace, podSelector={"matchLabels": self.labels}, containers=names, priority=1)]

    def pod_spec(self) -> dict[str, Any]:
        """The pod's spec, which asks for nothing of the cluster."""
        return {
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": 5,
            "initContainers": [one.spec() for one in self.containers if one.sidecar],
            "containers": [one.spec() for one in self.containers if not one.sidecar],
        }

    def manifest(self, namespace: str) -> dict[str, Any]:
        """The workload."""
        metadata = {"name": self.name, "namespace": namespace}
        labelled = {"metadata": {"labels": self.labels}}
        spec = self.pod_spec()
        if self.kind == "Pod":
            return {"apiVersion": "v1", "kind": "Pod", "metadata": {**metadata, "labels": self.labels}, "spec": spec}
        if self.kind in {"Job", "CronJob"}:
            job = {"template": {**labelled, "spec": {**spec, "restartPolicy": "Never"}}}
            timed = {"schedule": "* * * * *", "concurrencyPolicy": "Forbid", "jobTemplate": {"spec": job}}
            batch = job if self.kind == "Job" else timed
            return {"apiVersion": "batch/v1", "kind": self.kind, "metadata": metadata, "spec": batch}
        given: dict[str, Any] = {"selector": {"matchLabels": self.labels}, "template": {**labelled, "spec": spec}}
        if self.kind == "StatefulSet":
            given["serviceName"] = self.name
        return {"apiVersion": "apps/v1", "kind": self.kind, "metadata": metadata, "spec": given}


def policy(name: str, namespace: str, **spec: Any) -> dict[str, Any]:
    """A policy whose containers write reports; `spec` is the rest of it."""
    return {
        "apiVersion": "raddle.dev/v1alpha1",
        "kind": "InferenceThreading",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"reports": True, **spec},
    }


HALF: Final[Mapping[str, Any]] = {"request": "100m", "limit": "500m", "threads": 1, "quota_cpus": 0.5}
TWO: Final[Mapping[str, Any]] = {"request": "100m", "limit": "2", "threads": 1, "quota_cpus": 2.0}


SCENARIOS: Final = (
    Scenario(
        name="below-one-cpu",
        why="a limit of half a CPU gets one thread",
        qos="Burstable",
        containers=(Container(**HALF),),
    ),
    Scenario(
        name="whole-cpu",
        why="a Guaranteed whole CPU is exclusive and has no quota: the CPU set is its count",
        qos="Guaranteed",
        containers=(Container(request="1", limit="1", memory="512Mi", threads=1, cpus="1"),),
    ),
    Scenario(
        name="best-effort",
        why="nothing asked for under the static policy: not pinned, not spinning, no reserved CPU counted",
        qos="BestEffort",
        containers=(Container(threads=1),),
    ),
    Scenario(
        name="two-cpus",
        why="a limit of two CPUs where one is kept back counts the other",
        qos="Burstable",
        containers=(Container(**TWO),),
    ),
    Scenario(
        name="two-containers",
        why="each container has a plan of its own",
        qos="Burstable",
        containers=(Container(name="small", **HALF), Container(name="large", **TWO)),
    ),
    Scenario(
        name="native-sidecar",
        why="an init container that stays, when a policy names it",
        qos="Burstable",
        containers=(Container(name="sidecar", sidecar=True, **HALF), Container(name="app", **TWO)),
        named=True,
    ),
    Scenario(
        name="restricted",
        why="Pod Security restricted and a read-only root file system",
        qos="Burstable",
        containers=(Container(security={**RESTRICTED, "readOnlyRootFilesystem": True}, **TWO),),
        namespace_labels={"pod-security.kubernetes.io/enforce": "restricted"},
    ),
    *(
        Scenario(
            name=kind.lower(),
            why=f"the pod of a {kind}",
            qos="Burstable",
            containers=(Container(**HALF),),
            kind=kind,
        )
        for kind in ("Deployment", "StatefulSet", "DaemonSet", "Job", "CronJob")
    ),
)
# From inside: what was planned against what is, and what Raddle sees.
REPORT: Final = (PYTHON, "-m", "raddle", "report")
SHOW: Final = (PYTHON, "-m", "raddle", "show")

"""What runs on the node, and what must come of it: a table, one row a pod."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from e2e.images import APP_IMAGE, PYTHON

# A node of two CPUs, of which the kubelet keeps CPU 0 back.
SHARED = "0-1"
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
    """A pod: `qos` is its class of service with Raddle and without; `namespace_labels` are those of its namespace."""

    name: str
    why: str
    qos: str
    containers: tuple[Container, ...]
    namespace_labels: Mapping[str, str] = field(default_factory=dict)

    def pod(self, namespace: str) -> dict[str, Any]:
        """The manifest."""
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": self.name, "namespace": namespace},
            "spec": {
                "automountServiceAccountToken": False,
                "terminationGracePeriodSeconds": 5,
                "initContainers": [one.spec() for one in self.containers if one.sidecar],
                "containers": [one.spec() for one in self.containers if not one.sidecar],
            },
        }


SCENARIOS: Final = (
    Scenario(
        name="below-one-cpu",
        why="a limit of half a CPU gets one thread",
        qos="Burstable",
        containers=(Container(request="100m", limit="500m", threads=1, quota_cpus=0.5),),
    ),
    Scenario(
        name="whole-cpu",
        why="a Guaranteed whole CPU is exclusive and has no quota: the CPU set is its count",
        qos="Guaranteed",
        containers=(Container(request="1", limit="1", memory="512Mi", threads=1, cpus="1"),),
    ),
    Scenario(
        name="best-effort",
        why="no request and no limit: no more threads than pods may be given CPUs, none of them pinned or spinning",
        qos="BestEffort",
        containers=(Container(threads=1),),
    ),
    Scenario(
        name="two-cpus",
        why="a limit of two CPUs, in a pod that may use both",
        qos="Burstable",
        containers=(Container(request="100m", limit="2", threads=2, quota_cpus=2.0),),
    ),
    Scenario(
        name="two-containers",
        why="each container has a plan of its own",
        qos="Burstable",
        containers=(
            Container(name="small", request="100m", limit="500m", threads=1, quota_cpus=0.5),
            Container(name="large", request="100m", limit="2", threads=2, quota_cpus=2.0),
        ),
    ),
    Scenario(
        name="native-sidecar",
        why="an init container that stays is a container like any other",
        qos="Burstable",
        containers=(
            Container(name="sidecar", request="100m", limit="500m", sidecar=True, threads=1, quota_cpus=0.5),
            Container(name="app", request="100m", limit="2", threads=2, quota_cpus=2.0),
        ),
    ),
    Scenario(
        name="restricted",
        why="Pod Security restricted and a read-only root file system",
        qos="Burstable",
        containers=(
            Container(
                request="100m",
                limit="2",
                threads=2,
                quota_cpus=2.0,
                security={**RESTRICTED, "readOnlyRootFilesystem": True},
            ),
        ),
        namespace_labels={"pod-security.kubernetes.io/enforce": "restricted"},
    ),
)
# From inside: what was planned against what is, and what Raddle sees.
REPORT: Final = (PYTHON, "-m", "raddle", "report")
SHOW: Final = (PYTHON, "-m", "raddle", "show")

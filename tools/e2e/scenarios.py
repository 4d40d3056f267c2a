"""What runs on the node, and what must come of it: a table, one row a workload."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from e2e import features, settings
from e2e.guest import PATIENCE_SECONDS
from e2e.images import APP_IMAGE, NODE_IMAGE, PYTHON, VENV_IMAGE, VENV_PYTHON

# The names of the nodes: this machine, and the virtual one.
HOST = settings.HOST.name
GUEST = settings.GUEST.name
GUEST_CPUS: Final = settings.GUEST.cpus
# The virtual one's, each with the CPUs of two cores.
NUMA_NODES: Final = ("0-3", "4-7", "8-11", "12-15")
# This machine has two CPUs, of which the kubelet keeps CPU 0 back: shared containers may run on it, but it is not
# counted.
SHARED = "0-1"
HOSTNAME = "kubernetes.io/hostname"
LABEL = "e2e.raddle.dev/scenario"
SECONDS: Final = 240.0
RESTRICTED: Final[Mapping[str, Any]] = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "runAsNonRoot": True,
    "seccompProfile": {"type": "RuntimeDefault"},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    """A container with ONNX Runtime: what its spec says in CPUs (None: nothing), and what must be seen inside.

    `threads` is what a session of default options must have. `cpus` is its CPU set as a kernel list, `cpu_count` that
    set's size, `within` kernel lists in one of which it must lie (NUMA nodes); None and () are not compared.
    `exclusive`: the CPUs are nobody else's, so its threads may be tied to some of them; else each may run wherever the
    container may. `sidecar`: it is an init container that stays. `memory` is request and limit at once, None for
    neither. `image` is of this run.
    """

    name: str = "app"
    request: str | None = None
    limit: str | None = None
    memory: str | None = None
    sidecar: bool = False
    security: Mapping[str, Any] = field(default_factory=dict)
    image: str = APP_IMAGE
    threads: int
    cpus: str | None = SHARED
    cpu_count: int | None = None
    within: tuple[str, ...] = ()
    exclusive: bool = False
    quota_cpus: float | None = None

    def spec(self, *, load: bool = True) -> dict[str, Any]:
        """The container in a pod's spec; `load`: it also says what requests cost."""
        requests = {"cpu": self.request, "memory": self.memory}
        limits = {"cpu": self.limit, "memory": self.memory}
        resources = {
            kind: {name: value for name, value in amounts.items() if value is not None}
            for kind, amounts in (("requests", requests), ("limits", limits))
        }
        return {
            "name": self.name,
            "image": self.image,
            "imagePullPolicy": "Never",
            **({} if load else {"env": [{"name": "E2E_LOAD", "value": "0"}]}),
            "resources": {kind: amounts for kind, amounts in resources.items() if amounts},
            **({"restartPolicy": "Always"} if self.sidecar else {}),
            **({"securityContext": dict(self.security)} if self.security else {}),
        }

    def inside(self, command: tuple[str, ...]) -> tuple[str, ...]:
        """SHOW, by the Python that the container's application runs in."""
        return (VENV_PYTHON, *command[1:]) if self.image == VENV_IMAGE else command


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A workload of one pod per node: `qos` is its class of service with Raddle and without.

    `nodes` are those that it runs on, by name; with more than one it is a Deployment that is spread over them.
    `containers` is what must be seen on the first of them, `elsewhere` on the others. `kind` is the workload's,
    `namespace_labels` those of its namespace, `policy_spec` is more of the policy there. `pod` is more of the pod's
    spec. `stock`: it runs without Raddle too, to compare. `unavailable` says why it can't run on this machine, "" where
    it can.
    """

    name: str
    why: str
    qos: str
    containers: tuple[Container, ...]
    nodes: tuple[str, ...] = (HOST,)
    elsewhere: Mapping[str, tuple[Container, ...]] = field(default_factory=dict)
    kind: str = "Pod"
    namespace_labels: Mapping[str, str] = field(default_factory=dict)
    policy_spec: Mapping[str, Any] = field(default_factory=dict)
    pod: Mapping[str, Any] = field(default_factory=dict)
    stock: bool = True
    unavailable: Callable[[], str] = str

    def __str__(self) -> str:
        """Its nodes and its name, as tests are chosen by them."""
        return "-".join((*self.nodes, self.name))

    @property
    def labels(self) -> dict[str, str]:
        """By which the pod is found."""
        return {LABEL: self.name}

    def expected(self, node: str) -> tuple[Container, ...]:
        """What must be seen on this node."""
        return self.elsewhere.get(node, self.containers)

    @property
    def seconds(self) -> float:
        """How long its pods may take to answer."""
        return SECONDS if self.nodes == (HOST,) else PATIENCE_SECONDS

    def pod_spec(self) -> dict[str, Any]:
        """The pod's spec, which asks for nothing of the cluster but its node."""
        # Emulated CPUs tell nothing of what requests cost.
        load = self.nodes == (HOST,)
        return {
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": 5,
            **self.pod,
            **_placed(self.nodes, self.labels),
            "initContainers": [one.spec(load=load) for one in self.containers if one.sidecar],
            "containers": [one.spec(load=load) for one in self.containers if not one.sidecar],
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
        if len(self.nodes) > 1:
            given["replicas"] = len(self.nodes)
        return {"apiVersion": "apps/v1", "kind": self.kind, "metadata": metadata, "spec": given}


def _placed(nodes: tuple[str, ...], labels: Mapping[str, str]) -> dict[str, Any]:
    """The part of a pod's spec that puts it on its node, or one on each."""
    if len(nodes) == 1:
        return {"nodeSelector": {HOSTNAME: nodes[0]}}
    one_of = {"matchExpressions": [{"key": HOSTNAME, "operator": "In", "values": list(nodes)}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [one_of]}}
    spread = {"maxSkew": 1, "topologyKey": HOSTNAME, "whenUnsatisfiable": "DoNotSchedule"}
    return {
        "affinity": {"nodeAffinity": required},
        "topologySpreadConstraints": [{**spread, "labelSelector": {"matchLabels": dict(labels)}}],
    }


HALF: Final[Mapping[str, Any]] = {"request": "100m", "limit": "500m", "threads": 1, "quota_cpus": 0.5}
TWO: Final[Mapping[str, Any]] = {"request": "100m", "limit": "2", "threads": 1, "quota_cpus": 2.0}


# What hardened clusters ask for.
HARDENED: Final[Mapping[str, Any]] = {**RESTRICTED, "readOnlyRootFilesystem": True}
IN_RESTRICTED: Final = {"pod-security.kubernetes.io/enforce": "restricted"}


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
        containers=(Container(request="1", limit="1", memory="512Mi", threads=1, cpus="1", exclusive=True),),
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
        policy_spec={"containers": ["sidecar", "app"]},
    ),
    Scenario(
        name="nodejs",
        why="onnxruntime-node in an image without Python",
        qos="Burstable",
        containers=(Container(image=NODE_IMAGE, **TWO),),
        unavailable=features.without_nodejs,
    ),
    Scenario(
        name="restricted",
        why="Pod Security restricted and a read-only root file system",
        qos="Burstable",
        containers=(Container(security=HARDENED, **TWO),),
        namespace_labels=IN_RESTRICTED,
    ),
    Scenario(
        name="venv",
        why="a virtual environment of which the policy says nothing, under Pod Security restricted",
        qos="Burstable",
        containers=(Container(image=VENV_IMAGE, security=HARDENED, **TWO),),
        namespace_labels=IN_RESTRICTED,
    ),
    Scenario(
        name="user-namespace",
        why="the same in a user namespace of the pod's own",
        qos="Burstable",
        containers=(Container(image=VENV_IMAGE, security=HARDENED, **TWO),),
        namespace_labels=IN_RESTRICTED,
        pod={"hostUsers": False},
        unavailable=features.without_user_namespaces,
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
    Scenario(
        name="whole-cores",
        why="four exclusive CPUs are two cores of one NUMA node: a thread per core, tied inside the set, spinning",
        qos="Guaranteed",
        nodes=(GUEST,),
        containers=(
            Container(
                request="4",
                limit="4",
                memory="512Mi",
                threads=2,
                cpus=None,
                cpu_count=4,
                within=NUMA_NODES,
                exclusive=True,
            ),
        ),
    ),
    Scenario(
        name="three-cpus",
        why="a limit of three CPUs: three threads, more than a NUMA node has cores, tied to none",
        qos="Burstable",
        nodes=(GUEST,),
        containers=(Container(request="100m", limit="3", threads=3, cpus=GUEST_CPUS, quota_cpus=3.0),),
        stock=False,
    ),
    Scenario(
        name="venv-three-cpus",
        why="a virtual environment of which the policy says nothing, by Debian's containerd: three threads, bounded",
        qos="Burstable",
        nodes=(GUEST,),
        containers=(
            Container(
                image=VENV_IMAGE,
                security=HARDENED,
                request="100m",
                limit="3",
                threads=3,
                cpus=GUEST_CPUS,
                quota_cpus=3.0,
            ),
        ),
        namespace_labels=IN_RESTRICTED,
        stock=False,
    ),
    Scenario(
        name="best-effort-shared",
        why="nothing asked for beside exclusive CPUs: not tied, not spinning, no reserved CPU counted",
        qos="BestEffort",
        nodes=(GUEST,),
        containers=(Container(threads=2, cpus=GUEST_CPUS),),
        stock=False,
    ),
    Scenario(
        name="both-nodes",
        why="one Deployment, a limit of eight CPUs: each replica has the number of its own node",
        qos="Burstable",
        kind="Deployment",
        nodes=(HOST, GUEST),
        containers=(Container(request="100m", limit="8", threads=1, quota_cpus=8.0),),
        elsewhere={
            # Of its eight cores one is kept back.
            GUEST: (Container(request="100m", limit="8", threads=7, cpus=GUEST_CPUS, quota_cpus=8.0),),
        },
        stock=False,
    ),
)
# One that loses CPUs while it runs.
RESIZED: Final = Scenario(
    name="resize",
    why="",
    qos="Burstable",
    nodes=(GUEST,),
    containers=(Container(request="100m", limit="3", threads=3, cpus=GUEST_CPUS, quota_cpus=3.0),),
)
# From inside: what Raddle sees there.
SHOW: Final = (PYTHON, "-m", "raddle")

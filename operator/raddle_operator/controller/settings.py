"""The settings of the controller process, as one frozen value. The CLI reads it from options and RADDLE_*."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from raddle_operator.kube.leader import Timing


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerSettings:
    """Settings of one controller process. Times are in seconds.

    ``kubeconfig`` None: the pod's own service account. ``identity`` must differ between replicas and restarts.
    """

    namespace: str = "raddle-system"
    kubeconfig: Path | None = None
    context: str | None = None
    identity: str
    host: str = "0.0.0.0"  # noqa: S104 (probes and Prometheus come from outside the pod)
    port: int = 8080
    lease: str = "raddle-controller"
    account: str = "raddle-controller"
    """The ServiceAccount that the Lease and the certificate's Secret go with."""
    election: Timing = field(default_factory=Timing)
    resync_s: float = 600.0
    status_interval_s: float = 3.0
    """The least time between two status writes of one policy; a new generation's first does not wait."""
    tally_interval_s: float = 1.0
    """The least time between two counts of one namespace's pods."""
    unlabelled: str = "disabled"
    """What a namespace without the label ``raddle.dev/inject`` counts as: enabled, labelled or disabled."""
    excluded_namespaces: tuple[str, ...] = ("kube-system",)
    """Never opted in, beside ``namespace`` itself; the webhook configuration leaves the same ones out."""
    keep_shim: bool = True
    """Keep the shim's ConfigMap in opted-in namespaces."""
    door: bool = True
    """Whether the webhook may have pods load the shim by /etc/ld.so.preload."""
    shim_namespaces: tuple[str, ...] = ()
    """Where ConfigMaps may be written; empty: wherever a namespace is opted in."""
    tuning: bool = False
    """Carry out InferenceTunings."""
    tuner_image: str = ""
    """The image of the container that measures beside the workload's."""
    issue_certificates: bool = True
    """Issue and rotate the webhook's certificate (else cert-manager does)."""

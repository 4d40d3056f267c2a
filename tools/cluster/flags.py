"""The command lines of the components: pure functions of a cluster's settings.

Paths are relative: every component runs in the cluster's directory. etcd listens on Unix sockets there, so it needs no
port and nobody else can reach it. A socket's name must look like host:port for etcd.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

API_SERVER = "kube-apiserver"
CONTROLLER_MANAGER = "kube-controller-manager"
ETCD = "etcd"
SCHEDULER = "kube-scheduler"

ETCD_CLIENTS = "unix://clients:0"
ETCD_PEERS = "unix://peers:0"
AUDIT_POLICY = "audit-policy.yaml"
SERVICE_RANGE = "10.96.0.0/16"
SERVER_NAMES = (
    "127.0.0.1",
    "localhost",
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
    "10.96.0.1",
    # The host's loopback as a guest of QEMU's user network sees it.
    "10.0.2.2",
)
"""The names and addresses that the API server's certificate is good for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What a caller chose: feature gates for all Kubernetes components, and more flags by component name."""

    scheduler: bool = True
    controller_manager: bool = True
    feature_gates: Mapping[str, bool] = field(default_factory=dict)
    audit: bool = False
    extra_flags: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def common(self, component: str) -> list[str]:
        """The flags that come last, so that they win: feature gates and the caller's own."""
        gates = ",".join(f"{name}={str(on).lower()}" for name, on in sorted(self.feature_gates.items()))
        gate_flags = [f"--feature-gates={gates}"] if gates and component != ETCD else []
        return [*gate_flags, *self.extra_flags.get(component, ())]


def etcd(settings: Settings) -> list[str]:
    """Etcd's flags. Data need not outlive a crash of the machine, so nothing is synced to disk."""
    return [
        "--data-dir=etcd",
        "--unsafe-no-fsync",
        f"--listen-client-urls={ETCD_CLIENTS}",
        f"--advertise-client-urls={ETCD_CLIENTS}",
        f"--listen-peer-urls={ETCD_PEERS}",
        f"--initial-advertise-peer-urls={ETCD_PEERS}",
        f"--initial-cluster=default={ETCD_PEERS}",
        *settings.common(ETCD),
    ]


def api_server(settings: Settings, port: int) -> list[str]:
    """The API server's flags: TLS, RBAC and the node authorizer, bound service account tokens."""
    audit = [f"--audit-policy-file={AUDIT_POLICY}", "--audit-log-path=logs/audit.log"] if settings.audit else []
    # Without the controller that makes service accounts, this plugin would refuse every pod.
    without = [] if settings.controller_manager else ["--disable-admission-plugins=ServiceAccount"]
    return [
        f"--etcd-servers={ETCD_CLIENTS}",
        "--bind-address=127.0.0.1",
        "--advertise-address=127.0.0.1",
        f"--secure-port={port}",
        "--tls-cert-file=pki/server.crt",
        "--tls-private-key-file=pki/server.key",
        "--client-ca-file=pki/ca.crt",
        "--kubelet-client-certificate=pki/admin.crt",
        "--kubelet-client-key=pki/admin.key",
        "--kubelet-preferred-address-types=InternalIP,Hostname",
        "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
        "--service-account-key-file=pki/service-account.pub",
        "--service-account-signing-key-file=pki/service-account.key",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        *without,
        "--allow-privileged",
        "--endpoint-reconciler-type=none",
        f"--service-cluster-ip-range={SERVICE_RANGE}",
        *audit,
        *settings.common(API_SERVER),
    ]


def controller_manager(settings: Settings, port: int) -> list[str]:
    """The controller manager's flags.

    More requests a second than by default, because a thousand nodes may appear at once; a longer grace period for
    nodes, because a busy machine may renew their leases late.
    """
    return [
        *_controller(port, "controller-manager"),
        "--use-service-account-credentials",
        "--service-account-private-key-file=pki/service-account.key",
        "--root-ca-file=pki/ca.crt",
        "--cluster-signing-cert-file=pki/ca.crt",
        "--cluster-signing-key-file=pki/ca.key",
        "--node-monitor-grace-period=5m",
        *settings.common(CONTROLLER_MANAGER),
    ]


def scheduler(settings: Settings, port: int) -> list[str]:
    """The scheduler's flags."""
    return [*_controller(port, "scheduler"), *settings.common(SCHEDULER)]


def _controller(port: int, user: str) -> list[str]:
    kubeconfig = f"users/{user}.kubeconfig"
    return [
        f"--kubeconfig={kubeconfig}",
        f"--authentication-kubeconfig={kubeconfig}",
        f"--authorization-kubeconfig={kubeconfig}",
        "--bind-address=127.0.0.1",
        f"--secure-port={port}",
        "--tls-cert-file=pki/server.crt",
        "--tls-private-key-file=pki/server.key",
        "--leader-elect=false",
        "--kube-api-qps=500",
        "--kube-api-burst=1000",
    ]

"""What the webhook process is told at start, as one frozen value; the CLI reads it from options and RADDLE_*."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

MIB: Final = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookSettings:
    """Settings of one webhook process. Times are in seconds.

    ``kubeconfig`` None: the pod's own service account. ``host`` "": every address, IPv4 and IPv6. Ports may be 0 (any
    free one; see ``Webhook.addresses``).
    """

    tls_dir: Path
    """The folder with tls.crt and tls.key. They may come later and may change; a kubelet replaces them as one."""
    client_ca_file: Path | None = None
    """PEM certificates of authorities: one of them must have signed the certificate of a client of the HTTPS port. The
    file may come later and may change, like those in ``tls_dir``. None: clients need no certificate."""
    namespace: str = "raddle-system"
    kubeconfig: Path | None = None
    context: str | None = None
    host: str = ""
    port: int = 10250
    """HTTPS: the reviews, and /readyz, /livez, /metrics as well."""
    health_port: int | None = 8080
    """Plain HTTP for /readyz, /livez and /metrics, which answers before there is a certificate; None: not opened."""
    default_inject: str = "disabled"
    """What a namespace without the label raddle.dev/inject counts as: disabled, labelled or enabled."""
    door: bool = True
    """Whether pods load the shim, by /etc/ld.so.preload."""
    shim_namespaces: tuple[str, ...] = ()
    """Where the shim's ConfigMap may be looked for; empty: everywhere. Without the right it counts as absent."""
    tuning: bool = False
    """Whether policies may name InferenceTunings; they are not looked at otherwise."""
    agent_address: str = ""
    """Where shims reach their node's agent, as address:port, for pods whose policy lets them; "": they tell nobody."""
    certificate_check_s: float = 10.0
    """The files are read again so often."""
    drain_delay_s: float = 5.0
    """After SIGTERM /readyz fails for so long before the listener closes: endpoints take time to spread."""
    drain_s: float = 10.0
    """Requests under way then get at most so long."""
    max_body_bytes: int = 8 * MIB
    """The API server takes objects up to 3 MiB; a review holds one, escaped again, beside its own fields."""
    max_bodies_bytes: int = 64 * MIB
    """The large bodies that are being read hold so much memory at most; one that goes beyond is refused."""
    handshake_timeout_s: float = 5.0
    """So long a client may take for TLS."""
    first_request_timeout_s: float = 10.0
    """So long after TLS a connection may take until its first request's headers are there."""
    max_silent_connections: int = 1000
    """So many open connections may be without a request so far; one more closes the oldest. Each holds some 50 KiB."""
    body_timeout_s: float = 5.0
    """A body that has not come by then never will: the API server's own timeout is shorter."""
    idle_timeout_s: float = 120.0
    """A connection without a request is closed after so long; the API server closes its own idle ones after 90 s."""
    arrival_wait_s: float = 0.02
    """A pod or namespace that the watch has not shown yet is waited for so long; then one GET runs beside the watch."""
    lookup_timeout_s: float = 0.3
    """The GET gets so long."""
    deadline_share: float = 0.8
    """The answer comes within this share of the timeout that the API server states in the URL."""
    decision_logs_per_s: float = 20.0
    """At most so many decisions are logged a second, the rest is counted in the next line; 0: none."""

"""What one agent was started with."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from raddle_operator.objects.nodereport import Level


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSettings:
    """Settings of one agent. Times are in seconds.

    `root` is the folder that holds this node's sys/ and proc/, read again every `reread_s`. `kubeconfig` None: the
    pod's own service account. `kubelet_config` is Configz, Proxy or None; Configz needs `node_ip`.
    `kubelet_insecure_tls` accepts any serving certificate of the kubelet: most are self-signed, and the connection
    never leaves the node. `kubelet_interval_s` None: kubelet.KUBELET_INTERVALS_S.

    `watch` is how much it looks at of what runs, None: nothing, and then it serves nothing either. `cgroups` is the
    folder that the node's /sys/fs/cgroup is at; processes are those of `root`'s proc/.
    """

    node_name: str
    node_ip: str = ""
    root: str | Path = "/"
    kubeconfig: Path | None = None
    context: str | None = None
    kubelet_config: str = "Configz"
    kubelet_port: int = 10250
    kubelet_insecure_tls: bool = False
    reread_s: float = 60.0
    kubelet_interval_s: float | None = None
    kubelet_retry_s: float = 60.0
    """The pause after a kubelet gave no answer."""
    watch: Level | None = None
    cgroups: str = "/sys/fs/cgroup"
    watch_interval_s: float = 15.0
    watch_port: int = 8082
    datagrams_port: int | None = None
    """UDP, for what shims tell; None: nobody is heard. Only with `watch`, whose report it goes into."""
    least_delay_s: float = 1.0
    """The first pause after a failure; it doubles up to `most_delay_s`, and each is cut by a random part."""
    most_delay_s: float = 60.0

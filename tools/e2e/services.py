"""Services and their names on this machine's node: kube-proxy as clusters run it, and dnsmasq for what CoreDNS does.

Both are processes in the node's namespaces and end with it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import yaml

from cluster import Cluster, binaries
from cluster.components import Component
from cluster.progress import Progress
from e2e import joining, settings

# https://kubernetes.io/docs/reference/networking/virtual-ips/: a kube-proxy of that name would serve it, and no other.
# The cable has the address of the Service `kubernetes`, which has no endpoints here.
LEFT_ALONE = ("label", "service", "kubernetes", "service.kubernetes.io/service-proxy-name=none", "--overwrite")
DOMAIN = "cluster.local"
SETTLE_SECONDS = 1.0


@contextmanager
def running(cluster: Cluster, node: settings.Node, pid: int, progress: Progress) -> Iterator[None]:
    """Have the Services that are there now answer, by address and by name, to the node whose first process is `pid`.

    Raises DevclusterError where one of the two ends at once.
    """
    program = binaries.find(binaries.kube_proxy(cluster.version), ["kube-proxy"], progress)["kube-proxy"]
    cluster.kubectl(*LEFT_ALONE)
    folder = cluster.directory / "kube-proxy"
    folder.mkdir()
    config = folder / "config.yaml"
    config.write_text(proxy(node, str(joining.kubeconfig(cluster, "system:kube-proxy", folder))))
    services = cluster.client.get("/api/v1/services")["items"]
    names = {
        f"{one['metadata']['name']}.{one['metadata']['namespace']}": one["spec"]["clusterIP"]
        for one in services
        if one["spec"].get("clusterIP") not in (None, "None")
    }
    inside = ["nsenter", "--target", str(pid), "--mount", "--net", "--pid"]
    commands = {
        "kube-proxy": [*inside, str(program), "--config", str(config)],
        "dnsmasq": [
            *inside,
            "sh",
            "-c",
            f'ip address add {settings.DNS_ADDRESS}/32 dev lo; exec "$@"',
            "sh",
            *dns(names),
        ],
    }
    started: list[Component] = []
    try:
        for name, command in commands.items():
            component = cluster.component(name)
            component.start(command)
            started.append(component)
        time.sleep(SETTLE_SECONDS)
        for component in started:
            component.require_alive()
        yield
    finally:
        for component in started:
            component.kill()


def proxy(node: settings.Node, kubeconfig: str) -> str:
    """The KubeProxyConfiguration: iptables, and this machine's connection tracking left as it is."""
    return yaml.safe_dump(
        {
            "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
            "kind": "KubeProxyConfiguration",
            "mode": "iptables",
            "clusterCIDR": node.pod_range,
            "clientConnection": {"kubeconfig": kubeconfig},
            "hostnameOverride": node.name,
            "conntrack": {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
            "nodePortAddresses": ["primary"],
        }
    )


def dns(addresses: dict[str, str]) -> Sequence[str]:
    """The command of a name server that knows these Services ("NAME.NAMESPACE") and nothing else."""
    records = [f"--host-record={name}.svc.{DOMAIN},{address}" for name, address in sorted(addresses.items())]
    where = [f"--listen-address={settings.DNS_ADDRESS}", "--bind-interfaces", "--user=root", "--pid-file="]
    return ["dnsmasq", "--keep-in-foreground", "--no-resolv", "--no-hosts", f"--local=/{DOMAIN}/", *where, *records]

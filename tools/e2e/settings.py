"""The files of a node, as pure functions of its addresses: containerd's, the network's, the kubelet's."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import yaml

PAUSE_IMAGE = "raddle-e2e-pause:1"
SOCKET = "/run/containerd/containerd.sock"
# The Service `kubernetes`: the first address of the devcluster's range, which the API server's certificate names.
API_ADDRESS = "10.96.0.1"
DNS_ADDRESS = "10.96.0.10"


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A node: its name, its CPUs and those that it keeps back, and its place in the network.

    `cable` is the interface at this machine's end of the cable to the node, `host_address` that end's address and
    `address` the node's, in one /30; `pod_range` is the /24 of its pods. `topology_policy` is the topology manager's.
    `dns`: its pods are told of the cluster's name server. Without one, each look-up of theirs would wait for seconds.
    """

    name: str
    cpus: str
    reserved_cpus: str
    cable: str
    host_address: str
    address: str
    pod_range: str
    cpu_manager_options: Mapping[str, str] = field(default_factory=dict)
    topology_policy: str = "none"
    dns: bool = False


# 10.231.0.0/16 is nobody's; the kernel refuses the route where it is.
HOST = Node(
    name="host-1",
    cpus="0-1",
    reserved_cpus="0",
    cable="raddle-e2e",
    host_address="10.231.0.1",
    address="10.231.0.2",
    pod_range="10.231.1.0/24",
    dns=True,
)
# One core of 8 is kept back: with full-pcpus-only nothing less can be.
GUEST = Node(
    name="guest-1",
    cpus="0-15",
    reserved_cpus="0-1",
    cable="raddle-guest",
    host_address="10.231.0.5",
    address="10.231.0.6",
    pod_range="10.231.2.0/24",
    cpu_manager_options={"full-pcpus-only": "true"},
    topology_policy="single-numa-node",
)


def containerd(pause_image: str = PAUSE_IMAGE) -> str:
    """The config.toml of containerd.

    restrict_oom_score_adj, because a machine without CAP_SYS_RESOURCE can't set a sandbox's: without it each fails with
    "can't get final child's PID from pipe: EOF".
    """
    return f"""\
version = 2
root = "/var/lib/containerd"
state = "/run/containerd"
[grpc]
  address = "{SOCKET}"
[plugins."io.containerd.internal.v1.opt"]
  path = "/var/lib/containerd/opt"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{pause_image}"
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "/var/lib/raddle-e2e/cni"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
"""


def network(node: Node) -> str:
    """The network's configuration: pods on a bridge, with routes and no translation of addresses."""
    ipam = {"type": "host-local", "ranges": [[{"subnet": node.pod_range}]], "routes": [{"dst": "0.0.0.0/0"}]}
    plugins: Sequence[Mapping[str, Any]] = [
        {"type": "bridge", "bridge": "cni0", "isGateway": True, "ipMasq": False, "hairpinMode": True, "ipam": ipam},
        {"type": "loopback"},
    ]
    return json.dumps({"cniVersion": "0.4.0", "name": "raddle-e2e", "plugins": plugins}, indent=1)


def kubelet(node: Node, ca_file: str) -> str:
    """The KubeletConfiguration: static CPU manager, calls by token as on any cluster, no change of firewall rules."""
    config = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": ca_file},
        },
        "authorization": {"mode": "Webhook"},
        # The controller manager signs it with the cluster's authority, which the agent trusts.
        "serverTLSBootstrap": True,
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": "/",
        "clusterDNS": [DNS_ADDRESS] if node.dns else [],
        "clusterDomain": "cluster.local",
        "containerRuntimeEndpoint": f"unix://{SOCKET}",
        "cpuManagerPolicy": "static",
        "reservedSystemCPUs": node.reserved_cpus,
        "evictionHard": {"memory.available": "50Mi"},
        "failSwapOn": False,
        # Off: images that no pod uses right now can't be had again.
        "imageGCHighThresholdPercent": 100,
        "localStorageCapacityIsolation": False,
        "makeIPTablesUtilChains": False,
        "podCIDR": node.pod_range,
        "resolvConf": "/var/lib/raddle-e2e/resolv.conf",
        # This is about a minute where nothing changes; scenarios wait for Secrets and ConfigMaps.
        "syncFrequency": "10s",
        "topologyManagerPolicy": node.topology_policy,
    }
    if node.cpu_manager_options:
        config["cpuManagerPolicyOptions"] = dict(node.cpu_manager_options)
    return yaml.safe_dump(config)

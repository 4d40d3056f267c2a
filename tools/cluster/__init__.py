"""A real Kubernetes control plane on this machine, for demos, tests and benchmarks.

etcd, the API server, the scheduler and the controller manager are built from Go modules once, cached, and started in
seconds, several clusters side by side. Nodes are registered without a kubelet: the real scheduler binds pods to
machines that are not here.

    with Cluster() as cluster:
        cluster.register_node("worker-0", cpus=16)
        cluster.kubectl("get", "nodes")
"""

from cluster.client import ApiError, Client
from cluster.cluster import Cluster
from cluster.errors import DevclusterError
from cluster.nodes import NodeHandle

__all__ = ["ApiError", "Client", "Cluster", "DevclusterError", "NodeHandle"]

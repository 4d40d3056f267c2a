"""Nodes of a cluster without kubelets."""

from cluster.namespaces import TOPOLOGIES


def unregister(cluster, handle):
    """Delete a node and its topology, which the garbage collector would take away some time later."""
    handle.delete()
    cluster.client.delete(f"{TOPOLOGIES}/{handle.name}", missing_ok=True)

"""The controller: keeps what Raddle tells about policies and nodes true, while it holds the Lease.

In come policies, topologies, opted-in pods, namespaces and nodes as they change; out go statuses, events, metrics and
the shim's ConfigMaps. ``process`` runs kopf, whose ``handlers`` start, feed and stop the ``controller``; ``state``
holds what is known, as ``facts``; ``status`` and ``freshness`` are the pure decisions; ``reconcile`` carries them out
by a keyed queue; ``shim_reconciler`` keeps the ConfigMaps.
"""

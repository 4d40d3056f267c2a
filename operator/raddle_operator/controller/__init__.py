"""The controller: watches policies, topologies and opted-in pods; writes status, events and metrics; one leads.

``process`` runs kopf, whose ``handlers`` start, feed and stop the ``controller``; ``state`` holds what is known, as
``facts``; ``status`` and ``freshness`` are the pure decisions; ``reconcile`` carries them out by a keyed queue;
``shim_keeper`` keeps the shim's ConfigMaps.
"""

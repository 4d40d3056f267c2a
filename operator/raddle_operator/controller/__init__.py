"""The controller: watches policies, topologies and opted-in pods; writes status, events and metrics; one leads.

``handlers`` holds kopf and nothing but kopf, ``world`` what is known, ``status`` and ``freshness`` the pure decisions,
``reconcile`` carries them out, ``shim_keeper`` keeps the shim's ConfigMaps, ``process`` ties it together.
"""

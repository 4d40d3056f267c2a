"""Raddle itself on a local cluster: the chart installed, its processes run on this machine with their own rights.

with Cluster() as cluster, LocalRaddle(cluster) as raddle:
    raddle.register_machine("big", machines.path("2s16c32t"), cpu_manager_policy="static")
    raddle.start_agent("here")
"""

from localraddle.harness import NAMESPACE, LocalRaddle, Process

__all__ = ["NAMESPACE", "LocalRaddle", "Process"]

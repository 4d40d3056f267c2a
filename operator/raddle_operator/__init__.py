"""Raddle in the cluster, and its command line. `raddle` is the part that also runs inside containers.

Read it in this order: `objects` (what the cluster's objects say), `injection` (what a pod gets, and why), `kube` (the
API server); then the processes: `agent` (a node tells its CPUs), `webhook` (pods get their values), `controller`
(status, events, upkeep) with `certificates`; last `cli`, which starts them and answers people.
"""

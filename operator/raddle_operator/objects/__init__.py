"""What is in the cluster's objects, as frozen types: policies, pods, nodes, quantities, the reasons that Raddle gives.

In come JSON objects from the API server or from a file; out come values whose types and bounds are checked, or an
error that names the field. Nothing here reads or writes anything.
"""

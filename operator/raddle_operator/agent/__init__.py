"""The node agent: publishes what the CPUs of its node are, and keeps that true.

In come sysfs, procfs and the kubelet's settings; out comes one NodeCPUTopology per node. It runs on every node, so it
imports nothing heavy: its client for the API server is its own.
"""

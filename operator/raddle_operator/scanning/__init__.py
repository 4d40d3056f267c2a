"""What pods make of their CPUs without Raddle: who runs a known runtime, with how many threads, and what it should be.

In come pods, nodes' CPUs and policies, and what was measured; out come rows, one for each workload's container. Pure.
"""

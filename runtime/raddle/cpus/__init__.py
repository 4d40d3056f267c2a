"""Which CPUs: sets of them, what a machine has, and where a pool's threads go.

In come a machine and a wish, out comes a CPU set for each worker. A container has no other machine than the one that
its plan carries.
"""

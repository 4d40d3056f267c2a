"""What holds in one process of a container: its CPUs, its quota, the workers beside it.

In come /proc and the cgroup file system and the plan's fields; out comes what the plan comes to here, never more than
was planned.
"""

"""What a container has, for a program on this machine: mounts, variables, CPU quota.

In come a container's variables, mounts and CPU limit, and a command; out come the command that starts the same program
with them, and what the kernel counts in its cgroup.
"""

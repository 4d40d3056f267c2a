"""Reads a machine: from sysfs and procfs, or from a document in which someone has recorded one.

In comes a folder or a JSON object, out comes a `cpus.topology.Machine` with what could not be read. The agent and the
command line use it; a container's plan carries what a shim needs of it.
"""

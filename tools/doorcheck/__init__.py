"""Holds the door to its promise: programs start behind it as they do without it. `python -m doorcheck`.

Programs of this machine that end by themselves with --version or --help run in two surroundings that differ in nothing
but the mounts of the door, as a user without rights, with no network, in process and mount namespaces of their own.
"""

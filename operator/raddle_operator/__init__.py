"""Raddle's processes in the cluster, and its command line. See `raddle` for what also runs inside containers."""

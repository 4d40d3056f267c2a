"""Thread counts, spinning and affinity that fit the container. Standard library only; this module imports nothing."""

__version__ = "0.1.0"

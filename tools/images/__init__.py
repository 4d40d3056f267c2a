"""Builds the container images without a Docker engine and without a registry: `python -m images`."""

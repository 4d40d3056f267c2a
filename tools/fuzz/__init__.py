"""Fuzzers of what reads untrusted text in a container, one a language: `python -m fuzz`."""

"""Fuzzers of what reads untrusted text in a container, one a language, and of placement: `make fuzz`."""

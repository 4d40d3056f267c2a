"""Real runtimes, fetched once below ~/.cache/raddle: CPythons with packages, libonnxruntime, Node.js with its packages.

Each comes from its registry by the registry's own client. What this machine can't have raises UnavailableError, which
skips a test and leaves a row out of a table.
"""

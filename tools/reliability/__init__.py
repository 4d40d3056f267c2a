"""Failures and attacks on a real cluster: each is brought about, and what was promised for it is counted.

`python -m reliability` runs them all and ends with two tables. A check is a function that takes a `World` (clusters,
Raddle's processes, namespaces) and returns a `Result`: figures that it counted, and sentences for what did not hold.
"""

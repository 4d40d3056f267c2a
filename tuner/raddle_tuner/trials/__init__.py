"""Trials of a candidate: a model's inputs, the processes and servers that run it, the load, and what disturbed them."""

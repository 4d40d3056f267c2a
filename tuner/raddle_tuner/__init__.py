"""The tuner: it measures which settings are best for a model or a server, and proves it.

Read it in this order: `search` (what to measure next, and in the end who won), `trials` (a block of load on a program),
`analysis` (what a model is made of); last `cli`, the commands that `raddle` finds by their entry points.
"""

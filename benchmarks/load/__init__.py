"""What a CPU limit does to a serving process, measured from outside it.

A server process loads a model with unmodified code inside a cgroup of its own (`server`, `cgroup`), another process
sends requests at a fixed rate and times them from when they were due (`generator`), one run of the two is one `Run`
(`measure`), and runs of several variants are interleaved and compared (`compare`, `table`).
"""

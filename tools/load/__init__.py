"""What a CPU limit does to a serving process, measured from outside it.

A server process loads a model inside a cgroup of its own (`server`, `programs`, `serving`), alone, beside another
container that keeps a CPU busy (`neighbour`), or as one of several that fill the machine; another process sends
requests at a fixed rate and times them from when they were due, as for `raddle tune` (`raddle_tuner.trials`). One run
of these is one `Run` (`measure`); runs of several variants (`variants`) are interleaved (`compare`), judged (`verdict`)
and written down (`table`), or kept as what each setting showed (`surface`).
"""

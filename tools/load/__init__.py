"""What a CPU limit does to a serving process, measured from outside it.

A server process loads a model inside a cgroup of its own (`server`, `programs`, `serving`), alone or beside another
container that keeps a CPU busy (`neighbour`); another process sends requests at a fixed rate and times them from when
they were due, as for `raddle tune` (`raddle_tuner.trials`). One run of these is one `Run` (`measure`); runs of
several variants (`variants`) are interleaved (`compare`), judged (`verdict`) and written down (`table`).
"""

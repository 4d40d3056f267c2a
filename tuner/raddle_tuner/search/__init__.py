"""The search for the best settings of one model on one kind of node: what to measure next, and what it all says.

In come an objective, the settings that apply, and blocks: what a few seconds of load showed for one candidate. Out come
requests for blocks and, at the end, a result. Nothing here starts a process or looks at a clock, so a real server, a
recorded response surface and a simulation are searched by the same code.
"""

"""The decision: from a pod, its policy and its node to a JSON patch, with the reason for every value.

In come objects and what is known of the cluster; out come operations and outcomes. Nothing here looks at the clock, the
network or the process, so the webhook, `raddle plan` and a test get the same answer.

`decide` tells the story, and enters each of the others once: `matching` (which policy), `injected` (the pod without
what Raddle has put there, on which all is decided), `door` (whether the shim loads), `workers` and `budget` (what a
container may use), `plan_annotations` (its plan), `variables` with `literals` (how it is told), `volumes` (what is
mounted), `json_patch` (all of it, written). `binding` is the second look, when the
node is known.
"""

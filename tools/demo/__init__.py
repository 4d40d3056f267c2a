"""`make demo`: the main job on a real local cluster, and what it gains a real serving process."""

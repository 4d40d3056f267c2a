"""What it costs to follow objects, by our own informer and by each of kopf's ways.

`server` is an API server of canned answers, `ways` follows it in a process of its own, `__main__` measures and prints.
"""

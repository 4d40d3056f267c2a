"""The real controller and webhook on a real API server with 10,000 pods, 1,000 nodes and 200 policies.

`objects` says what the cluster holds, `filling` puts it there, `truth` works out from a plain list what every status
must say, `watching` waits until it does, `figures`, `calls` and `traffic` measure, `phases` is the benchmark itself.
"""

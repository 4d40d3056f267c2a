"""What the shim did in this process, and what was seen of it.

In come the sessions that adapters configure; out come a record in memory; where RADDLE_AGENT names the node's agent,
datagrams to it; and where the plan says observe=runs and the program has prometheus_client, collectors among its own.
"""

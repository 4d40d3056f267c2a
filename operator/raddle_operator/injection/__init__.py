"""The decision: from a pod, its policy and its node to a JSON patch, with the reason for every value.

In come objects and what is known of the cluster; out come operations and outcomes. Nothing here looks at the clock, the
network or the process, so the webhook, `raddle plan` and a test get the same answer.
"""

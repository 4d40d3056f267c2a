"""From limits to numbers, with a reason for each: pure functions of a machine, a budget and a policy.

In come what a pod may use, what the policy asks and the machine where it is known; out comes a `Plan`, and its text in
the pod's annotations. The webhook and the command line use it; a container gets the text.
"""

"""What runs, beside what was planned: a pod's plans, a node's report, and what they differ in and why. Pure."""

"""The servers that Raddle knows: which container runs one, and what that means for its plan.

The rows are data, presets.yaml; `rows` reads them, `matching` finds a container's and applies it to a policy.
"""

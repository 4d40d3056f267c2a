"""The tuner's commands of `raddle`."""

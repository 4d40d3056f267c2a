"""What this package raises on purpose."""


class E2EError(RuntimeError):
    """A node, or Raddle on it, did not come up; the message is meant for people."""

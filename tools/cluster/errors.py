"""The one error that this package raises on purpose: its text says what failed, what there was, and where to look."""


class DevclusterError(RuntimeError):
    """A build or a component failed; the message is meant for people and names the log."""

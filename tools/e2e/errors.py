"""What this package raises on purpose."""


class E2EError(RuntimeError):
    """A step failed; the message is meant for people."""


class E2EUnavailableError(E2EError):
    """No node can run on this machine at all; the message says what is missing."""

"""What a tool or a test says where this machine has not got what it needs: that skips a test, and a row of a table."""


class UnavailableError(Exception):
    """This machine has not got what was asked for; the message says what is missing, and how it is had."""

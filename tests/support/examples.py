"""How many examples a property is tried with, as a share of the profile's: 50 in `make test`, 15 in `make unit`."""

from hypothesis import settings


def examples(share, **more):
    """A decorator: three times as many as elsewhere, or half."""
    return settings(max_examples=max(1, round(share * settings().max_examples)), **more)

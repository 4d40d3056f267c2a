"""The chart as it is by default."""

import pytest

from generate import chart


@pytest.fixture(scope="module")
def default():
    return chart.objects({})

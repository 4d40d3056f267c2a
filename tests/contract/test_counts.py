"""How much there is to know stays what was decided: `python -m generate.counts` prints it."""

import pytest

from generate import counts
from report import ROOT

MOST = {"policy fields": 45, "chart values": 80, "make targets": 20, "shim arrives by": 1, "library tables": 1}


@pytest.fixture(scope="module")
def counted():
    return counts.counts(ROOT)


@pytest.mark.parametrize("what", MOST)
def test_there_is_no_more_of_it_than_was_decided(counted, what):
    assert 0 < counted[what] <= MOST[what]

"""The rows of the table of servers, without running any."""

import pytest
from support.servers import speed
from support.servers.record import BY_LIMIT, FILE, ROWS, SEEN, file, recorded, words


def test_no_two_rows_have_one_label():
    labels = [row.label for row in ROWS]
    assert len(labels) == len(set(labels))


@pytest.mark.parametrize("path", [FILE, BY_LIMIT], ids=lambda path: path.name)
def test_what_is_recorded_says_of_the_rows_what_they_say(path):
    said = [words(row) for row in ROWS if file(row) == path]
    for record in recorded(path):
        assert {name: value for name, value in record.items() if name not in SEEN} in said


@pytest.mark.parametrize(
    ("ratio", "same", "slower"),
    [(0.96, 0.0, False), (0.94, 0.0, True), (0.94, 0.03, False), (0.5, 0.3, True), (3.0, 0.0, False)],
)
def test_what_is_below_stock_by_more_than_it_differs_from_itself_is_slower(ratio, same, slower):
    measured = speed.Speed(stock=1.0, raddle=ratio, ratio=(0.1, ratio, 9.0), same=(0.0, same))
    assert measured.is_slower == slower

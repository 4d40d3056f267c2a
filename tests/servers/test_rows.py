"""The rows of the table of servers, without running any."""

import pytest
from support.servers.record import BY_LIMIT, FILE, ROWS, SEEN, file, recorded, words


def test_no_two_rows_have_one_label():
    labels = [row.label for row in ROWS]
    assert len(labels) == len(set(labels))


@pytest.mark.parametrize("path", [FILE, BY_LIMIT], ids=lambda path: path.name)
def test_what_is_recorded_says_of_the_rows_what_they_say(path):
    said = [words(row) for row in ROWS if file(row) == path]
    for record in recorded(path):
        assert {name: value for name, value in record.items() if name not in SEEN} in said

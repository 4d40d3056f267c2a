"""The rows of the table of servers, without running any."""

import json

from support.servers.record import FILE, ROWS, SEEN, words


def test_no_two_rows_have_one_name():
    names = [row.name for row in ROWS]
    assert len(names) == len(set(names))


def test_what_is_recorded_says_of_the_rows_what_they_say():
    said = {row.name: words(row) for row in ROWS}
    for recorded in json.loads(FILE.read_text())["rows"]:
        assert {name: value for name, value in recorded.items() if name not in SEEN} == said[recorded["name"]]

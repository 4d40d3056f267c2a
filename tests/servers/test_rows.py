"""The rows of the table of servers, without running any."""

from __future__ import annotations

import json

from support.servers.record import FILE, ROWS


def test_no_two_rows_have_one_name():
    names = [row.name for row in ROWS]
    assert len(names) == len(set(names))


def test_the_readmes_rows_have_places_of_their_own():
    places = [row.top for row in ROWS if row.top is not None]
    assert len(places) == len(set(places))


def test_what_is_recorded_is_of_the_rows_and_of_their_versions():
    versions = {row.name: row.program.version for row in ROWS}
    recorded = {row["name"]: row["version"] for row in json.loads(FILE.read_text())["rows"]}
    assert recorded.items() <= versions.items()

"""The table of docs/explanation/preload-injection.md is the one that tests/runtimes/test_reach.py verifies."""

from collections import Counter

from generate.docs import reach as page


def test_every_row_is_on_the_page_once():
    assert max(Counter(row.name for row in page.ROWS).values()) == 1
    assert [row.text for row in page.ROWS if row.text not in page.render()] == []

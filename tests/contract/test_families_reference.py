"""docs/reference/families.md is made from the operator's table, is current, and its rows are whole."""

import pytest

from generate.docs import families as page
from raddle.planning.families import FAMILIES


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_every_family_and_each_of_its_variables_has_a_row(family):
    rows = [line for line in page.render().splitlines() if line.startswith("| `")]
    assert [row.count("|") for row in rows if row.startswith(f"| `{family.name}` |")] == [4]
    for variable in family.variables:
        (row,) = [row for row in rows if row.startswith(f"| `{variable.name}` |")]
        assert row.count("|") == 5
        assert f"`{family.name}`" in row

"""docs/reference/chart-values.md is made from the chart's values, is current, and explains each of them."""

import json

import yaml

from generate import chart
from generate.docs import chartvalues as page

TEXT = (chart.CHART / "values.yaml").read_text()
SCHEMA = json.loads((chart.CHART / "values.schema.json").read_text())


def test_every_value_is_explained_and_bounded():
    for value in page.values(yaml.safe_load(TEXT), SCHEMA, page.comments(TEXT)):
        assert value.description, f"{value.path} has no comment in values.yaml"
        assert value.allowed


def test_a_comment_belongs_to_the_key_below_it_and_lines_are_joined():
    text = "a:\n  # One\n  # two.\n  b: 1\n  c: 2\n# Three.\nd: []\n"
    assert page.comments(text) == {"a.b": "One two.", "d": "Three."}


def test_what_is_allowed_is_said_in_words():
    schema = {"definitions": {"word": {"type": "string"}}}
    for node, words in (
        ({"enum": ["A", "B", "C"]}, "`A`, `B` or `C`"),
        ({"type": "boolean"}, "`true` or `false`"),
        ({"type": "integer", "minimum": 1, "maximum": 30}, "1 to 30"),
        ({"type": "array", "items": {"$ref": "#/definitions/word"}}, "list of strings"),
        ({"type": "object"}, "map"),
    ):
        assert page.allowed(node, schema) == words

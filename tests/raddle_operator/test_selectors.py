"""Label selectors match as Kubernetes' own do."""

import contextlib

import pytest
from hypothesis import given
from support import strategies

from raddle_operator.objects.selectors import SelectorError, compile_selector, to_query

LABELS = {"app": "resnet", "tier": "gpu"}


def expression(key, operator, *values):
    return {"matchExpressions": [{"key": key, "operator": operator, **({"values": list(values)} if values else {})}]}


@pytest.mark.parametrize(
    ("selector", "matches"),
    [
        (None, True),
        ({}, True),
        ({"matchLabels": {"app": "resnet"}}, True),
        ({"matchLabels": {"app": "resnet", "tier": "cpu"}}, False),
        ({"matchLabels": {"absent": "x"}}, False),
        (expression("app", "In", "bert", "resnet"), True),
        (expression("app", "In", "bert"), False),
        (expression("absent", "In", "bert"), False),
        (expression("app", "NotIn", "bert"), True),
        (expression("app", "NotIn", "resnet"), False),
        (expression("absent", "NotIn", "bert"), True),
        (expression("app", "Exists"), True),
        (expression("absent", "Exists"), False),
        (expression("app", "DoesNotExist"), False),
        (expression("absent", "DoesNotExist"), True),
        ({"matchLabels": {"app": "resnet"}, **expression("tier", "In", "cpu")}, False),
    ],
)
def test_a_selector_matches_as_in_kubernetes(selector, matches):
    assert compile_selector(selector).matches(LABELS) is matches


@pytest.mark.parametrize(
    ("selector", "path"),
    [
        ("app=resnet", ""),
        ({"matchLables": {"app": "resnet"}}, "matchLables"),
        ({"matchLabels": ["app"]}, "matchLabels"),
        ({"matchLabels": {"app": 1}}, "matchLabels.app"),
        ({"matchExpressions": {}}, "matchExpressions"),
        ({"matchExpressions": [1]}, "matchExpressions[0]"),
        (expression("", "Exists"), "matchExpressions[0].key"),
        (expression("app", "Near"), "matchExpressions[0].operator"),
        (expression("app", "In"), "matchExpressions[0].values"),
        (expression("app", "Exists", "x"), "matchExpressions[0].values"),
    ],
)
def test_a_selector_that_cannot_be_used_is_refused_by_its_part(selector, path):
    with pytest.raises(SelectorError) as error:
        compile_selector(selector)
    assert error.value.path == path


@given(strategies.JSON)
def test_any_json_is_a_selector_or_a_selector_error(selector):
    with contextlib.suppress(SelectorError):
        compile_selector(selector).matches(LABELS)


@pytest.mark.parametrize(
    ("selector", "query"),
    [
        ({}, ""),
        ({"matchLabels": {"app": "web", "tier": "front"}}, "app=web,tier=front"),
        ({"matchLabels": {"app": "web"}, "matchExpressions": [{"key": "a", "operator": "In", "values": ["x", "y"]},
         {"key": "b", "operator": "NotIn", "values": ["z"]}, {"key": "c", "operator": "Exists"}, {"key": "d",
         "operator": "DoesNotExist"}]}, "app=web,a in (x,y),b notin (z),c,!d"),
    ],
)  # fmt: skip
def test_a_selector_is_the_query_of_a_list(selector, query):
    assert to_query(selector) == query

"""Label selectors, compiled once and matched often.

The rules are Kubernetes' own (staging/src/k8s.io/apimachinery/pkg/labels/selector.go): requirements are ANDed,
NotIn and DoesNotExist hold for a label that is absent, and the empty selector matches everything.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

_WITH_VALUES: Final = ("In", "NotIn")
_WITHOUT_VALUES: Final = ("Exists", "DoesNotExist")
_MAX_REQUIREMENTS: Final = 64
_MAX_VALUES: Final = 64


class SelectorError(ValueError):
    """A selector that can't be used. `path` is dotted from the selector, "" for the selector itself."""

    def __init__(self, path: str, message: str) -> None:
        super().__init__(f"{path}: {message}" if path else message)
        self.path = path
        self.message = message


@dataclass(frozen=True, slots=True)
class Selector:
    """A compiled LabelSelector: pairs that must be there, and requirements as (key, values, present, absent).

    `values` None asks nothing of the value; `present` and `absent` say whether a label with one of the values
    (or any value) and an absent label satisfy the requirement.
    """

    pairs: Mapping[str, str]
    requirements: tuple[tuple[str, frozenset[str] | None, bool, bool], ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """True when every requirement holds for the labels."""
        if not self.pairs.items() <= labels.items():
            return False
        for key, values, present, absent in self.requirements:
            value_there = labels.get(key)
            if value_there is None:
                if not absent:
                    return False
            elif (values is None or value_there in values) is not present:
                return False
        return True


EVERYTHING: Final = Selector({})


def compile_selector(selector: Any) -> Selector:
    """The compiled form of a LabelSelector as JSON. None and {} match everything.

    Raises SelectorError naming the part that the API server's schema would have refused too.
    """
    if selector is None:
        return EVERYTHING
    if not isinstance(selector, Mapping):
        raise SelectorError("", f"is {_kind(selector)}, must be an object")
    unknown = [key for key in selector if key not in ("matchLabels", "matchExpressions")]
    if unknown:
        # An unknown part that is ignored would select more than was meant.
        raise SelectorError(str(unknown[0])[:64], "is not a part of a selector: matchLabels or matchExpressions")
    expressions = selector.get("matchExpressions")
    if expressions is None:
        expressions = []
    if not isinstance(expressions, list) or len(expressions) > _MAX_REQUIREMENTS:
        raise SelectorError("matchExpressions", f"must be a list of at most {_MAX_REQUIREMENTS} requirements")
    requirements = tuple(_requirement(expression, index) for index, expression in enumerate(expressions))
    return Selector(_pairs(selector.get("matchLabels")), requirements)


def to_query(selector: Mapping[str, Any]) -> str:
    """A LabelSelector that the API server has taken, as the text of a list's `labelSelector`; "" selects everything."""
    texts = [f"{key}={value}" for key, value in (selector.get("matchLabels") or {}).items()]
    for expression in selector.get("matchExpressions") or ():
        key, values = expression["key"], ",".join(expression.get("values") or ())
        texts.append(
            {"In": f"{key} in ({values})", "NotIn": f"{key} notin ({values})", "DoesNotExist": f"!{key}"}.get(
                expression["operator"], key
            )
        )
    return ",".join(texts)


def _pairs(pairs: Any) -> dict[str, str]:
    if pairs is None:
        return {}
    if not isinstance(pairs, Mapping):
        raise SelectorError("matchLabels", f"is {_kind(pairs)}, must be an object")
    for key, value in pairs.items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise SelectorError(f"matchLabels.{str(key)[:64]}", f"is {_kind(value)}, must be text")
    return dict(pairs)


def _requirement(expression: Any, index: int) -> tuple[str, frozenset[str] | None, bool, bool]:
    path = f"matchExpressions[{index}]"
    if not isinstance(expression, Mapping):
        raise SelectorError(path, f"is {_kind(expression)}, must be an object")
    key, operator, values = expression.get("key"), expression.get("operator"), expression.get("values")
    if not isinstance(key, str) or not key:
        raise SelectorError(f"{path}.key", "must be a label key")
    if operator in _WITHOUT_VALUES:
        if values not in (None, []):
            raise SelectorError(f"{path}.values", f"must be absent for {operator}")
        return key, None, operator == "Exists", operator == "DoesNotExist"
    if operator not in _WITH_VALUES:
        allowed = ", ".join((*_WITH_VALUES, *_WITHOUT_VALUES))
        raise SelectorError(f"{path}.operator", f"is {str(operator)[:64]!r}, must be one of {allowed}")
    if not isinstance(values, list) or not 0 < len(values) <= _MAX_VALUES:
        raise SelectorError(f"{path}.values", f"must be a list of 1 to {_MAX_VALUES} values for {operator}")
    if not all(isinstance(value, str) for value in values):
        raise SelectorError(f"{path}.values", "must be texts")
    return key, frozenset(values), operator == "In", operator == "NotIn"


def _kind(value: Any) -> str:
    return "absent" if value is None else f"of type {type(value).__name__}"

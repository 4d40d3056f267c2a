"""Kubernetes quantities ("1500m", "2Gi") as exact numbers.

An own strict parser, because `kubernetes.utils.quantity` brings its whole client into modules that are to stay free
of it, and accepts what the API server does not ("NaN", "Infinity", "1_000"), which then breaks comparisons.
The grammar is that of staging/src/k8s.io/apimachinery/pkg/api/resource/quantity.go.
"""

from __future__ import annotations

import re
from decimal import Decimal
from functools import lru_cache
from typing import Any, Final

_FORM: Final = re.compile(
    r"\+?([0-9]{1,30}(?:\.[0-9]{0,30})?|\.[0-9]{1,30})([numkMGTPE]|[KMGTPE]i|[eE][+-]?[0-9]{1,2}|)"
)
_SCALE: Final = {
    "n": Decimal("1e-9"),
    "u": Decimal("1e-6"),
    "m": Decimal("1e-3"),
    "": Decimal(1),
    **{suffix: Decimal(1000) ** power for power, suffix in enumerate("kMGTPE", 1)},
    **{suffix + "i": Decimal(1024) ** power for power, suffix in enumerate("KMGTPE", 1)},
}
_MAX_LENGTH: Final = 64


class QuantityError(ValueError):
    """Text that is no quantity, or a negative one; the message quotes it."""


def parse(quantity: Any) -> Decimal:
    """The number that a quantity stands for; JSON numbers are taken as they are.

    Raises QuantityError for anything that is not a quantity of zero or more.
    """
    if isinstance(quantity, str) and len(quantity) <= _MAX_LENGTH:
        return _parse_text(quantity)
    if isinstance(quantity, (int, float)) and not isinstance(quantity, bool) and 0 <= quantity < 2**63:
        return _parse_text(repr(quantity))
    raise QuantityError(f"{str(quantity)[:_MAX_LENGTH]!r} is not a quantity")


@lru_cache(maxsize=4096)
def _parse_text(text: str) -> Decimal:
    form = _FORM.fullmatch(text)
    if form is None:
        raise QuantityError(f"{text!r} is not a quantity of zero or more")
    number, suffix = form.groups()
    scale = _SCALE.get(suffix)
    return Decimal(number) * scale if scale is not None else Decimal(number + suffix)

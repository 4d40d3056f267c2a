"""Quantities are read as the API server reads them."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kubernetes.utils.quantity import parse_quantity

from raddle_operator.objects.quantities import QuantityError, parse


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("0", 0), ("1", 1), ("500m", "0.5"), ("1500m", "1.5"), ("0.1", "0.1"), (".5", "0.5"), ("2.", 2), ("+1", 1),
        ("100u", "0.0001"), ("1n", "1e-9"), ("1k", 1000), ("2M", 2000000), ("1Ki", 1024), ("1.5Gi", 1610612736),
        ("1E", "1e18"), ("1Ei", 2**60), ("1e3", 1000), ("1E2", 100), ("12e-1", "1.2"), (2, 2), (0.25, "0.25"),
    ],
)  # fmt: skip
def test_a_quantity_is_an_exact_number(text, number):
    assert parse(text) == Decimal(number)


@pytest.mark.parametrize(
    "text",
    ["", " ", "1 ", "-1", "one", "1mm", "1ki", "1mi", "0x10", "NaN", "Infinity", "1_000", "1e999", "٣", "9" * 65, "1K",
     None, True, [], {}, -1, float("inf"), float("nan"), 2**63],
)  # fmt: skip
def test_what_is_no_quantity_is_refused(text):
    with pytest.raises(QuantityError):
        parse(text)


@given(st.from_regex(r"[0-9]{1,6}(\.[0-9]{1,3})?(n|u|m|k|M|G|Ki|Mi|Gi)?", fullmatch=True))
def test_it_agrees_with_the_kubernetes_client(text):
    assert parse(text) == parse_quantity(text)

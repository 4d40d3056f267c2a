"""The values of the command's options, read."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import click
import yaml

from raddle_operator.results.candidate import Value
from raddle_operator.results.objective import Kind, Objective
from raddle_tuner.trials import inputs, kserve

MS: Final = {"us": 1e-3, "ms": 1.0, "s": 1e3}
S: Final = {"s": 1.0, "m": 60.0, "h": 3600.0}
# What can be told of a model alone, and of the two ways to ask a server.
_WAYS: Final = {
    "request": ("--http",),
    "header": ("--http", "--kserve-v2"),
    "callers": ("--http", "--kserve-v2"),
    "inputs": ("MODEL", "--kserve-v2"),
    "shape": ("MODEL", "--kserve-v2"),
    "runner": ("MODEL",),
    "runtime": ("MODEL",),
}
_AMOUNT: Final = re.compile(r"(\d+(?:\.\d+)?)([a-z]+)")


def time(units: Mapping[str, float], example: str) -> Callable[[click.Context, click.Parameter, str | None], Any]:
    """For click: a time with one of these units, in the one that counts 1. Raises BadParameter."""

    def parsed(ctx: click.Context, param: click.Parameter, value: str | None) -> float | None:
        del ctx, param
        if value is None:
            return None
        result = _AMOUNT.fullmatch(value)
        if result is None or result[2] not in units or not float(result[1]):
            raise click.BadParameter(f"{value!r} is not a duration; write it as {example}, in {', '.join(units)}")
        return float(result[1]) * units[result[2]]

    return parsed


def narrowed(ctx: click.Context, param: click.Parameter, values: Sequence[str]) -> dict[str, list[Value]]:
    """For click: settings with the values that are left. Raises BadParameter."""
    del ctx, param
    result: dict[str, list[Value]] = {}
    for value in values:
        path, sign, words = value.partition("=")
        if not sign or not path:
            raise click.BadParameter(f"{value!r} is not a setting with values; write threads.intraOp=1,2,4")
        result[path] = [_scalar(word) for word in words.split(",") if word]
    return result


def _scalar(word: str) -> Value:
    """Raises BadParameter."""
    try:
        value = yaml.safe_load(word)
    except yaml.YAMLError:
        value = None
    if not isinstance(value, bool | int | float | str):
        raise click.BadParameter(f"{word!r} is not a value: write words, numbers, true or false")
    return value


def shapes(ctx: click.Context, param: click.Parameter, values: Sequence[str]) -> dict[str, inputs.Shape]:
    """For click: inputs with their shapes. Raises BadParameter."""
    del ctx, param
    try:
        return dict(inputs.parsed_shape(value) for value in values)
    except inputs.InputError as error:
        raise click.BadParameter(str(error)) from None


def headers(ctx: click.Context, param: click.Parameter, values: Sequence[str]) -> dict[str, str]:
    """For click: a request's headers. Raises BadParameter."""
    del ctx, param
    pairs = [value.partition(":") for value in values]
    if any(not sign for _, sign, _ in pairs):
        raise click.BadParameter("write NAME: VALUE")
    return {name.strip(): value.strip() for name, _, value in pairs}


def url(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """For click: a URL of HTTP. Raises BadParameter."""
    del ctx, param
    if value is not None and not value.startswith(("http://", "https://")):
        raise click.BadParameter(f"{value!r} is not a URL; write http://127.0.0.1:{{port}}/...")
    return value


def model_url(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """For click: a model's URL by the KServe v2 protocol. Raises BadParameter."""
    result = url(ctx, param, value)
    try:
        if result is not None:
            kserve.server_url(result)
    except inputs.InputError as error:
        raise click.BadParameter(str(error)) from None
    return result


def check(http: str | None, kserve_v2: str | None, **given: Any) -> None:
    """Raises UsageError for options that do not go together; `given` are those of _WAYS, by name."""
    if http and kserve_v2:
        raise click.UsageError("--http and --kserve-v2 exclude each other")
    way = "--http" if http else "--kserve-v2" if kserve_v2 else "MODEL"
    for name, value in given.items():
        if value and way not in _WAYS[name]:
            raise click.UsageError(f"--{name} requires {' or '.join(_WAYS[name])}")


def objective(name: str | None, rate: float | None, p99_ms: float | None) -> Objective:
    """What is best; without a name latency where there is a rate, else throughput. Raises UsageError."""
    kind = Kind(name.capitalize()) if name else (Kind.LATENCY if rate is not None else Kind.THROUGHPUT)
    if kind is not Kind.THROUGHPUT and rate is None:
        raise click.UsageError(f"--objective {kind.value.lower()} requires --rate, in requests per second")
    if kind is Kind.THROUGHPUT and rate is not None:
        raise click.UsageError("--objective throughput finds the rate itself; omit --rate")
    return Objective(kind=kind, rate=rate, p99_ms=p99_ms)

"""presets.yaml as frozen values, read once: its header says what a row's fields are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from importlib import resources
from typing import Any, Final

import yaml

from raddle.planning.families import NAMES
from raddle.planning.policy import parse

FILE: Final = "presets.yaml"
CPUS, CORES, LIMIT, OWN, APP = STOCK = ("cpus", "cores", "limit", "own", "app")


@dataclass(frozen=True, kw_only=True)
class Preset:
    """One row; see the header of presets.yaml. Equal by name: there is one of each."""

    name: str
    title: str = field(compare=False)
    source: str = field(compare=False)
    images: tuple[str, ...] = field(default=(), compare=False)
    commands: tuple[str, ...] = field(default=(), compare=False)
    accelerator: bool | None = field(default=None, compare=False)
    variables: Mapping[str, str] = field(default_factory=dict, compare=False)
    runtimes: tuple[str, ...] = field(default=(), compare=False)
    beaten_by: Mapping[str, tuple[str, ...]] = field(default_factory=dict, compare=False)
    flags: tuple[str, ...] = field(default=(), compare=False)
    stock: str = field(default=CPUS, compare=False)
    alone: str = field(default="", compare=False)
    unless: Mapping[str, str] = field(default_factory=dict, compare=False)
    advice: str = field(default="", compare=False)
    processes: bool = field(default=False, compare=False)


@cache
def presets() -> tuple[Preset, ...]:
    """All rows, in the file's order. Raises ValueError for one that is not as the header says."""
    text = (resources.files(__package__) / FILE).read_text()
    result = tuple(map(_preset, yaml.safe_load(text)))
    if len({one.name for one in result}) < len(result):
        raise ValueError(f"{FILE}: two rows have one name")
    return result


def _preset(row: Mapping[str, Any]) -> Preset:
    known = {one.name for one in fields(Preset)}
    if not known.issuperset(row) or not (row.get("images") or row.get("commands")):
        raise ValueError(f"{FILE}: {row}: fields are {', '.join(sorted(known))}, with images or commands")
    if not set(row.get("runtimes", ())) <= set(NAMES):
        raise ValueError(f"{FILE}: {row['name']}: runtimes are {', '.join(NAMES)}")
    stock = str(row.get("stock", CPUS))
    if stock not in STOCK and not stock.isdecimal():
        raise ValueError(f"{FILE}: {row['name']}: stock is {', '.join(STOCK)} or a number")
    # As a policy's own: by the same rules, PolicyError is a ValueError.
    parse({"variables": row.get("variables", {})})
    frozen: dict[str, Any] = {n: tuple(value) if isinstance(value, list) else value for n, value in row.items()}
    frozen["beaten_by"] = {name: tuple(others) for name, others in row.get("beaten_by", {}).items()}
    return Preset(**frozen)

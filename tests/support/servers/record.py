"""What was seen of the rows: whether it is what a row says, and the file that the page of servers is made of."""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import report
from raddle import delivery
from raddle_operator.local.container import Container
from support.servers.lab import Seen
from support.servers.row import Row, Way
from support.servers.speed import Speed

FILE: Final = report.ROOT / "docs" / "reference" / "servers.json"
# Who is reached had at least so many times as many threads.
TIMES: Final = 2
SEEN: Final = ("stock", "raddle", "advised", "speed")


def _rows() -> Iterator[Row]:
    for path in sorted(Path(__file__).with_name("rows").glob("[a-z]*.py")):
        yield from importlib.import_module(f"support.servers.rows.{path.stem}").ROWS


ROWS: Final = tuple(_rows())


def wrong(row: Row, container: Container, stock: Seen, raddle: Seen, advised: Seen | None) -> list[str]:
    """What is not as the row says."""
    found = [f"{name} is not set" for name in row.variables if name not in container.variables]
    last = advised or raddle
    if row.way is not Way.LEFT_ALONE and last.threads > row.most:
        found.append(f"{last.threads} threads, more than {row.most}")
    # What is advised may spare a few only.
    least = last.threads + 1 if row.way is Way.ADVICE else TIMES * last.threads
    if row.way in (Way.VARIABLE, Way.SHIM, Way.PRESET, Way.ADVICE) and stock.threads < least:
        found.append(f"{stock.threads} threads stock, {last.threads} now: hardly a difference")
    if row.way is Way.SHIM and delivery.PRELOAD_FILE not in container.mounts:
        found.append("no shim is mounted")
    if row.way is Way.LEFT_ALONE and raddle.threads < stock.threads / TIMES:
        found.append(f"{stock.threads} threads stock, {raddle.threads} now: it is not left alone")
    if row.way is Way.ITSELF and stock.threads > row.most:
        found.append(f"{stock.threads} threads stock: it does not read the limit")
    if row.reason and not any(row.reason in note for note in container.notes):
        found.append(f"no {row.reason} among {container.notes}")
    return found


def of(row: Row, stock: Seen, raddle: Seen, advised: Seen | None, measured: Speed | None) -> dict[str, Any]:
    """The record of a row."""
    found: dict[str, Any] = {**words(row), "stock": _told(stock), "raddle": _told(raddle)}
    if advised:
        found["advised"] = _told(advised)
    if measured:
        found["speed"] = {name: _rounded(value) for name, value in asdict(measured).items()}
    return found


def _rounded(value: float | Sequence[float]) -> float | list[float]:
    return float(f"{value:.3g}") if isinstance(value, float) else [float(f"{one:.3g}") for one in value]


def words(row: Row) -> dict[str, Any]:
    """What its record has of the row itself, without what was seen."""
    found = {
        "name": row.name,
        "registry": row.program.registry,
        "package": row.program.package,
        "version": row.program.version,
        "way": str(row.way),
        "by": row.by,
        "why": row.why,
    }
    return {name: value for name, value in found.items() if value}


def _told(seen: Seen) -> dict[str, int]:
    return {name: value for name, value in asdict(seen).items() if value is not None}


def write(new: Mapping[str, Any]) -> None:
    """Write this record, and of other rows what was seen of them."""
    told = json.loads(FILE.read_text())["rows"] if FILE.exists() else []
    found = {_same(one): one for one in told}
    # A run without --speed leaves what one with it has measured.
    measured = found.get(_same(new), {}).get("speed")
    found[_same(new)] = {**({"speed": measured} if measured else {}), **new}
    rows = [_with_seen(said, found[_same(said)]) for said in map(words, ROWS) if _same(said) in found]
    FILE.write_text(report.folded_json({"machine": report.machine(), "rows": rows}) + "\n")


def _same(record: Mapping[str, Any]) -> tuple[str, ...]:
    """What was seen holds for a row of this name, version and way only."""
    return record["name"], record["version"], record["way"]


def _with_seen(said: Mapping[str, Any], record: Mapping[str, Any]) -> dict[str, Any]:
    return {**said, **{name: record[name] for name in SEEN if name in record}}

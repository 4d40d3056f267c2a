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
# The rows without a way.
BY_LIMIT: Final = FILE.with_name("servers-by-limit.json")
# Who is reached had at least so many times as many threads.
TIMES: Final = 2
SEEN: Final = ("stock", "raddle", "advised", "slower", "speed")


def _rows() -> Iterator[Row]:
    for path in sorted(Path(__file__).with_name("rows").glob("[a-z]*.py")):
        yield from importlib.import_module(f"support.servers.rows.{path.stem}").ROWS


ROWS: Final = tuple(_rows())


def wrong(
    row: Row, container: Container, stock: Seen, raddle: Seen, advised: Seen | None, measured: Speed | None
) -> list[str]:
    """What is not as the row says."""
    if row.way is None:
        return [f"slower than stock: {measured}"] if measured and measured.is_slower else []
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
    told = _told if row.way else _told_of_each
    found: dict[str, Any] = {**words(row), "stock": told(stock), "raddle": told(raddle)}
    if advised:
        found["advised"] = told(advised)
    if measured:
        if row.way is None:
            found["slower"] = measured.is_slower
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
        **({"way": str(row.way), "by": row.by} if row.way else {"limit": row.limit_cpus}),
        "why": row.why,
    }
    return {name: value for name, value in found.items() if value}


def _told(seen: Seen) -> dict[str, Any]:
    return _without_none({"threads": seen.threads, "processes": seen.processes, "says": seen.says})


def _told_of_each(seen: Seen) -> dict[str, Any]:
    return _without_none(asdict(seen))


def _without_none(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def file(row: Row) -> Path:
    """Where its record is."""
    return FILE if row.way else BY_LIMIT


def recorded(path: Path) -> list[dict[str, Any]]:
    """The records of a file."""
    found: list[dict[str, Any]] = json.loads(path.read_text())["rows"] if path.exists() else []
    return found


def write(row: Row, new: Mapping[str, Any]) -> None:
    """Write this record of the row, and of other rows what was seen of them."""
    path = file(row)
    found = {_same(one): one for one in recorded(path)}
    # A run without --speed leaves what one with it has measured.
    measured = found.get(_same(new), {}).get("speed")
    found[_same(new)] = {**({"speed": measured} if measured else {}), **new}
    of_rows = [words(one) for one in ROWS if file(one) == path]
    rows = [_with_seen(said, found[_same(said)]) for said in of_rows if _same(said) in found]
    path.write_text(report.folded_json({"machine": report.machine(), "rows": rows}) + "\n")


def _same(record: Mapping[str, Any]) -> tuple[Any, ...]:
    """What was seen holds for a row of this name and version, and of this way or limit, only."""
    return tuple(record.get(name) for name in ("name", "version", "way", "limit"))


def _with_seen(said: Mapping[str, Any], record: Mapping[str, Any]) -> dict[str, Any]:
    return {**said, **{name: record[name] for name in SEEN if name in record}}

"""A surface: on one machine, for each of its cells, what every setting showed. It is a file small enough to commit.

A setting is `stock` or what `variants.fixed` reads. It has its figures once for each run, so that their spread is kept.
"""

from __future__ import annotations

import importlib.metadata
import itertools
import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, fields, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import report
from load import measure, table, variants
from load.compare import Progress, Row
from load.measure import Cell
from load.store import Store
from raddle.machine import sysfs
from raddle.planning.load import PERIOD_S
from raddle_operator.local import quota

FOLDER = report.ROOT / "benchmarks" / "surfaces"
# Two runs say how far equal ones lie apart; the time is better spent on more cells.
SIZE = table.Size(repetitions=2, requests=200, seconds=(20 * PERIOD_S, 40 * PERIOD_S), attempts=2)


class Figures(NamedTuple):
    """What one run showed, or several together; names are the columns of the file."""

    p50_ms: float
    p99_ms: float
    cpu_ms_per_request: float
    throttled_percent: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """Where a surface was measured."""

    cpu_model: str
    cpus: int
    cores: int
    cgroup_version: int
    onnxruntime: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SurfaceCell:
    """One cell: a request takes `service_ms` on one thread; each setting's runs."""

    conditions: Cell
    service_ms: float
    settings: Mapping[str, tuple[Figures, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Surface:
    """One file. `date` is when it was measured."""

    machine: Machine
    date: str
    cells: tuple[SurfaceCell, ...]


# --- files ----------------------------------------------------------------------------------------------------------


def text(surface: Surface) -> str:
    """The file's text. What a cell does not name of its conditions is as usual."""
    cells = [
        {
            "conditions": {
                name: value for name, value in asdict(cell.conditions).items() if value != _USUAL.get(name, MISSING)
            },
            "service_ms": cell.service_ms,
            "settings": {name: [list(map(_rounded, run)) for run in runs] for name, runs in cell.settings.items()},
        }
        for cell in surface.cells
    ]
    document = {
        "machine": asdict(surface.machine),
        "date": surface.date,
        "figures": list(Figures._fields),
        "cells": cells,
    }
    return report.folded_json(document) + "\n"


def read(path: Path) -> Surface:
    """The surface of a file."""
    document: dict[str, Any] = json.loads(path.read_text())
    assert document["figures"] == list(Figures._fields)
    cells = [
        SurfaceCell(
            conditions=Cell(**cell["conditions"]),
            service_ms=cell["service_ms"],
            settings={name: tuple(Figures(*run) for run in runs) for name, runs in cell["settings"].items()},
        )
        for cell in document["cells"]
    ]
    machine = Machine(**document["machine"])
    return Surface(machine=machine, date=document["date"], cells=tuple(cells))


def committed() -> list[Path]:
    """The surfaces of this repository."""
    return sorted(FOLDER.glob("*.json"))


_USUAL = {field.name: field.default for field in fields(Cell) if field.default is not MISSING}


def _rounded(value: float) -> float:
    return float(f"{value:.4g}")


# --- measuring ------------------------------------------------------------------------------------------------------


def measured(store: Store, machine: Machine, *, progress: Progress, minutes: float) -> Surface:
    """As many cells of this machine as there is time for, stock and all fixed settings in each."""
    result = table.measured(
        shapes(machine.cpus),
        SIZE,
        store,
        competitors=lambda cell, _service_s, _shim: variants.without_raddle(cell),
        progress=progress,
        minutes=minutes,
    )
    return Surface(
        machine=machine,
        date=datetime.now(UTC).strftime("%Y-%m-%d"),
        cells=tuple(of_rows(rows, result.service_s[rows[0].cell.runtime, rows[0].cell.model]) for rows in result.cells),
    )


def shapes(cpus: int) -> list[Cell]:
    """The cells of a machine with so many CPUs, without rates: those first that are as usual, mixed among each other.

    A part of the list is so a sample. Of callers, arrivals, containers and exclusive CPUs at most one is not as usual:
    there is no time for all that could be combined.
    """
    limits = [None, *(float(2**power) for power in range(cpus.bit_length()) if 2**power <= cpus)]
    result = []
    for model, limit_cpus, share in itertools.product(table.RUN_TIMES, limits, table.SHARES_PERCENT):
        limit = int(limit_cpus or cpus)
        unusual: list[dict[str, Any]] = [{"callers": callers} for callers in sorted({2, limit, 4 * limit} - {1})]
        unusual += [{"arrivals": arrivals} for arrivals in measure.ARRIVALS if arrivals != measure.REGULAR]
        unusual += [{"containers": cpus // limit}, {"exclusive": True}] * (cpus // limit > 1)
        result += [
            Cell(model=model.name, limit_cpus=limit_cpus, requests_per_s=None, share_percent=share, **one)
            for one in ({}, *unusual)
        ]
    random.Random(0).shuffle(result)
    return sorted(result, key=_unusual)


def _unusual(cell: Cell) -> int:
    usual = replace(cell, callers=1, arrivals=measure.REGULAR, containers=1, exclusive=False)
    return (cell != usual) + (cell.share_percent != 50)


def of_rows(rows: Sequence[Row], service_s: float) -> SurfaceCell:
    """The cell that these rows are, as variants.without_raddle names them."""
    cell = rows[0].cell
    settings = {variants.fixed(cell.runtime, setting).name: setting for setting in variants.settings_here(cell)}
    return SurfaceCell(
        conditions=cell,
        service_ms=_rounded(1000 * service_s),
        settings={
            settings.get(row.variant, row.variant): tuple(
                Figures(one.p50_ms, one.p99_ms, one.cpu_ms_per_request, one.throttled_percent or 0.0)
                for one in row.runs
            )
            for row in rows
        },
    )


def here() -> Machine:
    """This machine. Raises quota.UnavailableError where no group can be made."""
    machine = sysfs.read_machine()
    with quota.limited(None) as group:
        return Machine(
            cpu_model=report.machine().partition(",")[0],
            cpus=machine.online.bit_count(),
            cores=len(machine.cores),
            cgroup_version=group.version,
            onnxruntime=importlib.metadata.version("onnxruntime"),
        )

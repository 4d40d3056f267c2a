"""What every benchmark prints: the machine, medians with their spread, budgets beside figures, sections of the docs.

docs/benchmarks.md holds no figure that a command did not write: each benchmark owns the text between two marker lines,
`<!-- begin NAME -->` and `<!-- end NAME -->`, and replaces it whole.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
DOCUMENT = ROOT / "docs" / "benchmarks.md"
_LINE = 120
_PREFACE = "# Benchmarks\n\nEvery figure on this page was written by the command that its section names.\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """One line of a budget table. `allowed` and `value` are in `unit`; `at_least`: more is better."""

    what: str
    value: float
    allowed: float
    unit: str = ""
    at_least: bool = False

    @property
    def met(self) -> bool:
        """Whether the value keeps the budget."""
        return self.value >= self.allowed if self.at_least else self.value <= self.allowed

    def cells(self) -> list[str]:
        """For a table: what, measured, budget, verdict."""
        sign = "≥" if self.at_least else "≤"
        unit = f" {self.unit}" if self.unit else ""
        return [
            self.what,
            f"{self.value:.4g}{unit}",
            f"{sign} {self.allowed:g}{unit}",
            "kept" if self.met else "missed",
        ]


BUDGET_HEADINGS = ("what", "measured", "budget", "")


def machine() -> str:
    """One line that says where figures come from: CPU model and count, memory, kernel, Python, revision, date."""
    model = next(
        (line.partition(":")[2].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")),
        platform.machine(),
    )
    memory_kib = next((int(line.split()[1]) for line in _lines("/proc/meminfo") if line.startswith("MemTotal")), 0)
    virtual = ", a virtual machine" if any(" hypervisor" in line for line in _lines("/proc/cpuinfo")) else ""
    parts = [
        f"{model}, {os.cpu_count()} CPUs{virtual}",
        f"{memory_kib / 1048576:.0f} GiB",
        f"Linux {platform.release()}",
        f"Python {platform.python_version()}",
        f"revision {revision()}",
        datetime.now(tz=UTC).strftime("%Y-%m-%d"),
    ]
    return "; ".join(parts)


def revision() -> str:
    """The short commit id, with "+" if tracked files differ from it; "unknown" outside a checkout."""
    command = ["git", "-C", str(ROOT), "describe", "--always", "--dirty=+", "--abbrev=10", "--exclude=*"]
    result = subprocess.run(command, check=False, capture_output=True, text=True)
    return result.stdout.strip() or "unknown"


def apart(values: Sequence[float]) -> float:
    """A/A: how far the medians of two halves of the values, taken in turns, lie apart, which is what chance does."""
    return abs(statistics.median(values[::2]) - statistics.median(values[1::2]))


def added(without: Sequence[float], with_it: Sequence[float]) -> tuple[float, float]:
    """(by how much the second median is higher, the A/A difference of the first)."""
    return statistics.median(with_it) - statistics.median(without), apart(without)


def short(value: float) -> str:
    """Three significant digits, never an exponent: 0.0123, 1.43, 49.8, 1881."""
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"


def whole(value: float) -> str:
    """A whole number."""
    return f"{value:.0f}"


def spread(values: Sequence[float], form: Callable[[float], str] = short) -> str:
    """Median and range: "1.43 (1.4–1.51)"; one of them if they read the same."""
    low, middle, high = (form(value) for value in (min(values), statistics.median(values), max(values)))
    return middle if low == high else f"{middle} ({low}–{high})"


def markdown_table(headings: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """A GitHub table; a bar inside a cell is escaped."""
    rows = [list(headings), ["---"] * len(headings), *map(list, lines)]
    return "".join("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |\n" for row in rows)


def folded_json(value: Any, margin: str = "") -> str:
    """JSON for people: what fits into a line stands on one, so that a change of one thing changes one line."""
    line = json.dumps(value, ensure_ascii=False)
    if len(margin + line) <= _LINE or not isinstance(value, dict | list):
        return line
    deeper = margin + "  "
    names = [f"{json.dumps(name)}: " for name in value] if isinstance(value, dict) else [""] * len(value)
    inner = value.values() if isinstance(value, dict) else value
    parts = ",\n".join(f"{deeper}{name}{folded_json(one, deeper)}" for name, one in zip(names, inner, strict=True))
    opening, closing = "{}" if isinstance(value, dict) else "[]"
    return f"{opening}\n{parts}\n{margin}{closing}"


def options(doc: str | None) -> argparse.ArgumentParser:
    """A benchmark's command line: `doc` is its help, and --write puts what it measures into docs/benchmarks.md."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="put the tables into docs/benchmarks.md")
    return parser


def publish(name: str, text: str, *, write: bool) -> None:
    """Print a benchmark's section, and write it where that was asked for."""
    print(text)
    if write:
        write_section(name, text)


def write_section(name: str, text: str, document: Path = DOCUMENT) -> None:
    """Write the document with `text` as its section `name`. Raises ValueError as `with_section` does."""
    new = with_section(name, text, document.read_text() if document.exists() else _PREFACE)
    document.parent.mkdir(parents=True, exist_ok=True)
    document.write_text(new)


def with_section(name: str, text: str, document: str) -> str:
    """Replace what stands between the markers of section `name` in the document; append the section if it is new.

    Raises ValueError if there is a begin marker without its end.
    """
    begin, end = f"<!-- begin {name} -->", f"<!-- end {name} -->"
    section = f"{begin}\n{text.strip()}\n{end}"
    if begin not in document:
        return f"{document.rstrip()}\n\n{section}\n"
    head, _, rest = document.partition(begin)
    _, closed, tail = rest.partition(end)
    if not closed:
        raise ValueError(f"{begin!r} has no {end!r}")
    return head + section + tail


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text().splitlines()
    except OSError:
        return []

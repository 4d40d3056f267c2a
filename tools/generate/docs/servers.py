"""Makes docs/reference/servers.md, from what `make matrix` has recorded."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import report

RECORDS: Final = report.ROOT / "docs" / "reference" / "servers.json"
BY_LIMIT: Final = RECORDS.with_name("servers-by-limit.json")
MOST_TIMES: Final = 100
HEADER: Final = """\
<!-- Made by `make generate` (tools/generate/docs/servers.py) from
servers.json and servers-by-limit.json, which `make matrix` writes: edit none of them. -->

# Servers and libraries

Each row is the real program, run twice in a container with a limit of 2 CPUs on a machine of 64: without Raddle
(stock) and with the values that Raddle gives that container. The machine is simulated (`python -m fakemachine`): the
program sees 64 CPUs everywhere that Linux shows them, and has a real quota of 2.

**Threads** are counted from outside after one inference or one piece of parallel work: all threads of all processes,
including main threads and those of a web server. `→` precedes the count that the library itself reports. Each count
is of one run and may differ by some threads in another. Threads that end with the work are sampled every 20 ms, so a
shorter peak may be missed.

**Speed** is the ratio of the program's own work (units or requests per second) with Raddle to stock. Both run
alternately for 0.7 s with the whole quota; the value is the median of five ratios, with the range in brackets. `±` is
the difference between two halves of the same side's values. The real machine has the number of CPUs in the line above
the table, which stock's threads share too, while a machine of 64 CPUs would throttle them instead; so ratios above
100 are shown as `100+`. There are fewer ratios, down to one, where a unit takes more than four seconds; rows
without a value were not measured. Libraries that work in batches (training, matrix products) have a policy with
`objective: Throughput`.

| how | meaning |
|---|---|
| variable | environment variables, from the policy's `runtimes` or `variables` |
| preset | the same, and Raddle recognises the server |
| shim | Raddle's shim, in Python, Node.js, Java and native programs |
| advice | no variable applies: the second count is with the settings that Raddle advises |
| left alone | its own choice is right, or Raddle's values would change more than threads |
| reads the limit itself | correct without Raddle |

"""

BY_LIMIT_HEADER: Final = """
## By limit

A count that is right for the only process of a program is wrong for each of its four. So programs that start several
processes, as many as the limit has CPUs, and libraries in a single process run under limits of 2, 3, 4 and 8. At these,
both objectives have the same counts and spinning. The pod's spec has nothing by which Raddle would recognise the
program.

**Threads** are those of all processes, and of each in brackets. `→` precedes the counts that the processes' library
reports, or threadpoolctl of their OpenMP, or else of their BLAS. **Speed** is measured as above, but for 0.5 s and of
three ratios. At each limit the quota is real, but the CPUs are those of the real machine: at a limit above their number
more threads than CPUs cost more than where the CPUs exist. A line is *slower* if its ratio is below 0.95 even with `±`
added, of ten ratios.

"""


def page() -> str:
    """The page, as Markdown."""
    result, by_limit = _records(RECORDS), _records(BY_LIMIT)
    headings = ("", "version", "stock", "with Raddle", "speed", "how")
    return (
        f"{HEADER}{len(result['rows'])} rows, on {result['machine']}.\n\n"
        + report.markdown_table(headings, [_cells(row) for row in result["rows"]])
        + f"{BY_LIMIT_HEADER}{_verdict(by_limit)}\n\n"
        + report.markdown_table(
            ("", "version", "limit", "stock", "with Raddle", "speed"),
            [_cells_by_limit(row) for row in by_limit["rows"]],
        )
    )


def _verdict(by_limit: Mapping[str, Any]) -> str:
    rows = by_limit["rows"]
    slower = [row for row in rows if row["slower"]]
    names = "".join(f"\n- {row['name']}, limit {row['limit']}: {_speed(row)}" for row in slower)
    listed = (
        f", of which {len(slower)} are slower than stock:\n{names}"
        if slower
        else ", none of which is slower than stock."
    )
    return f"{len(rows)} lines, on {by_limit['machine']}{listed}"


def _cells_by_limit(row: Mapping[str, Any]) -> tuple[str, ...]:
    counts = (_count_of_each(row[side]) for side in ("stock", "raddle"))
    speed = f"{_speed(row)}{', slower' if row['slower'] else ''}"
    return row["name"], f"{row['version']} ({row['package']})", str(row["limit"]), *counts, speed


def _count_of_each(observed: Mapping[str, Any]) -> str:
    each = observed["each"]
    processes = f" ({_grouped(each)})" if len(each) > 1 else ""
    return f"{sum(each)}{processes} → {_grouped(observed['says'])}"


def _grouped(counts: Sequence[int]) -> str:
    """Equal counts once, with their number: 2 × 1, 64."""
    return ", ".join(f"{count} × {one}" if count > 1 else str(one) for one, count in sorted(Counter(counts).items()))


def _times(ratio: float) -> str:
    """The ratio; of one beyond MOST_TIMES only that: there stock's threads spin on the few CPUs of the real machine."""
    return f"{MOST_TIMES}+" if ratio > MOST_TIMES else report.short(ratio)


def _records(path: Path) -> dict[str, Any]:
    result: dict[str, Any] = json.loads(path.read_text())
    return result


def _cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    package = f"{row['version']} ({row['registry']})"
    why = f"; {row['why']}" if "why" in row else ""
    return row["name"], package, _count(row["stock"]), _count(_last(row)), _speed(row), _how(row) + why


def _speed(row: Mapping[str, Any]) -> str:
    """By how many times it is faster; "" where that was not measured."""
    if "speed" not in row:
        return ""
    least, median, most = (_times(one) for one in row["speed"]["ratio"])
    spread = "" if least == most else f" ({least}–{most})"
    return f"× {median}{spread} ± {max(row['speed']['same']):.0%}"


def _last(row: Mapping[str, Any]) -> Mapping[str, Any]:
    """What counts in the end: with what is advised, where that was tried."""
    result: Mapping[str, Any] = row.get("advised", row["raddle"])
    return result


def _how(row: Mapping[str, Any]) -> str:
    return f"{row['way']}: {row['by']}" if "by" in row else str(row["way"])


def _count(observed: Mapping[str, Any]) -> str:
    processes = f" in {observed['processes']} processes" if observed["processes"] > 1 else ""
    says = f" → {observed['says']}" if "says" in observed else ""
    return f"{observed['threads']}{processes}{says}"

"""Makes docs/reference/servers.md, from what `make matrix` has seen."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

import report

RECORDS: Final = report.ROOT / "docs" / "reference" / "servers.json"
MOST_TIMES: Final = 100
HEADER: Final = """\
<!-- Made by `make generate` (tools/generate/docs/servers.py) from
servers.json, which `make matrix` writes: edit neither. -->

# Servers and libraries

Each row is the real program, run twice in a container with a limit of 2 CPUs on a machine of 64: stock, and with what
Raddle gives that container. After one inference, or one piece of parallel work, the threads of all its processes are
counted from outside, the main one and those of its web server among them; where the library tells a count of its own,
`→` has that. The machine is made up (`python -m fakemachine`): the program sees 64 CPUs wherever Linux shows them, and
a real quota of 2.

A count is of one run, on a machine that did other things beside: another run may differ by some threads. Threads that
end with the work are looked for every 20 ms, so a shorter peak may be missed. Rows are recorded one by one; the line
above the table is of the last.

The speed is that of the program's own work (units or requests a second), with Raddle against stock, each with the whole
quota in turns of 0.7 s: the median of five ratios, and in brackets the least and the greatest. `±` is by what part two
halves of one side's values differ. The real machine has the CPUs that the line above the table says, so stock's threads
also share those: a machine of 64 CPUs would throttle them instead, so nothing above 100 is told. A row of which stock's
unit takes over four seconds has one ratio. Where it is blank the speed was not measured.
Libraries whose work is a batch (training, products of matrices) have a policy with `objective: Throughput`.

| word | means |
|---|---|
| variable | by environment variables of the policy's `runtimes` or `variables` |
| preset | the same, and Raddle recognises the container by itself |
| shim | by Raddle's shim, in Python, Node.js, Java and native programs |
| advice | no variable reaches it: the last count is with what Raddle advises |
| left alone | what it does by itself is right, or Raddle's values would change more than threads |
| reads the limit itself | right without Raddle |

"""


def page() -> str:
    """The page, as Markdown."""
    found = _records()
    headings = ("", "version", "stock", "with Raddle", "speed", "how")
    return f"{HEADER}{len(found['rows'])} rows, on {found['machine']}.\n\n" + report.markdown_table(
        headings, [_cells(row) for row in found["rows"]]
    )


def _times(ratio: float) -> str:
    """The ratio; of one beyond MOST_TIMES only that: there stock's threads spin on the few CPUs of the real machine."""
    return f"{MOST_TIMES}+" if ratio > MOST_TIMES else report.short(ratio)


def _records() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(RECORDS.read_text())
    return found


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
    found: Mapping[str, Any] = row.get("advised", row["raddle"])
    return found


def _how(row: Mapping[str, Any]) -> str:
    return f"{row['way']}: {row['by']}" if "by" in row else str(row["way"])


def _count(seen: Mapping[str, Any]) -> str:
    processes = f" in {seen['processes']} processes" if seen["processes"] > 1 else ""
    says = f" → {seen['says']}" if "says" in seen else ""
    return f"{seen['threads']}{processes}{says}"

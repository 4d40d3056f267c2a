"""An application in a container: makes a session of default options, answers, and says where threads and memory are.

    app.py MODEL

Prints one line of JSON a look and waits for a line: "again" makes another session. A look is
{"threads": 1 + workers, "caller": CPUs, "workers": [CPUs, ...], "memory": {NUMA node: pages}, "spinning": workers,
"kernel": {...}, "raddle": {...} or null}, CPUs as kernel lists; see each function.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
from pathlib import Path
from typing import Any

from vm.guest.session import CGROUPS, quota_cpus, session

RUNS = 2
MARK = "/memfd:raddle: onnxruntime"
SHOWN_CHARACTERS = 3000


def main() -> None:
    """Look, and again for as long as somebody asks."""
    kept = []
    while True:
        kept.append(sample())
        if sys.stdin.readline().strip() != "again":
            break


def sample() -> Any:
    """One session, seen from inside; what answers is returned so that the session lives on."""
    # The libraries' own pages are not the session's.
    import numpy as np  # noqa: F401
    import onnxruntime as ort  # noqa: F401

    before = anonymous_pages()
    answer, observed = session(sys.argv[1], RUNS)
    after = anonymous_pages()
    memory = {node: after[node] - before.get(node, 0) for node in after if after[node] > before.get(node, 0)}
    print(json.dumps({**observed, "memory": memory, "kernel": kernel(), "raddle": raddle()}), flush=True)
    return answer


def anonymous_pages() -> dict[str, int]:
    """NUMA node -> pages of this process's own memory on it, by /proc/self/numa_maps."""
    result: dict[str, int] = {}
    for line in Path("/proc/self/numa_maps").read_text().splitlines():
        words = line.split()
        if any(word.startswith("anon=") for word in words):
            for word in words:
                node, _, pages = word.partition("=")
                if node[:1] == "N" and node[1:].isdigit():
                    result[node[1:]] = result.get(node[1:], 0) + int(pages)
    return result


def kernel() -> dict[str, Any]:
    """What the kernel says of this container's limits."""
    return {"cpuset": (CGROUPS / "cpuset.cpus.effective").read_text().strip(), "quota_cpus": quota_cpus()}


def raddle() -> dict[str, Any] | None:
    """What Raddle says here: its command, its mark and its readers; None where it isn't in the process."""
    if "raddle" not in sys.modules:
        return None
    from raddle.cpus import cpuset
    from raddle.process import cgroup

    limits = cgroup.read_limits()
    code, shown = show()
    return {
        "cpuset": None if limits.cpuset is None else cpuset.format_list(limits.cpuset),
        "quota_cpus": limits.quota_cpus,
        "show": shown[-SHOWN_CHARACTERS:] if code else json.loads(shown),
        "marks": marks(),
    }


def marks() -> list[str]:
    """The marks of ONNX Runtime in this process."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    return [line.partition("/memfd:")[2] for line in lines if MARK in line]


def show() -> tuple[int, str]:
    """What `python -m raddle` ends with and prints; in this process, since emulated CPUs start Python in seconds."""
    from raddle.__main__ import main as run

    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        code = run([])
    return code, printed.getvalue()


if __name__ == "__main__":
    main()

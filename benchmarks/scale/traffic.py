"""What a process has received from the network, as the kernel counts it for each TCP connection (`ss` of iproute2)."""

from __future__ import annotations

import re
import shutil
import subprocess
from typing import Final

_CONNECTION: Final = re.compile(r"^\S+\s+\d+\s+\d+\s+(\S+)\s+\S+\s+users:\(\(\S*,pid=(\d+),.*bytes_received:(\d+)")


def received(text: str, pid: int) -> dict[str, int]:
    """The bytes received by each connection of a process, by its own address, from what `ss -tinpHO` says."""
    matches = (_CONNECTION.match(line) for line in text.splitlines())
    return {item[1]: int(item[3]) for item in matches if item and int(item[2]) == pid}


def of_process(pid: int) -> dict[str, int] | None:
    """`received` for a process now; None where there is no `ss`."""
    if shutil.which("ss") is None:
        return None
    output = subprocess.run(["ss", "-tinpHO"], check=True, capture_output=True, text=True).stdout
    return received(output, pid)


def between(before: dict[str, int] | None, after: dict[str, int] | None) -> int | None:
    """The bytes received from one time to another by the connections that are open at the later one."""
    if before is None or after is None:
        return None
    return sum(count - before.get(address, 0) for address, count in after.items())

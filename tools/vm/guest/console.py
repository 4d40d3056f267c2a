"""The guest's end of the second serial line: a line of JSON a result, then the power is off."""

from __future__ import annotations

import ctypes
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

# sys/reboot.h
RB_POWER_OFF = 0x4321FEDC


def run(job: Callable[[Callable[[Mapping[str, Any]], None]], None]) -> None:
    """Run a job, which is given what sends a result, as the guest's first process; power off, whatever happens.

    {"done": true} comes last, or {"failed": why}.
    """
    with Path("/dev/ttyS1").open("w", encoding="ascii") as line:

        def send(result: Mapping[str, Any]) -> None:
            print(json.dumps(result), file=line, flush=True)

        try:
            job(send)
            send({"done": True})
        except Exception as error:  # noqa: BLE001 (nobody else is there to report it)
            send({"failed": repr(error)})
    ctypes.CDLL(None).reboot(RB_POWER_OFF)

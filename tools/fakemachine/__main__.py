"""`python -m fakemachine [--cpus 64] [--limit 2] -- COMMAND`: runs it there, and ends with its status."""

from __future__ import annotations

import argparse
import subprocess
import sys

import fakemachine
from unavailable import UnavailableError


def main() -> int:
    """See the module."""
    parser = argparse.ArgumentParser(prog="python -m fakemachine", description=fakemachine.__doc__)
    parser.add_argument("--cpus", type=int, default=64)
    parser.add_argument("--limit", type=float, default=2)
    parser.add_argument("command", nargs="+")
    asked = parser.parse_args()
    try:
        with fakemachine.started(asked.cpus, asked.limit) as fake:
            return subprocess.run(fake.command(asked.command), check=False).returncode
    except UnavailableError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    sys.exit(main())

"""`make bench`: the benchmarks one after another, into docs/benchmarks.md.

But for the tuning beside its peers: `python -m tuning live --write`.

make bench                     all but the full load table, an hour
make bench ARGS="core shim"    only these
make bench ARGS=full-load      an hour of the full load table, which takes many; it goes on where it stopped
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time

import report

# name -> the command's arguments after `python -m`
BENCHMARKS = {
    "load": ["load", "table", "--quick", "--fresh", "--write"],
    "webhook": ["webhook", "--write"],
    "injection": ["injection", "--write"],
    "core": ["core", "--write"],
    "watch": ["watch", "--write"],
    "scale": ["scale", "--write"],
    "agents": ["scale", "--agents", "--write"],
    "following": ["following", "--write"],
    "scanning": ["scanning", "--write"],
    "tuning": ["tuning", "--write"],
    "shim": ["shim", "--write"],
    "native": ["native_shim", "--write"],
    "door": ["door_start", "--write"],
    "full-load": ["load", "table", "--full", "--write", "--minutes", "60"],
}


def main() -> int:
    """Run the chosen benchmarks; 1 when one of them failed, 130 after Ctrl-C."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"of {', '.join(BENCHMARKS)}; absent: all but full-load"
    )
    chosen = parser.parse_args().names or [name for name in BENCHMARKS if name != "full-load"]
    unknown = [name for name in chosen if name not in BENCHMARKS]
    if unknown:
        parser.error(f"no benchmark {unknown[0]!r}; there are {', '.join(BENCHMARKS)}")
    failed = []
    for number, name in enumerate(chosen, 1):
        print(f"==> {number}/{len(chosen)} {name}", flush=True)
        start = time.monotonic()
        try:
            done = subprocess.run([sys.executable, "-m", *BENCHMARKS[name]], check=False)
        except KeyboardInterrupt:
            return 130
        if done.returncode:
            failed.append(name)
        print(f"    {time.monotonic() - start:.0f} s", flush=True)
    print(f"==> {report.DOCUMENT.relative_to(report.ROOT)} holds the figures")
    if failed:
        print(f"==> failed: {', '.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

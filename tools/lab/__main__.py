"""The command line: list what can be booted, record a machine. `make lab` runs the scenarios."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

import machines
from cluster.interrupt import interrupt_on
from cluster.progress import Progress, with_its_reason_last
from lab.scenarios import on
from vm.errors import VMError
from vm.shapes import SHAPES

EXAMPLES = """\
examples:
  python -m lab shapes                  which machines there are
  python -m lab record 2s16c32t         write tests/machines/2s16c32t.txt again

exit status:
  0  done
  1  the lab can't run here (no QEMU, no kernel), or a guest failed
  2  wrong arguments
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    interrupt_on(signal.SIGTERM)
    options = _parser().parse_args(arguments)
    progress = Progress(name="lab")
    try:
        if options.action == "shapes":
            return _shapes()
        return _record(options, progress)
    except VMError as error:
        progress.say(with_its_reason_last(error))
        return 1
    except KeyboardInterrupt:
        return 128 + signal.SIGINT


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m lab",
        description="Real Linux kernels of any CPU and NUMA shape under QEMU.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    actions = parser.add_subparsers(dest="action", metavar="shapes|record", required=True)
    actions.add_parser("shapes", help="list the shapes")
    recording = actions.add_parser("record", help="record what the kernel of a shape says")
    recording.add_argument("shapes", nargs="+", metavar="SHAPE", choices=list(SHAPES))
    recording.add_argument("--kernel", type=Path, metavar="BZIMAGE", help="a kernel of your own (default: Debian's)")
    recording.add_argument("--into", type=Path, default=machines.ARCHIVES, help="the folder (default: tests/machines)")
    return parser


def _shapes() -> int:
    width = max(map(len, SHAPES))
    for name, shape in SHAPES.items():
        has = len(on(name))
        print(f"{name:{width}}  {shape.cpus:3} CPUs  {f'{has:2} scenarios' if has else ' ' * 12}  {shape.shows}")
    return 0


def _record(options: argparse.Namespace, progress: Progress) -> int:
    from lab import record
    from vm import programs

    programs.need()
    kernel = options.kernel or programs.kernel(progress)
    for name in options.shapes:
        out = options.into / f"{name}.txt"
        files = record.record(name, out, kernel, progress)
        progress.say(f"{out.name}: {files} files, {out.stat().st_size} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())

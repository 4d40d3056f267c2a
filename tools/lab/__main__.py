"""The command line: run the scenarios, one shape or all, list what can be booted, record a machine, clean up."""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import machines
from cluster.interrupt import interrupt_on
from cluster.progress import Progress, with_its_reason_last
from lab import cache
from lab.errors import LabError, LabUnavailableError
from lab.scenarios import DEFAULT_SHAPES, on
from lab.shapes import SHAPES

EXAMPLES = """\
examples:
  python -m lab                         every scenario on every machine that has one; 1 if something is not as expected
  python -m lab run 2s8c8t              one machine's scenarios
  python -m lab run -o json             ... and what was seen of each thread, for programs
  python -m lab limits                  what is read of cgroups, against what a kernel with version 2 enforces
  python -m lab shapes                  which machines there are
  python -m lab record 2s16c32t         write tests/machines/2s16c32t.txt anew

exit status:
  0  all is as expected; or the lab can't run here (no QEMU, no kernel), which is said
  1  a session is not as expected, or a guest failed each time
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
        if options.action == "record":
            return _record(options, progress)
        if options.action == "clean":
            return _clean()
        if options.action == "limits":
            return _limits(options, progress)
        return _run(options, progress)
    except LabUnavailableError as error:
        progress.say(f"skipped: {error}")
        return 1 if options.required else 0
    except LabError as error:
        progress.say(with_its_reason_last(error))
        return 1
    except KeyboardInterrupt:
        return 128 + signal.SIGINT


def _parser() -> argparse.ArgumentParser:
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--kernel", type=Path, metavar="BZIMAGE", help="a kernel of your own (default: Debian's)")
    common.add_argument("--required", action="store_true", help="exit with 1 where the lab can't run here")
    running = argparse.ArgumentParser(add_help=False, parents=[common])
    running.add_argument("-o", dest="form", choices=("table", "json"), default="table", help="(default: table)")
    parser = argparse.ArgumentParser(
        prog="python -m lab",
        description="Real Linux kernels of any CPU and NUMA shape under QEMU, and Raddle in them.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        parents=[running],
    )
    parser.set_defaults(shapes=[])
    actions = parser.add_subparsers(dest="action", metavar="run|limits|shapes|record|clean")
    run = actions.add_parser("run", parents=[running], help="run the scenarios of these shapes (the default: of all)")
    run.add_argument("shapes", nargs="*", metavar="SHAPE", help=f"of {', '.join(DEFAULT_SHAPES)}")
    actions.add_parser("limits", parents=[common], help="check what is read of cgroups of version 2")
    actions.add_parser("shapes", parents=[common], help="list the shapes")
    actions.add_parser("clean", parents=[common], help="remove the kernel and the disk that were made")
    recording = actions.add_parser("record", parents=[common], help="record what the kernel of a shape says")
    recording.add_argument("shapes", nargs="+", metavar="SHAPE", choices=list(SHAPES))
    recording.add_argument("--into", type=Path, default=machines.ARCHIVES, help="the folder (default: tests/machines)")
    return parser


def _shapes() -> int:
    width = max(map(len, SHAPES))
    for name, shape in SHAPES.items():
        has = len(on(name))
        print(f"{name:{width}}  {shape.cpus:3} CPUs  {f'{has:2} scenarios' if has else ' ' * 12}  {shape.shows}")
    return 0


def _record(options: argparse.Namespace, progress: Progress) -> int:
    from lab import programs, record

    programs.need()
    kernel = options.kernel or programs.kernel(progress)
    for name in options.shapes:
        out = options.into / f"{name}.txt"
        files = record.record(name, out, kernel, progress)
        progress.say(f"{out.name}: {files} files, {out.stat().st_size} bytes")
    return 0


def _clean() -> int:
    shutil.rmtree(cache.folder(), ignore_errors=True)
    print(f"removed {cache.folder()}")
    return 0


def _limits(options: argparse.Namespace, progress: Progress) -> int:
    from lab import limits, real

    with tempfile.TemporaryDirectory(prefix="raddle-lab-") as folder:
        found = limits.run(real.prepare(Path(folder), options.kernel, progress), Path(folder), progress)
    for check, wrong in found.items():
        print(check.replace("_", " ") + (f"\n! {wrong}" if wrong else ""), flush=True)
    failed = sum(bool(wrong) for wrong in found.values())
    progress.say(f"{len(found)} checks, {failed} not as expected ({progress.elapsed_seconds():.0f} s)")
    return 1 if failed else 0


def _run(options: argparse.Namespace, progress: Progress) -> int:
    from lab import real, table

    shapes = tuple(dict.fromkeys(options.shapes)) or DEFAULT_SHAPES
    without = [shape for shape in shapes if not on(shape)]
    if without:
        progress.say(f"no scenario has shape {', '.join(without)}; there are {', '.join(DEFAULT_SHAPES)}")
        return 2
    with tempfile.TemporaryDirectory(prefix="raddle-lab-") as folder:
        prepared = real.prepare(Path(folder), options.kernel, progress)
        verdicts = real.run(shapes, prepared, Path(folder), progress)
    print(
        table.document(verdicts) if options.form == "json" else table.table(verdicts) + "\n" + table.LEGEND, flush=True
    )
    progress.say_wrong([f"{one.shape} {one.scenario}: {'; '.join(one.wrong)}" for one in verdicts if one.wrong])
    wrong = sum(bool(one.wrong) for one in verdicts)
    progress.say(
        f"{len(verdicts)} sessions of {len({one.scenario for one in verdicts})} scenarios on {len(shapes)} machines, "
        f"{wrong} not as expected, none skipped ({progress.elapsed_seconds():.0f} s)"
    )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

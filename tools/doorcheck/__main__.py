"""Starts programs of this machine with the door and without it, and compares: `python -m doorcheck`.

Each is called with --version and --help, in four ways: with the variables of a governed container or without, with an
empty environment, and watched at its end for its open descriptors. Standard output, standard error, exit status and
descriptors have to be the same. Left out, counted and named with --list: what doesn't end by itself, and what is not
the same each time without the door. As root, for namespaces; the programs run as a user without rights.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from doorcheck import check
from doorcheck.programs import programs
from doorcheck.surroundings import Surroundings
from raddle import delivery
from raddle_operator.local import door
from report import ROOT, markdown_table, revision, write_section

DOCUMENT = ROOT / "docs" / "explanation" / "preload-injection.md"
UNAVAILABLE = 77


def unavailable() -> str:
    """Why this machine can't do it, in a line; "" where it can."""
    if platform.machine() not in delivery.architectures():
        return f"no native shim for {platform.machine()} is built here"
    if not shutil.which("unshare"):
        return "no unshare here"
    if os.geteuid() != 0:
        return "it has to be root, to start programs as a user without rights"
    return door.problem()


def summary(result: check.Results) -> str:
    """What came of it, as the docs have it."""
    lines = [_line(kind, result.cases[kind], result.starts[kind]) for kind in sorted(result.cases)]
    lines.append(_line("all", set().union(*result.cases.values()), result.started))
    left = "; ".join(
        f"{len({case.program.path for case in cases})} programs in {len(cases)} ways: {reason}"
        for reason, cases in result.left_out.items()
    )
    return (
        markdown_table(["from", "programs", "ways to start them", "starts"], lines)
        + f"\n{result.started} starts, {len(result.different)} different. Left out: {left}. Revision {revision()}.\n"
    )


def _line(kind: str, cases: set[check.Case], starts: int) -> list[str]:
    return [kind, str(len({case.program.path for case in cases})), str(len(cases)), str(starts)]


def _checked(tree: Path, seconds: float, wanted: list[check.Case], starts: int) -> check.Results:
    with Surroundings(tree, opened=False) as stock, Surroundings(tree, opened=True) as opened:
        running = check.Check(stock, opened, seconds, lambda line: print(f"==> {line}", flush=True))
        return running.run(wanted, starts)


def main() -> int:
    """Runs the check; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--starts", type=int, default=100_000, help="behind the door (default 100000)")
    parser.add_argument("--seconds", type=float, default=10, help="that a program may take (default 10)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="at a time (default: the CPUs)")
    parser.add_argument("--seed", type=int, default=1, help="of the order (default 1)")
    parser.add_argument("--only", help="programs whose path has this text")
    parser.add_argument("--list", action="store_true", help="name what was left out")
    parser.add_argument("--write", action="store_true", help="put the table into docs/explanation/preload-injection.md")
    arguments = parser.parse_args()
    reason = unavailable()
    if reason:
        print(f"not checked: {reason}")
        return UNAVAILABLE
    wanted = check.cases([one for one in programs() if (arguments.only or "") in one.path], arguments.seed)
    result = check.Results()
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(arguments.jobs) as pool:
        Path(folder).chmod(0o755)
        delivery.write(folder)
        shares = [wanted[number :: arguments.jobs] for number in range(arguments.jobs)]
        starts = [len(range(number, arguments.starts, arguments.jobs)) for number in range(arguments.jobs)]
        for part in pool.map(partial(_checked, Path(folder), arguments.seconds), shares, starts):
            result.add(part)
    print(f"\n{summary(result)}")
    for line in result.different:
        print(f"{check.DIFFERENT}: {line}")
    for reason, left in result.left_out.items() if arguments.list else ():
        print("".join(f"{reason}: {case}\n" for case in sorted(left, key=str)), end="")
    if arguments.write:
        write_section("doorcheck", summary(result), DOCUMENT)
    return 1 if result.different else 0


if __name__ == "__main__":
    sys.exit(main())

"""The command line: run all checks or some, list them, write the tables of docs/reliability.md."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Sequence

import report
from cluster import DevclusterError
from cluster.interrupt import interrupt_on
from cluster.progress import Progress
from reliability import catalogue, running, table
from reliability.model import Check, Outcome
from reliability.world import World

EXAMPLES = """\
examples:
  python -m reliability                                every check; 1 if a promise is broken
  python -m reliability failures                       those of one section: failures or attacks
  python -m reliability webhook-killed webhook-hung    these
  python -m reliability attacks -o json                ... for programs
  python -m reliability --write                        ... and write the tables into docs/reliability.md
  python -m reliability list                           which there are

exit status:
  0  every promise was kept; a check that can't run here is said and counted
  1  a promise is broken, or nothing could be started
  2  wrong arguments
"""
DOCUMENT = report.ROOT / "docs" / "reliability.md"
LIST = "list"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    # A closed terminal must leave no packet filter behind.
    interrupt_on(signal.SIGTERM, signal.SIGHUP)
    options = _parser().parse_args(arguments)
    progress = Progress(name="reliability")
    try:
        checks = catalogue.chosen([name for name in options.names if name != LIST])
    except ValueError as error:
        progress.say(str(error))
        return 2
    if LIST in options.names:
        return _list(checks)
    if options.write and not _whole(checks, options.names):
        progress.say("--write needs a whole section: name no check, or failures or attacks")
        return 2
    try:
        return _run(checks, options, progress)
    except DevclusterError as error:
        progress.say(str(error))
        return 1
    except KeyboardInterrupt:
        return 128 + signal.SIGINT


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m reliability",
        description="Bring about failures and attacks on a real local cluster, and count what was promised for each.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", metavar="list|failures|attacks|NAME", help="what to run (default: all)")
    parser.add_argument("-o", dest="form", choices=("table", "json"), default="table", help="(default: table)")
    parser.add_argument("--write", action="store_true", help="write the tables into docs/reliability.md")
    return parser


def _list(checks: Sequence[Check]) -> int:
    width = max((len(one.name) for one in checks), default=0)
    for one in checks:
        print(f"{one.section:7}  {one.name:{width}}  {one.what}")
    return 0


def _whole(checks: Sequence[Check], names: Sequence[str]) -> bool:
    sections = {one.section for one in checks}
    return not names or len(checks) == sum(one.section in sections for one in catalogue.CHECKS)


def _run(checks: Sequence[Check], options: argparse.Namespace, progress: Progress) -> int:
    # Now: the checkout may go on while the checks run.
    where = report.machine()
    with World(progress) as world:
        outcomes = running.run(checks, world)
    print(table.document(outcomes) if options.form == "json" else table.table(outcomes), flush=True)
    line = table.counts(outcomes, progress.elapsed_seconds())
    progress.say(line)
    if options.write:
        _write(outcomes, where, progress)
    return 1 if any(one.verdict == "BROKEN" for one in outcomes) else 0


def _write(outcomes: Sequence[Outcome], where: str, progress: Progress) -> None:
    for word, section in catalogue.SECTIONS.items():
        rows = [one for one in outcomes if one.check.section == section]
        if rows:
            line = table.counts(rows, sum(one.seconds for one in rows))
            text = f"{line}, by `make reliability ARGS=--write` on {where}:\n\n{table.markdown(rows)}"
            report.write_section(word, text, DOCUMENT)
    progress.say(f"wrote {DOCUMENT.relative_to(report.ROOT)}")


if __name__ == "__main__":
    sys.exit(main())

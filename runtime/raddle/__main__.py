"""`python -m raddle`: this container as Raddle sees it (`show`), and what became of the plan in it (`report`).

`show` prints JSON: {budget, plan, effective}: what the container may use, the fields of RADDLE_PLAN (null where there
is none), and what those come to here: the values for a session of default options, each cut's reason, and the version
of onnxruntime they are for (null where it isn't installed). It imports no runtime. Exit status 1 where RADDLE_PLAN
can't be read; `problem` then says why.

`report` reads the files of docs/reference/report.md.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from importlib import metadata
from typing import Any, List, Mapping, Optional

from raddle import __version__, env
from raddle.cpus import cpuset
from raddle.process import cgroup, current, resolution
from raddle.report import summary


def describe(environ: Mapping[str, str]) -> dict[str, Any]:
    """The document; every part that can't be had is None, and `problem` says what is wrong with the plan."""
    facts = current.read_facts()
    document: dict[str, Any] = {
        "raddle": __version__,
        "budget": {
            "cpus": None if facts.cpus is None else cpuset.format_list(facts.cpus),
            "quotaCPUs": facts.quota_cpus,
            **_limits(),
            "workersSeen": facts.workers_seen,
            "throttling": _throttling(facts),
        },
        "plan": None,
        "effective": None,
    }
    text = environ.get(env.PLAN, "")
    if not text:
        return document
    try:
        fields = env.decode(text)
    except env.PlanError as error:
        document["problem"] = str(error)
        return document
    document["plan"] = fields
    facts.placed = current.place(fields, facts.cpus, facts.owner)
    document["effective"] = _effective(fields, facts)
    return document


def _limits() -> dict[str, Any]:
    """What bounds no thread count: the memory limit, and how much unused quota may be saved up for later."""
    try:
        found = cgroup.read_limits()
    except Exception:
        found = cgroup.ResourceLimits()
    limit_bytes = found.memory_limit_bytes
    return {"burstUs": found.burst_us, "memoryLimitMiB": None if limit_bytes is None else limit_bytes >> 20}


def _throttling(facts: current.Facts) -> Optional[dict[str, int]]:
    if facts.throttled is None:
        return None
    return dict(zip(("periods", "throttledPeriods", "throttledUs"), facts.throttled))


def _effective(fields: Mapping[str, Any], facts: current.Facts) -> dict[str, Any]:
    found = resolution.resolve(fields, facts)
    # The policy's own entry stands before the plan's time.
    spin_us = fields.get("session.intra_op.spin_duration_us", found.spin_us) if found.spin == "bounded" else -1
    return {
        "onnxruntime": _installed_version("onnxruntime") or _installed_version("onnxruntime-gpu"),
        "intraOp": found.intra,
        "interOp": found.inter,
        "globalIntraOp": found.global_intra,
        "spinning": found.spin,
        # Below zero it is the runtime's own time.
        "spinDurationUs": spin_us if spin_us >= 0 else None,
        "executionMode": fields.get("mode"),
        "affinity": fields.get("aff", "none") if found.exclusive else "none",
        "because": found.because,
    }


def _installed_version(package: str) -> Optional[str]:
    """The version of an installed distribution, read from its metadata without importing it; None: not installed."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


_EXAMPLES = """
examples:
  python -m raddle                       budget, plan and what the plan comes to here, as JSON
  python -m raddle report                what the container's processes got, from the folder $RADDLE_REPORT
  python -m raddle report /reports -o json

exit status:
  0  show: the plan can be used, or there is none; report: all is as planned, or explained
  1  show: the plan can't be used; report: a value differs without a reason, a process complains, a file is no report
  2  wrong arguments; report: the folder can't be read
"""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m raddle",
        description="What Raddle planned for this container, and what came of it.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    commands.add_parser("show", help="this process's view of the container, as JSON (the default)")
    report = commands.add_parser(
        "report",
        help="planned against effective for every process that wrote a report",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    report.add_argument("folder", nargs="?", metavar="FOLDER", help="where the reports are (default: $RADDLE_REPORT)")
    report.add_argument("-o", dest="form", choices=("table", "json"), default="table", help="(default: table)")
    return parser


def _show() -> int:
    document = describe(os.environ)
    print(json.dumps(document, indent=2))
    return 1 if "problem" in document else 0


def _report(folder: Optional[str], form: str) -> int:
    folder = folder or os.environ.get(env.REPORT)
    if not folder:
        print("raddle: no folder is named, and RADDLE_REPORT is not set (spec.reports of the policy)", file=sys.stderr)
        return 2
    try:
        reports, unreadable = summary.read_folder(folder)
    except OSError as error:
        print(f"raddle: the reports can't be read: {error}", file=sys.stderr)
        return 2
    processes = [summary.compare(report) for report in reports]
    if form == "json":
        print(json.dumps(summary.document(processes, unreadable), indent=2))
    else:
        print(summary.table(processes) or f"no reports in {folder}\n", end="")
        for name, problem in unreadable.items():
            print(f"raddle: {name} {problem}", file=sys.stderr)
    return 0 if not unreadable and all(process.as_planned for process in processes) else 1


def main(arguments: Optional[List[str]] = None) -> int:
    """Runs one command; the exit status."""
    chosen = _parser().parse_args(arguments)
    return _report(chosen.folder, chosen.form) if chosen.command == "report" else _show()


if __name__ == "__main__":
    sys.exit(main())

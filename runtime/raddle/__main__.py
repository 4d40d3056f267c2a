"""`python -m raddle`: this container as Raddle sees it.

Prints JSON: {budget, plan, effective}: what the container may use, the fields of RADDLE_PLAN (null where there is
none), and what those come to here: the values for a session of default options, each cut's reason, and the version of
onnxruntime they are for (null where it isn't installed). It imports no runtime. Exit status 1 where RADDLE_PLAN can't
be read; `problem` then says why.
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
        result = cgroup.read_limits()
    except Exception:
        result = cgroup.ResourceLimits()
    limit_bytes = result.memory_limit_bytes
    return {"burstUs": result.burst_us, "memoryLimitMiB": None if limit_bytes is None else limit_bytes >> 20}


def _throttling(facts: current.Facts) -> Optional[dict[str, int]]:
    if facts.throttled is None:
        return None
    return dict(zip(("periods", "throttledPeriods", "throttledUs"), facts.throttled))


def _effective(fields: Mapping[str, Any], facts: current.Facts) -> dict[str, Any]:
    result = resolution.resolve(fields, facts)
    # The policy's own entry stands before the plan's time.
    duration_us = -1
    if result.spinning == "bounded":
        duration_us = fields.get("session.intra_op.spin_duration_us", result.spin_duration_us)
    return {
        "onnxruntime": _installed_version("onnxruntime") or _installed_version("onnxruntime-gpu"),
        "intraOp": result.intra_op,
        "interOp": result.inter_op,
        "globalIntraOp": result.global_intra_op,
        "spinning": result.spinning,
        # Below zero it is the runtime's own time.
        "spinDurationUs": duration_us if duration_us >= 0 else None,
        "executionMode": fields.get("execution_mode"),
        "affinity": fields.get("affinity", "none") if result.exclusive else "none",
        "because": result.because,
    }


def _installed_version(package: str) -> Optional[str]:
    """The version of an installed distribution, read from its metadata without importing it; None: not installed."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


_EPILOG = """
exit status:
  0  the plan can be used, or there is none
  1  the plan can't be used
  2  wrong arguments
"""


def main(arguments: Optional[List[str]] = None) -> int:
    """Prints the document; the exit status."""
    argparse.ArgumentParser(
        prog="python -m raddle",
        description="This container's CPUs, its plan and what the plan comes to in this process, as JSON.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    ).parse_args(arguments)
    document = describe(os.environ)
    print(json.dumps(document, indent=2))
    return 1 if "problem" in document else 0


if __name__ == "__main__":
    sys.exit(main())

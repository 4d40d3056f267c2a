"""`python -m raddle`: this container as Raddle sees it, as JSON.

{machine, budget, plan, effective}: the machine's topology (null where it can't be read), what the container may use,
the fields of RADDLE_PLAN (null where there is none), and what those come to here: the values for a session of
default options, each cut's reason, and the version of onnxruntime they are for (null where it isn't installed).
It imports no runtime. Exit status 1 where RADDLE_PLAN can't be read; `problem` then says why.
"""

from __future__ import annotations

import json
import os
import sys
from importlib import metadata
from typing import Any, Mapping, Optional

from raddle import __version__, cpuset, env
from raddle.adapters import live
from raddle.document import to_document
from raddle.sysfs import read_machine


def describe(environ: Mapping[str, str]) -> dict[str, Any]:
    """The document; every part that can't be had is None, and `problem` says what is wrong with the plan."""
    facts = live.read_facts()
    document: dict[str, Any] = {
        "raddle": __version__,
        "machine": _machine(),
        "budget": {
            "cpus": None if facts.cpus is None else cpuset.format_list(facts.cpus),
            "quotaCPUs": facts.quota_cpus,
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
    document["effective"] = _effective(fields, facts)
    return document


def _machine() -> Optional[dict[str, Any]]:
    try:
        machine: dict[str, Any] = to_document(read_machine())
    except Exception:
        return None
    return machine


def _throttling(facts: live.Facts) -> Optional[dict[str, int]]:
    if facts.throttled is None:
        return None
    return dict(zip(("periods", "throttledPeriods", "throttledUs"), facts.throttled))


def _effective(fields: Mapping[str, Any], facts: live.Facts) -> dict[str, Any]:
    found = live.resolve(fields, facts)
    return {
        "onnxruntime": _installed_version("onnxruntime") or _installed_version("onnxruntime-gpu"),
        "intraOp": found.intra,
        "interOp": found.inter,
        "spinning": found.spin,
        "spinDurationUs": found.spin_us or None,
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


def main() -> int:
    """Prints the document; the exit status."""
    document = describe(os.environ)
    print(json.dumps(document, indent=2))
    return 1 if "problem" in document else 0


if __name__ == "__main__":
    sys.exit(main())

"""docs/reference/supported.md: runtimes and Kubernetes versions, made of what the tests proved in the real ones.

    python -m generate.supported            the tables of the last test run
    python -m generate.supported --write    ... into supported.json; then `make generate` writes the page
    python -m generate.supported --check    status 1 where the last test run proved what the page lacks

A test notes what it proves (the fixture `proves` of tests/conftest.py); what passed is in build/proofs.json.
`make test` tries the oldest and the newest release of each runtime, `make matrix` every one. A runtime or version that
could not be had on this machine is not in it, and what was proven of it before stays.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import re
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import report
from report import ROOT

PROOFS = ROOT / "build" / "proofs.json"
SUPPORTED = ROOT / "docs" / "reference" / "supported.json"
HEADER = """\
<!-- Made by `make generate` (tools/generate/supported.py) from
supported.json, which `make matrix` writes: edit neither. -->

# Supported runtimes and Kubernetes versions

Each cell was tested with the real runtime or the real API server, in the versions of its row: the threads, their CPUs
and CPU time as the kernel reports them, and the runtime's own report. An empty cell was not tested, or the feature is
not available. `make test` tests the oldest and the newest release of each runtime, `make matrix` all of them. The tests
ran on {date}. For servers see [servers and libraries](servers.md).

## Kubernetes

Raddle supports Kubernetes 1.30 and later. With a kubelet and containerd it is tested [on real
nodes](../contributing/lab-and-real-nodes.md).

{kubernetes}
## Runtimes

{runtimes}"""
KUBERNETES = "Kubernetes"

CONTROLS = (
    "counts",
    "execution mode",
    "graph level",
    "spinning",
    "affinity",
    "global pool",
    "memory",
    "provider options",
    "existing values",
)
KUBERNETES_CONTROLS = (
    "helm install",
    "kubectl apply",
    "restricted pods",
    "least rights",
    "values at creation",
    "values at binding",
    "upgrade and back",
    "uninstall",
)
# Runtime, version and control of one proof.
Proof = tuple[str, str, str]


def read(path: Path) -> set[Proof]:
    """The proofs in a file, empty where there is none. Raises ValueError for a control that has no column."""
    if not path.exists():
        return set()
    document = json.loads(path.read_text())
    result = {(str(runtime), str(version), str(control)) for runtime, version, control in document["proven"]}
    columns = (*CONTROLS, *KUBERNETES_CONTROLS)
    unknown = {control for _, _, control in result} - set(columns)
    if unknown:
        raise ValueError(f"{path.name}: {', '.join(sorted(unknown))} is no column; there are {', '.join(columns)}")
    return result


def merged(known: set[Proof], proven: set[Proof]) -> set[Proof]:
    """What the last run proved, and what was known of the versions that it did not have."""
    ran = {(runtime, version) for runtime, version, _ in proven}
    return proven | {proof for proof in known if proof[:2] not in ran}


def page() -> str:
    """The page, as Markdown."""
    proofs, date = read(SUPPORTED), json.loads(SUPPORTED.read_text())["date"]
    return HEADER.format(date=date, **tables(proofs))


def tables(proofs: set[Proof]) -> dict[str, str]:
    """The table of Kubernetes versions, and those of runtimes."""
    clusters = {proof for proof in proofs if proof[0] == KUBERNETES}
    return {"kubernetes": kubernetes_table(clusters), "runtimes": table(proofs - clusters)}


def kubernetes_table(proofs: Iterable[Proof]) -> str:
    """One row: which versions of the API server were tested, and what is proven on them; "" without proofs."""
    controls: dict[str, set[str]] = {}
    for _, version, control in proofs:
        controls.setdefault(control, set()).add(version)
    if not controls:
        return ""
    columns, (row,) = _cells({KUBERNETES: controls}, KUBERNETES_CONTROLS)
    return report.markdown_table((KUBERNETES, *columns), [row[1:]])


def table(proofs: Iterable[Proof]) -> str:
    """Two tables, ONNX Runtime's and that of the others, a row per runtime.

    A cell says for which of the versions the control is proven; columns that would be empty are left out.
    """
    by_runtime: dict[str, dict[str, set[str]]] = {}
    for runtime, version, control in proofs:
        by_runtime.setdefault(runtime, {}).setdefault(control, set()).add(version)
    groups: dict[bool, dict[str, dict[str, set[str]]]] = {}
    for runtime in sorted(by_runtime, key=_place):
        groups.setdefault(_is_onnxruntime(runtime), {})[runtime] = by_runtime[runtime]
    return "\n".join(_table_of(group) for _, group in sorted(groups.items(), reverse=True))


def _table_of(group: dict[str, dict[str, set[str]]]) -> str:
    columns, rows = _cells(group, CONTROLS)
    return report.markdown_table(("runtime", "versions tested", *columns), rows)


def _cells(group: dict[str, dict[str, set[str]]], order: Sequence[str]) -> tuple[list[str], list[list[str]]]:
    """The columns that are not empty, and a row each: its name, its versions, a cell a column."""
    columns = [control for control in order if any(control in controls for controls in group.values())]
    rows = []
    for runtime, controls in group.items():
        versions = sorted(set().union(*controls.values()), key=_numbers)
        cells = [_cell(controls.get(control, set()), versions) for control in columns]
        rows.append([runtime, ", ".join(versions), *cells])
    return columns, rows


def _cell(proven: set[str], versions: list[str]) -> str:
    if not proven:
        return ""
    if proven == set(versions):
        return "yes"
    first = next(version for version in versions if version in proven)
    later = versions[versions.index(first) :]
    missing = [version for version in later if version not in proven]
    if len(missing) > max(1, len(later) // 3):
        return ", ".join(version for version in versions if version in proven)
    start = "all" if first == versions[0] else f"from {first}"
    return f"{start} but {', '.join(missing)}" if missing else start


def _is_onnxruntime(runtime: str) -> bool:
    return runtime.startswith("ONNX")


def _place(runtime: str) -> tuple[bool, bool, str]:
    """ONNX Runtime first, then PyTorch, then the families."""
    return not _is_onnxruntime(runtime), "orch" not in runtime, runtime.lower()


def _numbers(version: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", version)]


def main() -> int:
    """Print, write or check; see the module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    chosen = parser.add_mutually_exclusive_group()
    chosen.add_argument("--write", action="store_true", help="into docs/reference/supported.json, with today's date")
    chosen.add_argument("--check", action="store_true", help="fail where it lacks what the last test run proved")
    arguments = parser.parse_args()
    proven, known = read(PROOFS), read(SUPPORTED)
    if not proven:
        print("no test run has proven anything yet: make test", file=sys.stderr)
        return 1
    if arguments.check:
        return check(proven, known)
    now = merged(known, proven)
    if not arguments.write:
        print("\n".join(tables(now).values()), end="")
        return 0
    _say("no longer proven", known - now)
    date = dt.datetime.now(dt.UTC).date().isoformat()
    SUPPORTED.write_text(report.folded_json({"date": date, "proven": sorted(now)}) + "\n")
    return 0


def check(proven: set[Proof], known: set[Proof]) -> int:
    """1 where the tables lack what this run proved of a version that they have; says what.

    Versions that only this machine has are no fault of theirs.
    """
    versions = {proof[:2] for proof in known}
    missing = {proof for proof in proven - known if proof[:2] in versions}
    _say("proven, but not in docs/reference/supported.md", missing)
    _say("proven on this machine, of a version that the tables do not have", {proof[:2] for proof in proven} - versions)
    if missing:
        print("make matrix, or python -m generate.supported --write && make generate, brings them up to date")
    return 1 if missing else 0


def _say(words: str, proofs: Iterable[tuple[str, ...]]) -> None:
    lines = sorted(" ".join(proof) for proof in proofs)
    if lines:
        print(f"{words}: {'; '.join(lines)}")


if __name__ == "__main__":
    sys.exit(main())

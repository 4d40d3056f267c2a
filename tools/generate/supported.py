"""The README's tables of runtimes and of Kubernetes versions, made of what the tests proved in the real ones.

    python -m generate.supported            the tables of the last test run
    python -m generate.supported --write    ... into the README and docs/reference/supported.json
    python -m generate.supported --check    status 1 where the README and the last test run disagree

A test notes what it proves (the fixture `proves` of tests/conftest.py);
what passed is in build/proofs.json after a run, `make test` or `make chart-versions`.
A runtime or version that could not be had on this machine is not in it, and what is told of it stays.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

import report
from report import ROOT

PROOFS = ROOT / "build" / "proofs.json"
SUPPORTED = ROOT / "docs" / "reference" / "supported.json"
README = ROOT / "README.md"
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
    found = {(str(runtime), str(version), str(control)) for runtime, version, control in document["proven"]}
    columns = (*CONTROLS, *KUBERNETES_CONTROLS)
    unknown = {control for _, _, control in found} - set(columns)
    if unknown:
        raise ValueError(f"{path.name}: {', '.join(sorted(unknown))} is no column; there are {', '.join(columns)}")
    return found


def skipped() -> int:
    """How many tests the last run skipped."""
    return int(json.loads(PROOFS.read_text()).get("skipped", 0))


def merged(told: set[Proof], proven: set[Proof]) -> set[Proof]:
    """What the last run proved, and what is told of the versions that it did not have."""
    ran = {(runtime, version) for runtime, version, _ in proven}
    return proven | {proof for proof in told if proof[:2] not in ran}


def sections(proofs: Collection[Proof]) -> dict[str, str]:
    """The README's sections by the names of their markers; one without proofs is left out."""
    clusters = {proof for proof in proofs if proof[0] == KUBERNETES}
    found = {"supported": table(set(proofs) - clusters), "kubernetes": kubernetes_table(clusters)}
    return {name: text for name, text in found.items() if text}


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
    chosen.add_argument("--write", action="store_true", help="into the README and docs/reference/supported.json")
    chosen.add_argument("--check", action="store_true", help="fail where they disagree with the last test run")
    arguments = parser.parse_args()
    proven, told = read(PROOFS), read(SUPPORTED)
    if not proven:
        print("no test run has proven anything yet: make test", file=sys.stderr)
        return 1
    now = merged(told, proven)
    if arguments.write:
        SUPPORTED.write_text(report.folded_json({"proven": sorted(now)}) + "\n")
        for name, text in sections(now).items():
            report.write_section(name, text, README)
        return 0
    if not arguments.check:
        print("\n".join(sections(now).values()), end="")
        return 0
    return check(proven, told, README.read_text(), skipped=skipped())


def check(proven: set[Proof], told: set[Proof], readme: str, *, skipped: int) -> int:
    """1 where the tables miss something that this run proved, or tell of something that it did not; says what.

    Versions that only this machine has are no fault of theirs, nor is what was not proven where tests were skipped.
    """
    known, here = ({proof[:2] for proof in proofs} for proofs in (told, proven))
    missing = sorted(proof for proof in proven - told if proof[:2] in known)
    gone = sorted(proof for proof in told - proven if proof[:2] in here)
    # `make chart-versions` tries no runtime.
    tried = {runtime == KUBERNETES for runtime, _ in here}
    untried = sorted(pair for pair in known - here if (pair[0] == KUBERNETES) in tried)
    for words, found in (
        ("proven, but not in the README's tables", missing),
        ("in the README's tables, not proven now", gone),
        ("proven on this machine, of a version that the tables do not have", sorted(here - known)),
        ("in the tables, not tried on this machine", untried),
    ):
        if found:
            print(f"{words}: {'; '.join(' '.join(names) for names in found)}")
    stale = any(text not in readme for text in sections(told).values())
    if stale:
        print("the README's tables are not those of docs/reference/supported.json")
    if missing or stale or (gone and not skipped):
        print("python -m generate.supported --write brings them up to date")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Counts how much there is to know and to keep: `python -m generate.counts [CHECKOUT]` prints a table.

tests/contract/test_counts.py holds this checkout to the most that was decided. What is counted:

policy fields     places where a spec takes a value: leaves of InferenceThreading's schema below spec, those of a list's
                  items too, so that a selector's matchExpressions are three; in brackets ClusterInferenceThreading's
chart values      leaves of charts/raddle/values.yaml
make targets      those that `make help` lists
shim arrives by   values of the policy field `shim` beside None
library tables    hand-written files of the product that name the shared libraries of two runtimes or more
modules           of Raddle's own, loaded by `import raddle_operator.webhook.process`
lines             of each top folder, of every text file that git tracks
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from report import ROOT

_PRODUCT: Final = ("runtime", "operator", "tuner")
_TARGET: Final = re.compile(r"^[a-z0-9-]+:.*## ", re.MULTILINE)
_LIBRARIES: Final = "onnxruntime|torch|tensorflow|openvino|gomp|iomp5|omp|openblas|blis|mkl"
# A literal that is the beginning of a file's name; ONNX Runtime's may lack its lib in one of bytes, as paths are read.
_LIBRARY: Final = re.compile(rf"""["']/?lib({_LIBRARIES})\w*[.\-_]?["']|b["'](onnxruntime)["']""")
_GENERATED: Final = "ade by `make generate`"
_LOADED: Final = """
import sys, raddle_operator.webhook.process
print(sum(name.partition(".")[0] in ("raddle", "raddle_operator", "raddle_tuner") for name in sys.modules))
"""


def counts(checkout: Path) -> dict[str, int]:
    """Name -> count, all but the lines."""
    spec = _spec(checkout, "inferencethreadings")
    return {
        "policy fields": len(list(_fields(spec))),
        "policy fields, cluster-wide": len(list(_fields(_spec(checkout, "clusterinferencethreadings")))),
        "chart values": _leaves(yaml.safe_load((checkout / "charts/raddle/values.yaml").read_text())),
        "make targets": len(_TARGET.findall((checkout / "Makefile").read_text())),
        "shim arrives by": len(set(spec["properties"]["shim"]["enum"]) - {"None"}),
        "library tables": len(list(_library_tables(checkout))),
        "modules": _modules(checkout),
    }


def lines(checkout: Path) -> dict[str, int]:
    """Top folder -> lines; files beside the folders are under "."."""
    result: Counter[str] = Counter()
    for name in _tracked(checkout):
        content = (checkout / name).read_bytes()
        if b"\0" not in content:
            result[name.partition("/")[0] if "/" in name else "."] += content.count(b"\n")
    return dict(sorted(result.items()))


def _spec(checkout: Path, plural: str) -> Mapping[str, Any]:
    crd = yaml.load((checkout / "crds" / f"{plural}.yaml").read_text(), yaml.CSafeLoader)
    (version,) = crd["spec"]["versions"]
    spec: Mapping[str, Any] = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
    return spec


def _fields(schema: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    below = schema.get("properties") or schema.get("items", {}).get("properties")
    if not below:
        yield schema
        return
    for field in below.values():
        yield from _fields(field)


def _leaves(values: Any) -> int:
    return sum(map(_leaves, values.values())) if isinstance(values, dict) and values else 1


def _library_tables(checkout: Path) -> Iterator[str]:
    for name in _tracked(checkout, *_PRODUCT):
        text = (checkout / name).read_text(errors="replace")
        runtimes = {first or second for first, second in _LIBRARY.findall(text)}
        if len(runtimes) > 1 and _GENERATED not in text:
            yield name


def _modules(checkout: Path) -> int:
    path = ":".join(str(checkout / folder) for folder in _PRODUCT)
    done = subprocess.run(
        [sys.executable, "-c", _LOADED], env={"PYTHONPATH": path}, check=True, capture_output=True, text=True
    )
    return int(done.stdout)


def _tracked(checkout: Path, *folders: str) -> list[str]:
    """Files that git tracks and that are there, without links to others."""
    done = subprocess.run(
        ["git", "-C", str(checkout), "ls-files", "-z", *folders], check=True, capture_output=True, text=True
    )
    names = [name for name in done.stdout.split("\0") if name]
    return [name for name in names if (checkout / name).is_file() and not (checkout / name).is_symlink()]


def main() -> None:
    """Print the table, as Markdown."""
    parser = argparse.ArgumentParser(prog="python -m generate.counts", description="Count how much there is.")
    parser.add_argument("checkout", nargs="?", type=Path, default=ROOT, help="another checkout than this one")
    checkout = parser.parse_args().checkout
    rows = counts(checkout)
    by_folder = lines(checkout)
    rows |= {f"lines in {folder}": count for folder, count in by_folder.items()}
    rows["lines"] = sum(by_folder.values())
    print("| what | count |\n|---|---:|")
    for name, count in rows.items():
        print(f"| {name} | {count:,} |")


if __name__ == "__main__":
    main()

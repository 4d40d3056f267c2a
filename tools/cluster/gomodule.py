"""The go.mod of a program: committed with its go.sum where the version is known, else derived from upstream's.

`k8s.io/kubernetes` can be an ordinary dependency once each staging module, which its own go.mod requires at v0.0.0, is
replaced by the published module: v0.34.4 for Kubernetes 1.34.4.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cluster import toolchain
from cluster.errors import DevclusterError
from cluster.versions import Version

STAGING = "v0.0.0"
KUBERNETES = "k8s.io/kubernetes"


def committed(source: Path, version: Version) -> tuple[Path, ...]:
    """Return the committed go.mod and go.sum of this version; empty when there are none."""
    paths = (source / str(version) / "go.mod", source / str(version) / "go.sum")
    return paths if all(path.exists() for path in paths) else ()


def prepare(source: Path, version: Version, work: Path, find_go: Callable[[], str]) -> bool:
    """Write go.mod (and go.sum) into `work`; return whether they are complete, so that nothing needs to be resolved.

    `find_go` returns the path of a Go program; it is called only when upstream's go.mod must be read.
    """
    known = committed(source, version)
    for path in known:
        shutil.copy(path, work)
    if not known:
        (work / "go.mod").write_text(derive(source.name, version, _upstream(version, find_go())))
    return bool(known)


def derive(name: str, version: Version, upstream: dict[str, Any]) -> str:
    """Return the text of a go.mod that requires Kubernetes `version`, pinned as `upstream` pins it.

    `upstream` is Kubernetes' own go.mod as `go mod edit -json` prints it. All its requirements are repeated, because
    versions that are only selected by `replace` of the main module do not reach those who depend on it.
    """
    staging = f"v0.{version.minor}.{version.patch}"
    lines = [f"module raddle.dev/devcluster/{name}", "", f"go {upstream['Go']}", ""]
    lines += ["require (", f"\t{KUBERNETES} v{version}"]
    for requirement in upstream["Require"]:
        pinned = staging if requirement["Version"] == STAGING else requirement["Version"]
        lines.append(f"\t{requirement['Path']} {pinned}")
    lines += [")", "", "replace ("]
    lines += [f"\t{entry['Old']['Path']} => {entry['Old']['Path']} {staging}" for entry in upstream["Replace"]]
    return "\n".join([*lines, ")", ""])


def _upstream(version: Version, go: str) -> dict[str, Any]:
    module = json.loads(_go(go, "mod", "download", "-json", f"{KUBERNETES}@v{version}"))
    return dict(json.loads(_go(go, "mod", "edit", "-json", module["GoMod"])))


def _go(go: str, *arguments: str) -> str:
    # Outside any module: these commands are not subject to a go line.
    done = subprocess.run(
        [go, *arguments], check=False, capture_output=True, text=True, env=toolchain.environment(), cwd=Path("/")
    )
    if done.returncode:
        raise DevclusterError(f"go {' '.join(arguments)} failed: {done.stdout}{done.stderr}")
    return done.stdout

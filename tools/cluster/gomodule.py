"""The go.mod of a program: made from upstream's own, and checked by `go/go.sum`.

What a program requires is pinned as upstream pins it, so that nothing but a version has to be committed. go.sum has the
hashes for the default versions; those of another version come from Go's checksum database.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

from cluster import toolchain
from cluster.errors import DevclusterError
from cluster.versions import Version

STAGING = "v0.0.0"
OLDEST_GO = (1, 21)
"""Enough to read another module's go.mod; the build itself needs what that file asks for."""
SUMS = Path(__file__).parent / "go" / "go.sum"


def prepare(name: str, version: Version, modules: tuple[str, ...], work: Path, go: str) -> None:
    """Writes go.mod and go.sum of a program that is made of `modules` at `version` into `work`.

    `go` is the path of a Go program of at least OLDEST_GO. Raises DevclusterError where a module can't be fetched.
    """
    shutil.copy(SUMS, work)
    (work / "go.mod").write_text(derive(name, version, {}))
    upstream = {module: _upstream(f"{module}@v{version}", go, work) for module in modules}
    (work / "go.mod").write_text(derive(name, version, upstream))


def derive(name: str, version: Version, upstream: dict[str, dict[str, Any]]) -> str:
    """The text of a go.mod that requires modules at `version`, pinned as they pin what they require.

    `upstream` is the modules' own go.mod, each as `go mod edit -json` prints it. All their requirements are repeated,
    because versions that are only selected by `replace` of the main module do not reach those who depend on it. The
    staging modules, which Kubernetes' own go.mod requires at v0.0.0, are the published ones: v0.34.4 for 1.34.4.
    """
    staging = f"v0.{version.minor}.{version.patch}"
    language = next(iter(upstream.values()), {}).get("Go", ".".join(map(str, OLDEST_GO)))
    required, staged = [f"{module} v{version}" for module in upstream], []
    for requirement in (each for one in upstream.values() for each in one["Require"]):
        path, pinned = requirement["Path"], requirement["Version"]
        if pinned == STAGING:
            staged.append(f"{path} => {path} {staging}")
        required.append(f"{path} {staging if pinned == STAGING else pinned}")
    lines = [f"module raddle.dev/devcluster/{name}", "", f"go {language}", ""]
    for word, entries in (("require", required), ("replace", staged)):
        lines += [f"{word} (", *(f"\t{entry}" for entry in dict.fromkeys(entries)), ")", ""] if entries else []
    return "\n".join(lines)


def _upstream(module: str, go: str, work: Path) -> dict[str, Any]:
    downloaded = json.loads(_go(go, work, "mod", "download", "-json", module))
    return dict(json.loads(_go(go, work, "mod", "edit", "-json", downloaded["GoMod"])))


def _go(go: str, work: Path, *arguments: str) -> str:
    done = subprocess.run(
        [go, *arguments], check=False, capture_output=True, text=True, env=toolchain.environment(), cwd=work
    )
    if done.returncode:
        raise DevclusterError(f"go {' '.join(arguments)} failed: {done.stdout}{done.stderr}")
    return done.stdout

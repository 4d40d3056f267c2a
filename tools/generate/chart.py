"""Renders the Helm chart: for tests, and for the golden files that show in review what a change of the chart does.

`python -m generate.chart install [HELM OPTIONS]` writes dist/install.yaml, for those who install with kubectl.
"""

from __future__ import annotations

import difflib
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

import yaml

from cluster import binaries
from cluster.versions import DEFAULT_KUBERNETES
from report import ROOT

REPOSITORY = ROOT
CHART = ROOT / "charts" / "raddle"
INSTALL = ROOT / "dist" / "install.yaml"
NAMESPACE = "raddle-system"
LOWEST_KUBERNETES = "1.30.0"
INSTALL_HEADER = f"""\
# Raddle as `helm template` renders it, with its namespace. Made by `make generate ARGS=install`.
# Install, upgrade: kubectl apply --server-side -f install.yaml
# Uninstall, but for CRDs and policies: kubectl delete -f install.yaml --selector app.kubernetes.io/name=raddle
---
apiVersion: v1
kind: Namespace
metadata:
  name: {NAMESPACE}
"""

# Renderings whose files are in tests/chart/golden: the default whole, the others by what they make different.
# The CRDs are not shown: they are in crds/ already.
DEFAULT: Final[Mapping[str, Any]] = {"crds": {"install": False}}
CASES: Final[Mapping[str, Mapping[str, Any]]] = {
    "default": DEFAULT,
    "whole-cluster-with-cert-manager": {
        **DEFAULT,
        "injection": {"default": "enabled"},
        "certificates": {"source": "CertManager"},
        "shim": {"configMaps": {"namespaces": ["models", "vision"]}},
        "agent": {"kubeletConfig": "Proxy"},
        "tuning": {"enabled": True},
    },
}


class RenderError(ValueError):
    """Helm refused the values; the message is its standard error without the notes on symbolic links."""


@cache
def helm() -> Path:
    """Helm's path; it is built where there is none."""
    return binaries.find(binaries.helm(), ["helm"])["helm"]


def run_helm(*arguments: str) -> str:
    """Helm's standard output, where Helm has no cluster to ask. Raises RenderError when it fails."""
    done = subprocess.run([str(helm()), *arguments], check=False, capture_output=True, text=True)
    if done.returncode:
        # In a checkout the chart's CRDs are links, of which Helm tells each time.
        lines = [line for line in done.stderr.splitlines() if "found symbolic link" not in line]
        raise RenderError("\n".join(lines))
    return done.stdout


def render(
    values: Mapping[str, Any], *, chart: Path = CHART, kubernetes: str = LOWEST_KUBERNETES, options: Iterable[str] = ()
) -> str:
    """The manifests for these values (beyond the defaults) as YAML. Raises RenderError when Helm refuses."""
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        json.dump(values, file)
        file.flush()
        return run_helm(
            "template", "raddle", str(chart), "--namespace", NAMESPACE, "--kube-version", kubernetes,
            "--values", file.name, *options,
        )  # fmt: skip


def objects(values: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The manifests for these values as objects, in Helm's order. Nobody may change them: they are kept."""
    return list(_objects(json.dumps(values)))


@cache
def _objects(values: str) -> tuple[dict[str, Any], ...]:
    documents = yaml.load_all(render(json.loads(values)), getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    return tuple(document for document in documents if document)


def difference(values: Mapping[str, Any]) -> str:
    """What these values make different from the default rendering: objects gone, objects new, and a diff."""
    default, other = _by_name(render(DEFAULT)), _by_name(render(values))
    lines = [f"gone: {name}" for name in default if name not in other]
    for name, text in other.items():
        if name in default:
            lines += difflib.unified_diff(default[name], text, f"default: {name}", name, n=2, lineterm="")
        else:
            lines += [f"new: {name}", *text]
    return "\n".join([*lines, ""])


def _by_name(text: str) -> dict[str, list[str]]:
    """The lines of each object of a rendering, by kind, namespace and name."""
    result = {}
    for document in f"\n{text}".split("\n---\n"):
        if one := yaml.safe_load(document):
            metadata = one["metadata"]
            name = "/".join(filter(None, (metadata.get("namespace"), metadata["name"])))
            result[f"{one['kind']} {name}"] = document.splitlines()
    return result


def install_manifest(options: Iterable[str] = ()) -> str:
    """What `kubectl apply` needs: the namespace, and all that Helm would install (its tests are none of it)."""
    return INSTALL_HEADER + run_helm(
        "template", "raddle", str(CHART), "--namespace", NAMESPACE, "--skip-tests",
        "--kube-version", str(DEFAULT_KUBERNETES), *options,
    )  # fmt: skip


def write_install(options: Iterable[str]) -> int:
    """Write dist/install.yaml for these options of `helm template`; 1 when Helm refuses them."""
    try:
        text = install_manifest(options)
    except RenderError as error:
        print(error, file=sys.stderr)
        return 1
    INSTALL.parent.mkdir(exist_ok=True)
    INSTALL.write_text(text)
    name = INSTALL.relative_to(ROOT)
    print(f"wrote {name}: kubectl apply --server-side -f {name}")
    return 0


if __name__ == "__main__":
    if sys.argv[1:2] != ["install"]:
        sys.exit(__doc__)
    sys.exit(write_install(sys.argv[2:]))

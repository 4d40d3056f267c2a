"""Finds the programs of a cluster, and builds what is not there.

Looked for, first found is used: the folder that KUBEBUILDER_ASSETS names, this tool's cache, PATH; programs from
outside the cache only when their version fits (`versions.fits`). What is then missing is built.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterable
from pathlib import Path

from cluster import build
from cluster.progress import Progress
from cluster.versions import (
    DEFAULT_CONTAINERD,
    DEFAULT_HELM,
    DEFAULT_KUBERNETES,
    DEFAULT_METRICS_SERVER,
    DEFAULT_RUNC,
    DEFAULT_VPA,
    Version,
    fits,
)

CONTROL_PLANE = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl")
SOURCES = Path(__file__).parent / "go"
KUBERNETES = "k8s.io/kubernetes"
ASSETS_VARIABLE = "KUBEBUILDER_ASSETS"
VERSION_TIMEOUT_SECONDS = 20
_VERSION_ARGUMENTS = {"kubectl": ("version", "--client"), "helm": ("version", "--short")}


def cache_folder() -> Path:
    """Where programs are kept: `raddle/devcluster` below $XDG_CACHE_HOME, or below ~/.cache."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "raddle" / "devcluster"


def control_plane(version: Version = DEFAULT_KUBERNETES) -> build.Program:
    """The program that is etcd, all servers and kubectl, by the name it is called by."""
    return build.Program(
        name="controlplane",
        version=version,
        modules=(KUBERNETES,),
        commands=CONTROL_PLANE,
        source=SOURCES / "controlplane",
        variables=_component_variables(version),
    )


def kubelet(version: Version = DEFAULT_KUBERNETES) -> build.Program:
    """The kubelet, for real nodes; a cluster of this tool runs none by itself."""
    return _kubernetes("kubelet", version)


def kube_proxy(version: Version = DEFAULT_KUBERNETES) -> build.Program:
    """Kube-proxy, for real nodes whose pods use Services."""
    return _kubernetes("kube-proxy", version)


def _kubernetes(name: str, version: Version) -> build.Program:
    """A program of Kubernetes as it is."""
    return build.Program(
        name=name,
        version=version,
        modules=(KUBERNETES,),
        commands=(name,),
        package=f"{KUBERNETES}/cmd/{name}",
        variables=_component_variables(version),
    )


def containerd(version: Version = DEFAULT_CONTAINERD) -> tuple[build.Program, ...]:
    """Containerd and its shim for runc, for real nodes."""
    module = "github.com/containerd/containerd/v2"
    return tuple(
        build.Program(
            name=name,
            version=version,
            modules=(module,),
            commands=(name,),
            package=f"{module}/cmd/{name}",
            variables={f"{module}/version.Version": f"v{version}"},
            # Snapshotters that need libraries or kernels of their own.
            tags=("no_btrfs", "no_devmapper", "no_zfs"),
        )
        for name in ("containerd", "containerd-shim-runc-v2")
    )


def runc(version: Version = DEFAULT_RUNC) -> build.Program:
    """Runc, for real nodes. It is built where `no_runc` says ""."""
    module = "github.com/opencontainers/runc"
    return build.Program(
        name="runc",
        version=version,
        modules=(module,),
        commands=("runc",),
        package=module,
        variables={"main.version": str(version)},
        tags=("seccomp",),
        cgo=True,
    )


def no_runc() -> str:
    """Why runc can't be built here; "" where it can."""
    if shutil.which("gcc") is None or shutil.which("pkg-config") is None:
        return "it needs gcc and pkg-config"
    asked = subprocess.run(["pkg-config", "--exists", "libseccomp"], check=False, capture_output=True)
    return "it needs libseccomp-dev" if asked.returncode else ""


def helm(version: Version = DEFAULT_HELM) -> build.Program:
    """Helm."""
    module = "helm.sh/helm/v3"
    return build.Program(
        name="helm",
        version=version,
        modules=(module,),
        commands=("helm",),
        package=f"{module}/cmd/helm",
        variables={f"{module}/internal/version.version": f"v{version}"},
    )


def metrics_server(version: Version = DEFAULT_METRICS_SERVER) -> build.Program:
    """Metrics-server, which serves what containers use."""
    module = "sigs.k8s.io/metrics-server"
    return build.Program(
        name="metrics-server",
        version=version,
        modules=(module,),
        commands=("metrics-server",),
        package=f"{module}/cmd/metrics-server",
        variables=_component_variables(version),
    )


def vpa_recommender(version: Version = DEFAULT_VPA) -> build.Program:
    """The recommender of the Vertical Pod Autoscaler."""
    module = "k8s.io/autoscaler/vertical-pod-autoscaler"
    return build.Program(
        name="vpa-recommender",
        version=version,
        modules=(module,),
        commands=("vpa-recommender",),
        package=f"{module}/pkg/recommender",
    )


def _component_variables(version: Version) -> dict[str, str]:
    package = "k8s.io/component-base/version"
    return {
        f"{package}.gitVersion": f"v{version}",
        f"{package}.gitMajor": str(version.major),
        f"{package}.gitMinor": str(version.minor),
    }


def find(program: build.Program, commands: Iterable[str], progress: Progress | None = None) -> dict[str, Path]:
    """The path of each of the program's `commands`, building the program when one is nowhere else.

    Raises DevclusterError when a build is needed and fails.
    """
    wanted = tuple(commands)
    result = existing(wanted, program.version, os.environ.get(ASSETS_VARIABLE, ""))
    cached = build.built(program, cache_folder())
    if cached is None:
        path = os.environ.get("PATH", "")
        result = {**existing([name for name in wanted if name not in result], program.version, path), **result}
        if len(result) == len(wanted):
            return result
        cached = build.build(program, cache_folder(), progress or Progress())
        # With all of them built as one, what lies on PATH is of no use; the assets were named on purpose.
        result = existing(wanted, program.version, os.environ.get(ASSETS_VARIABLE, ""))
    return {name: result.get(name, cached / name) for name in wanted}


def existing(
    commands: Iterable[str],
    version: Version,
    path: str,
    version_of: Callable[[str, str], Version | None] | None = None,
) -> dict[str, Path]:
    """Those of the commands that a search path holds in a version that fits.

    `path` has the form of $PATH and may be empty. `version_of(command, program)` asks a program for its version.
    """
    ask = version_of or _version_of
    result: dict[str, Path] = {}
    for command in commands if path else ():
        program = shutil.which(command, path=path)
        answer = ask(command, program) if program else None
        if program and answer and fits(command, answer, version):
            result[command] = Path(program)
    return result


def _version_of(command: str, program: str) -> Version | None:
    arguments = _VERSION_ARGUMENTS.get(command, ("--version",))
    try:
        done = subprocess.run(
            [program, *arguments], check=False, capture_output=True, text=True, timeout=VERSION_TIMEOUT_SECONDS
        )
        return Version.parse(done.stdout)
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return None

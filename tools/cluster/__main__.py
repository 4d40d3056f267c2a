"""The command line: build the programs, run a cluster."""

from __future__ import annotations

import argparse
import contextlib
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence

from cluster import binaries, build
from cluster.cluster import Cluster
from cluster.errors import DevclusterError
from cluster.interrupt import interrupt_on
from cluster.progress import Progress
from cluster.versions import DEFAULT_KUBERNETES, Version

EXAMPLES = """\
examples:
  python -m cluster build                        build what `up` needs (minutes the first time, then nothing)
  python -m cluster up                           run a cluster until Ctrl-C and say how to reach it
  python -m cluster up --nodes 3 --cpus 16       ... with three nodes that the scheduler binds pods to
  python -m cluster up -- kubectl get namespaces run one command in a cluster, then stop; its exit code is kept
  python -m cluster up --version 1.33.13         another Kubernetes version
  python -m cluster which helm                   the path of helm or kubectl, built if need be
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command line and returns its exit code: 0, 1 when something failed, or that of the command after `--`."""
    own, command = _split(list(sys.argv[1:] if arguments is None else arguments))
    options = _parser().parse_args(own)
    try:
        if options.action == "build":
            return _build(options)
        if options.action == "up":
            return _up(options, command)
        return _which(options.tool)
    except DevclusterError as error:
        print(f"devcluster: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 128 + signal.SIGINT


def _split(arguments: list[str]) -> tuple[list[str], list[str]]:
    if "--" not in arguments:
        return arguments, []
    middle = arguments.index("--")
    return arguments[:middle], arguments[middle + 1 :]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m cluster",
        description="A real Kubernetes control plane on this machine.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    actions = parser.add_subparsers(dest="action", required=True, metavar="build|up|which")
    version = argparse.ArgumentParser(add_help=False)
    version.add_argument(
        "--version", type=Version.parse, default=DEFAULT_KUBERNETES, help="Kubernetes version (default: %(default)s)"
    )
    building = actions.add_parser("build", parents=[version], help="build the programs into the cache")
    building.add_argument("--kubelet", action="store_true", help="build the kubelet too, for real nodes")
    building.add_argument(
        "--containerd",
        action="store_true",
        help="build containerd and runc too, for real nodes' image volumes and user namespaces",
    )
    running = actions.add_parser("up", parents=[version], help="run a cluster; `-- COMMAND` runs a command in it")
    running.add_argument("--name", help="its name in the kubeconfig")
    running.add_argument("--api-only", action="store_true", help="without scheduler and controller manager")
    running.add_argument("--nodes", type=int, default=0, metavar="N", help="register N nodes without a kubelet")
    running.add_argument("--cpus", type=int, default=8, help="logical CPUs of each node (default: %(default)s)")
    running.add_argument("--helm", action="store_true", help="have Helm on the command's PATH, building it if need be")
    running.add_argument("--feature-gates", default="", metavar="A=true,B=false", help="for all Kubernetes components")
    finding = actions.add_parser("which", help="print the path of a tool, building it if need be")
    finding.add_argument("tool", choices=["helm", "kubectl"])
    return parser


def _build(options: argparse.Namespace) -> int:
    progress = Progress()
    programs = [binaries.control_plane(options.version), binaries.helm()]
    programs += [binaries.kubelet(options.version)] if options.kubelet else []
    programs += binaries.containerd() if options.containerd else []
    if options.containerd and (reason := binaries.no_runc()):
        progress.say(f"runc is not built: {reason}")
    elif options.containerd:
        programs.append(binaries.runc())
    for program in programs:
        print(build.build(program, binaries.cache_folder(), progress))
    return 0


def _which(tool: str) -> int:
    program = binaries.helm() if tool == "helm" else binaries.control_plane()
    print(binaries.find(program, [tool], Progress())[tool])
    return 0


def _up(options: argparse.Namespace, command: list[str]) -> int:
    interrupt_on(signal.SIGTERM)
    cluster = Cluster(
        version=options.version,
        feature_gates=_feature_gates(options.feature_gates),
        name=options.name,
        scheduler=not options.api_only,
        controller_manager=not options.api_only,
    )
    with cluster:
        if options.helm:
            cluster.provide_helm()
        for number in range(options.nodes):
            cluster.register_node(f"node-{number}", cpus=options.cpus)
        Progress().say(f"Kubernetes {cluster.version} ready in {cluster.ready_seconds:.1f} s at {cluster.server}")
        if command:
            return _run(command, cluster)
        with contextlib.suppress(KeyboardInterrupt):
            _explain(cluster)
            threading.Event().wait()
    return 0


def _explain(cluster: Cluster) -> None:
    say = Progress().say
    say(f"logs and data: {cluster.directory}")
    say("in another shell, then `kubectl get all --all-namespaces`:")
    print(f"export KUBECONFIG={cluster.kubeconfig} PATH={cluster.directory / 'bin'}:$PATH", flush=True)
    say("Ctrl-C stops it and removes all of this")


def _run(command: list[str], cluster: Cluster) -> int:
    environment = cluster.environment()
    program = shutil.which(command[0], path=environment["PATH"])
    if program is None:
        raise DevclusterError(f"command: {command[0]!r} is not on PATH")
    return subprocess.run([program, *command[1:]], check=False, env=environment).returncode


def _feature_gates(text: str) -> dict[str, bool]:
    gates = {}
    for item in filter(None, text.split(",")):
        name, _, value = item.partition("=")
        if value not in {"true", "false"}:
            raise DevclusterError(f"--feature-gates: got {item!r}, expected NAME=true or NAME=false")
        gates[name] = value == "true"
    return gates


if __name__ == "__main__":
    sys.exit(main())

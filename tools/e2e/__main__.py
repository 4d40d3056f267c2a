"""The command line: run the scenarios on a real node, or keep the node up to look around."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

from devcluster import Cluster
from devcluster.errors import DevclusterError
from devcluster.progress import Progress
from e2e import host, images, release, verdict
from e2e.errors import E2EError, E2EUnavailableError
from e2e.pods import Runner
from e2e.scenarios import SCENARIOS
from e2e.settings import HOST

EXAMPLES = """\
examples:
  python -m e2e                             every scenario; 1 if something is not as expected
  python -m e2e run whole-cpu two-cpus      these scenarios
  python -m e2e run -o json                 ... for programs
  python -m e2e run --images DIR            with the images that users get: first `python -m images export DIR`
  python -m e2e up                          the same cluster with Raddle on it, until Ctrl-C
  python -m e2e scenarios                   which there are

exit status:
  0  all is as expected; or no node can run here (not root, a package is missing), which is said
  1  a container is not as expected, or a step failed
  2  wrong arguments
"""
# Services are reached at their pods: no kube-proxy runs on this machine.
API_SERVER_FLAGS = {"kube-apiserver": ["--enable-aggregator-routing=true"]}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    signal.signal(signal.SIGTERM, _interrupt)
    options = _parser().parse_args(arguments)
    progress = Progress(name="e2e")
    try:
        if options.action == "scenarios":
            return _scenarios()
        if options.action == "up":
            return _up(options, progress)
        return _run(options, progress)
    except E2EUnavailableError as error:
        progress.say(f"skipped: {error}")
        return 1 if options.required else 0
    except (E2EError, DevclusterError) as error:
        progress.say(str(error))
        return 1
    except KeyboardInterrupt:
        return 128 + signal.SIGINT


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m e2e",
        description="Raddle installed by Helm on a real node of this machine, and pods with ONNX Runtime on it.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        parents=[_options()],
    )
    parser.set_defaults(names=[], install=False, required=False, images=None, form="table")
    actions = parser.add_subparsers(dest="action", metavar="run|up|scenarios")
    run = actions.add_parser("run", parents=[_options()], help="run these scenarios (the default: all)")
    run.add_argument("names", nargs="*", metavar="SCENARIO", help=f"of {', '.join(one.name for one in SCENARIOS)}")
    actions.add_parser("up", parents=[_options()], help="keep the cluster with Raddle on it until Ctrl-C")
    actions.add_parser("scenarios", help="list the scenarios")
    return parser


def _options() -> argparse.ArgumentParser:
    # Suppressed: a default after the action would undo what was given before it.
    common = argparse.ArgumentParser(add_help=False, argument_default=argparse.SUPPRESS)
    common.add_argument("--install", action="store_true", help="have apt-get install the packages that are missing")
    common.add_argument("--required", action="store_true", help="exit with 1 where no node can run here")
    exported = "Raddle's images, from `python -m images export DIR` (default: made here)"
    common.add_argument("--images", type=Path, metavar="DIR", help=exported)
    common.add_argument("-o", dest="form", choices=("table", "json"), help="(default: table)")
    return common


def _scenarios() -> int:
    width = max(len(one.name) for one in SCENARIOS)
    for one in SCENARIOS:
        print(f"{one.name:{width}}  {one.why}")
    return 0


@contextmanager
def installed(options: argparse.Namespace, progress: Progress) -> Iterator[Cluster]:
    """A cluster whose node is this machine, with Raddle on it."""
    host.need(os.getuid(), install=options.install, progress=progress)
    tarballs, agent = images.tarballs(options.images, progress)
    with (
        Cluster(name="e2e", extra_flags=API_SERVER_FLAGS, progress=progress) as cluster,
        host.HostNode(cluster, HOST, tarballs, progress),
    ):
        progress.say(f"node {HOST.name} is Ready ({progress.elapsed_seconds():.0f} s)")
        release.install(cluster, agent, progress)
        kubelet = release.wait_for_topology(cluster, HOST.name, progress)["spec"]["kubelet"]
        progress.say(f"the agent has published {HOST.name}, kubelet {json.dumps(kubelet)}")
        yield cluster


def _up(options: argparse.Namespace, progress: Progress) -> int:
    with installed(options, progress) as cluster:
        progress.say("in another shell, then `kubectl get pods --all-namespaces`:")
        print(f"export KUBECONFIG={cluster.kubeconfig} PATH={cluster.directory / 'bin'}:$PATH", flush=True)
        progress.say("Ctrl-C stops it and removes all of this")
        with contextlib.suppress(KeyboardInterrupt):
            threading.Event().wait()
    return 0


def _run(options: argparse.Namespace, progress: Progress) -> int:
    known = {one.name: one for one in SCENARIOS}
    unknown = [name for name in options.names if name not in known]
    if unknown:
        progress.say(f"no scenario is called {', '.join(unknown)}; there are {', '.join(known)}")
        return 2
    chosen = [known[name] for name in dict.fromkeys(options.names)] or list(SCENARIOS)
    with installed(options, progress) as cluster:
        runner = Runner(cluster, progress)
        verdicts = [one for scenario in chosen for one in runner.run(scenario)]
    if options.form == "json":
        print(json.dumps([dataclasses.asdict(one) for one in verdicts], indent=2), flush=True)
    else:
        print(verdict.table(verdicts) + "\n" + verdict.LEGEND, flush=True)
    wrong = sum(bool(one.wrong) for one in verdicts)
    progress.say(
        f"{len(chosen)} scenarios, {len(verdicts)} containers, {wrong} not as expected, none skipped "
        f"({progress.elapsed_seconds():.0f} s)"
    )
    return 1 if wrong else 0


def _interrupt(*_: object) -> NoReturn:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())

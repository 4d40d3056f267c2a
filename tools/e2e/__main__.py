"""The command line: keep the nodes up to look around. `make e2e` runs the tests on them."""

from __future__ import annotations

import argparse
import contextlib
import signal
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

from cluster.interrupt import interrupt_on
from cluster.progress import Progress, with_its_reason_last
from e2e import installation
from e2e.errors import E2EError
from unavailable import UnavailableError


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command until Ctrl-C and return its exit code: 1 where no node can run here, or a step failed."""
    interrupt_on(signal.SIGTERM)
    options = _parser().parse_args(arguments)
    progress = Progress(name="e2e")
    try:
        with contextlib.ExitStack() as stack:
            site = stack.enter_context(installation.on_host(options.images, progress))
            if not options.without_guest:
                stack.enter_context(installation.with_guest(site, progress))
            progress.say("in another shell, then `kubectl get pods --all-namespaces`:")
            tools = site.cluster.directory / "bin"
            print(f"export KUBECONFIG={site.cluster.kubeconfig} PATH={tools}:$PATH", flush=True)
            progress.say("Ctrl-C stops it and removes all of this")
            with contextlib.suppress(KeyboardInterrupt):
                threading.Event().wait()
    except (UnavailableError, E2EError) as error:
        progress.say(with_its_reason_last(error))
        return 1
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m e2e", description="Raddle installed by Helm on two real nodes.")
    actions = parser.add_subparsers(dest="action", metavar="up", required=True)
    up = actions.add_parser("up", help="the nodes with Raddle on them, until Ctrl-C")
    up.add_argument("--without-guest", action="store_true", help="without the virtual node")
    up.add_argument("--images", type=Path, metavar="DIR", help=installation.IMAGES)
    return parser


if __name__ == "__main__":
    sys.exit(main())

"""An HPA on CPU and VPA's loop on a real node, without Raddle and with it: the same pod, the same requests.

    python -m e2e.autoscaling [hpa] [vpa]

The pod is a server with ONNX Runtime and default options. Its requests need about a third of its quota; what else it
uses is threads that spin between them, which an autoscaler on CPU can't tell from work.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import report
from cluster import Cluster
from cluster.errors import DevclusterError
from cluster.interrupt import interrupt_on
from cluster.progress import Progress
from e2e import autoscalers, figures, host, images, release, settings
from e2e.errors import E2EError, E2EUnavailableError
from e2e.experiment import Bench, Horizontal, Round

EXAMPLES = """\
examples:
  python -m e2e.autoscaling                 both, without Raddle and with it (about 12 minutes)
  python -m e2e.autoscaling hpa             the HPA only (about 6 minutes)
  python -m e2e.autoscaling --write         ... and write the tables into docs/explanation/autoscalers.md
  python -m e2e.autoscaling -o json         ... for programs

exit status:
  0  it ran, whatever the figures; or no node can run here (not root, a package is missing), which is said
  1  a step failed
  2  wrong arguments
"""
DOCUMENT = report.ROOT / "docs" / "explanation" / "autoscalers.md"
# Without Raddle and with it: the namespace, and what the tables call it.
STOCK, RADDLE = "stock", "raddle"
VARIANTS: Final = (STOCK, RADDLE)
RUNS: Final[Mapping[str, Callable[[Bench, str], Any]]] = {"hpa": Bench.horizontal, "vpa": Bench.vertical}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what is asked for and return the exit code."""
    interrupt_on(signal.SIGTERM)
    options = _parser().parse_args(arguments)
    progress = Progress(name="autoscaling")
    names = chosen(options.names)
    if unknown := [name for name in names if name not in RUNS]:
        progress.say(f"no run is called {', '.join(unknown)}; there are {', '.join(RUNS)}")
        return 2
    # Now: the checkout may go on while it runs.
    where = report.machine()
    try:
        with _installed(options, progress) as cluster:
            bench = Bench(cluster, progress)
            found = {name: {variant: RUNS[name](bench, variant) for variant in VARIANTS} for name in names}
    except E2EUnavailableError as error:
        progress.say(f"skipped: {error}")
        return 1 if options.required else 0
    except (E2EError, DevclusterError) as error:
        progress.say(str(error))
        return 1
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    _show(found, where, options, progress)
    return 0


def chosen(names: Sequence[str]) -> list[str]:
    """Those that are named, once each; all where none is."""
    return list(dict.fromkeys(names)) or list(RUNS)


def _show(found: dict[str, Any], where: str, options: argparse.Namespace, progress: Progress) -> None:
    tables = {name: _table(name, variants) for name, variants in found.items()}
    if options.form == "json":
        print(json.dumps(found, indent=2, default=dataclasses.asdict), flush=True)
    else:
        print("\n".join(f"{name.upper()}\n{text}" for name, text in tables.items()), flush=True)
    if options.write:
        for name, text in tables.items():
            line = f"By `python -m e2e.autoscaling {name} --write` on {where}:"
            report.write_section(name, f"{line}\n\n{text}", DOCUMENT)
        progress.say(f"wrote {DOCUMENT.relative_to(report.ROOT)}")
    progress.say(f"done ({progress.elapsed_seconds():.0f} s)")


def _table(name: str, variants: dict[str, Any]) -> str:
    if name == "hpa":
        both: dict[str, Horizontal] = variants
        return figures.horizontal(both[STOCK], both[RADDLE])
    rounds: dict[str, list[Round]] = variants
    return figures.vertical({"without Raddle": rounds[STOCK], "with Raddle": rounds[RADDLE]})


@contextmanager
def _installed(options: argparse.Namespace, progress: Progress) -> Iterator[Cluster]:
    """A cluster whose node is this machine, with autoscalers and Raddle; one namespace of two is opted in."""
    host.need(os.getuid(), install=options.install, progress=progress)
    tarballs, agent = images.tarballs(options.images, progress)
    with (
        Cluster(name="autoscaling", extra_flags=autoscalers.FLAGS, progress=progress) as cluster,
        host.HostNode(cluster, settings.HOST, tarballs, progress),
    ):
        release.install(cluster, agent, progress)
        release.wait_for_topology(cluster, settings.HOST.name, progress)
        autoscalers.start(cluster, progress)
        cluster.client.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": STOCK}})
        release.opt_in(cluster, RADDLE, {}, progress)
        progress.say(f"node, Raddle and autoscalers are ready ({progress.elapsed_seconds():.0f} s)")
        yield cluster


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m e2e.autoscaling",
        description="A real HPA and VPA's real recommender on a real node, without Raddle and with it.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", metavar="hpa|vpa", help="(default: both)")
    parser.add_argument("--write", action="store_true", help="write the tables into docs/explanation/autoscalers.md")
    parser.add_argument("--install", action="store_true", help="have apt-get install the packages that are missing")
    parser.add_argument("--required", action="store_true", help="exit with 1 where no node can run here")
    exported = "Raddle's images, from `python -m images export DIR` (default: made here)"
    parser.add_argument("--images", type=Path, metavar="DIR", help=exported)
    parser.add_argument("-o", dest="form", choices=("table", "json"), default="table", help="(default: table)")
    return parser


if __name__ == "__main__":
    sys.exit(main())

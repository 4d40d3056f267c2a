"""The command line: run the scenarios on real nodes, or keep the nodes up to look around."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import signal
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, TypeVar

from cluster.interrupt import interrupt_on
from cluster.progress import Progress, with_its_reason_last
from e2e import checks, door, guest_scenarios, installation, operations, ownlogs, verdict
from e2e.checks import Check, Lab, Outcome
from e2e.errors import FAILURES, E2EUnavailableError
from e2e.pods import Runner
from e2e.scenarios import SCENARIOS, Scenario
from e2e.settings import GUEST, HOST
from e2e.verdict import Verdict

EXAMPLES = """\
examples:
  python -m e2e                             every scenario and check; 1 if something is not as expected
  python -m e2e run whole-cpu two-cpus      these
  python -m e2e run -o json                 ... for programs
  python -m e2e run --without-guest         on this machine only, without the virtual one
  python -m e2e run --images DIR            with the images that users get: first `python -m images export DIR`
  python -m e2e up                          the same cluster with Raddle on it, until Ctrl-C
  python -m e2e scenarios                   which there are

exit status:
  0  all is as expected; or no node can run here (not root, a package is missing), which is said
  1  something is not as expected, twice, or a step failed
  2  wrong arguments
"""
WORKLOADS: Final[tuple[Scenario, ...]] = (*SCENARIOS, *guest_scenarios.SCENARIOS)
CHECKS: Final[tuple[Check, ...]] = (*operations.CHECKS, *guest_scenarios.CHECKS, *door.CHECKS, *ownlogs.CHECKS)
T = TypeVar("T")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    """What came of a run; `skipped` is the name of what was not tried -> why."""

    verdicts: Sequence[Verdict]
    outcomes: Sequence[Outcome]
    skipped: Mapping[str, str]

    @property
    def sentences(self) -> list[str]:
        """What is not as expected, a line each, for those who see but the last lines of a log."""
        found = [(f"{one.scenario} {one.node} {one.container}", text) for one in self.verdicts for text in one.wrong]
        found += [(one.name, text) for one in self.outcomes for text in one.result.wrong]
        return [f"{what}: {text.splitlines()[0]}" for what, text in found]

    @property
    def wrong(self) -> int:
        """How many containers and checks are not as expected."""
        return sum(bool(one.wrong) for one in self.verdicts) + sum(bool(one.result.wrong) for one in self.outcomes)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    interrupt_on(signal.SIGTERM)
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
    except FAILURES as error:
        progress.say(with_its_reason_last(error))
        return 1
    except KeyboardInterrupt:
        return 128 + signal.SIGINT


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m e2e",
        description="Raddle installed by Helm on two real nodes of this machine, and pods with ONNX Runtime on them.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        parents=[_options()],
    )
    parser.set_defaults(names=[], install=False, required=False, without_guest=False, images=None, form="table")
    actions = parser.add_subparsers(dest="action", metavar="run|up|scenarios")
    run = actions.add_parser("run", parents=[_options()], help="run these scenarios and checks (the default: all)")
    run.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(one.name for one in _everything())}")
    actions.add_parser("up", parents=[_options()], help="keep the cluster with Raddle on it until Ctrl-C")
    actions.add_parser("scenarios", help="list the scenarios and checks")
    return parser


def _options() -> argparse.ArgumentParser:
    # Suppressed: a default after the action would undo what was given before it.
    common = argparse.ArgumentParser(add_help=False, argument_default=argparse.SUPPRESS)
    common.add_argument("--install", action="store_true", help="have apt-get install the packages that are missing")
    common.add_argument("--required", action="store_true", help="exit with 1 where a node can't run here")
    common.add_argument("--without-guest", action="store_true", help="without the virtual node")
    exported = "Raddle's images, from `python -m images export DIR`, or `build` to have that done (default: made here)"
    common.add_argument("--images", type=Path, metavar="DIR", help=exported)
    common.add_argument("-o", dest="form", choices=("table", "json"), help="(default: table)")
    return common


def _everything() -> tuple[Scenario | Check, ...]:
    return (*WORKLOADS, *CHECKS)


def _scenarios() -> int:
    width = max(len(one.name) for one in _everything())
    for one in _everything():
        where = " ".join(name if name in one.nodes else " " * len(name) for name in (HOST.name, GUEST.name))
        print(f"{one.name:{width}}  {where}  {one.why}")
    return 0


def _up(options: argparse.Namespace, progress: Progress) -> int:
    with installation.installed(options, {HOST.name, GUEST.name}, progress) as site:
        progress.say("in another shell, then `kubectl get pods --all-namespaces`:")
        tools = site.cluster.directory / "bin"
        print(f"export KUBECONFIG={site.cluster.kubeconfig} PATH={tools}:$PATH", flush=True)
        progress.say("Ctrl-C stops it and removes all of this")
        with contextlib.suppress(KeyboardInterrupt):
            threading.Event().wait()
    return 0


def _run(options: argparse.Namespace, progress: Progress) -> int:
    known = {one.name: one for one in _everything()}
    unknown = [name for name in options.names if name not in known]
    if unknown:
        progress.say(f"no scenario is called {', '.join(unknown)}; there are {', '.join(known)}")
        return 2
    chosen = [known[name] for name in dict.fromkeys(options.names)] or list(_everything())
    nodes = {node for one in chosen for node in one.nodes}
    with installation.installed(options, nodes, progress) as site:
        lab = Lab(cluster=site.cluster, progress=progress, runner=Runner(site.cluster, progress))
        results = _tried(chosen, lab, site)
        # Here, so that they are not lost where the end of the cluster fails.
        if options.form == "json":
            print(json.dumps(dataclasses.asdict(results), indent=2), flush=True)
        else:
            print(_tables(results), flush=True)
    progress.say_wrong(results.sentences)
    progress.say(f"{summary(chosen, results)} ({progress.elapsed_seconds():.0f} s)")
    return 1 if results.wrong or (results.skipped and options.required) else 0


def _tried(chosen: Sequence[Scenario | Check], lab: Lab, site: installation.Installation) -> Results:
    verdicts: list[Verdict] = []
    outcomes: list[Outcome] = []
    skipped: dict[str, str] = {}
    for one in chosen:
        unavailable = one.unavailable() if isinstance(one, Scenario) else ""
        if reason := _first(one.nodes, site.skipped) or unavailable:
            skipped[one.name] = reason
            continue
        reason = _first(one.nodes, site.failed)
        if isinstance(one, Scenario):
            verdicts += verdict.failed(one, reason) if reason else _scenario(one, lab)
        elif reason:
            outcomes.append(Outcome(name=one.name, result=checks.Result(wrong=(reason,)), seconds=0))
        else:
            outcomes.append(_check(one, lab))
            if why := outcomes[-1].result.skipped:
                skipped[one.name] = why
    return Results(verdicts=verdicts, outcomes=outcomes, skipped=skipped)


def _first(nodes: Sequence[str], reasons: Mapping[str, str]) -> str:
    return next((reasons[node] for node in nodes if node in reasons), "")


def _scenario(scenario: Scenario, lab: Lab) -> list[Verdict]:
    def wrong(seen: Sequence[Verdict]) -> list[str]:
        return [f"{one.node} {one.container}: {text}" for one in seen for text in one.wrong]

    found, tries = again(lambda: lab.runner.run(scenario), wrong, lab.progress)
    return [dataclasses.replace(one, tries=tries) for one in found]


def _check(check: Check, lab: Lab) -> Outcome:
    found, tries = again(lambda: checks.run(check, lab), lambda seen: list(seen.result.wrong), lab.progress)
    return dataclasses.replace(found, tries=tries)


def again(run: Callable[[], T], wrong: Callable[[T], Sequence[str]], progress: Progress) -> tuple[T, int]:
    """What `run` returns, and how often it was called: once more where `wrong` has sentences on it, which are said."""
    found = run()
    reasons = wrong(found)
    if not reasons:
        return found, 1
    # An emulated machine beside others is late now and then.
    progress.say("\n! ".join(["not as expected, so once more:", *reasons]))
    return run(), 2


def _tables(results: Results) -> str:
    parts = []
    if results.verdicts:
        parts.append(verdict.table(results.verdicts) + "\n" + verdict.LEGEND)
    if results.outcomes:
        parts.append(checks.table(results.outcomes))
    if results.skipped:
        parts.append("\n".join(f"skipped {name}: {reason}" for name, reason in results.skipped.items()))
    return "\n\n".join(parts)


def summary(chosen: Sequence[Scenario | Check], results: Results) -> str:
    """The last line: how much was tried and what came of it."""
    scenarios = sum(isinstance(one, Scenario) for one in chosen)
    late = len({one.scenario for one in results.verdicts if one.tries > 1 and not one.wrong})
    late += sum(one.tries > 1 and not one.result.wrong for one in results.outcomes)
    parts = [
        f"{scenarios} scenarios",
        f"{len(results.verdicts)} containers",
        f"{len(chosen) - scenarios} checks",
        f"{results.wrong} not as expected",
        f"{late} as expected at the second try only",
        f"{len(results.skipped) or 'none'} skipped",
    ]
    return ", ".join(parts)


if __name__ == "__main__":
    sys.exit(main())

"""`raddle topology`: what a machine is made of and who runs where on it, as a picture or as documented JSON."""

from __future__ import annotations

import asyncio
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
from rich.console import Console
from rich.text import Text

from raddle import env
from raddle.cpus import cpuset
from raddle.cpus.topology import Machine, Problem
from raddle.machine import document, sysfs
from raddle.planning import wire
from raddle.process import cgroup
from raddle.process.cgroup import ResourceLimits
from raddle_operator.cli import output
from raddle_operator.cli.manifests import ManifestError
from raddle_operator.cli.picture import layout, overlay, svg, text
from raddle_operator.cli.picture.model import Marks, Picture, printable

if TYPE_CHECKING:
    from raddle_operator.cli.cluster import Snapshot

EPILOG = """\b
Examples:
  raddle topology                              this machine, and what this process may use
  raddle topology -o svg > machine.svg         the same, as a picture for a browser
  raddle topology -o json                      the same, as versioned JSON
  raddle topology --root /captures/worker-7    a recorded machine
  raddle topology --node worker-7              a node of the cluster
  raddle topology --exclusive 2-9              where threads would run if a container had these CPUs
  raddle topology -f policy.yaml -f deployment.yaml --exclusive 2-9
  raddle topology --pod resnet-7d9f -n models  a pod on its node

\b
Exit codes: 0 success, 1 no answer from the cluster, 2 invalid input.
"""

# Option -> the options of which it needs one.
NEEDS: Final = {
    "namespace": ("pod",),
    "kubeconfig": ("node", "pod"),
    "context": ("node", "pod"),
    "container": ("pod", "sources", "exclusive"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """A machine, what a process may use of it (None: not this machine's business), and plans by container."""

    machine: Machine
    limits: ResourceLimits | None = None
    plans: Mapping[str, wire.RecordedPlan]


@click.command(epilog=EPILOG)
@click.option(
    "--root",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Directory that contains a machine's sys/ and proc/.  [default: /]",
)
@click.option("--node", help="Node of the current cluster, as published by its agent.")
@click.option("--pod", help="Draw this pod of the cluster on its node.")
@click.option("-n", "--namespace", help="Namespace of the pod. Default: the context's namespace.")
@click.option(
    "--kubeconfig", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="Path to the kubeconfig file."
)
@click.option("--context", help="Kubeconfig context. Default: the current context.")
@click.option("-f", "--filename", "sources", multiple=True, help="Draw the workload in these manifests.")
@click.option("--container", help="Draw only this container.")
@click.option("--exclusive", metavar="CPUS", help="Plan as if the container had these exclusive CPUs (0-7,16).")
@click.option(
    "-o", "--output", "form", default="text", show_default=True, type=click.Choice(["text", "svg", "json", "yaml"])
)
def topology(
    root: Path | None,
    node: str | None,
    pod: str | None,
    namespace: str | None,
    kubeconfig: Path | None,
    context: str | None,
    sources: tuple[str, ...],
    container: str | None,
    exclusive: str | None,
    form: str,
) -> None:
    """Show a machine: sockets, NUMA nodes, L3 domains, cores, and where threads run."""
    _check_usage(
        root=root,
        node=node,
        pod=pod,
        namespace=namespace,
        kubeconfig=kubeconfig,
        context=context,
        sources=sources,
        container=container,
        exclusive=exclusive,
    )
    if pod is not None:
        seen = _of_pod(pod, namespace, kubeconfig, context)
    elif node is not None:
        from raddle_operator.cli import cluster

        seen = Observation(machine=asyncio.run(cluster.machine(node, kubeconfig, context)), plans={})
    else:
        seen = _of_folder(root or Path("/"))
    if form in {"json", "yaml"}:
        output.write(document.to_document(seen.machine, *_usable(seen)), form)
        return
    if sources:
        seen = replace(seen, plans=_of_manifests(sources, seen.machine))
    try:
        marks = _marks(seen, container, exclusive)
    except overlay.OverlayError as error:
        raise ManifestError(str(error)) from None
    picture = layout.picture(seen.machine, marks)
    if form == "svg":
        click.echo(svg.draw(picture), nl=False)
    else:
        show(picture, seen.machine.problems)


def _usable(seen: Observation) -> tuple[int | None, float | None]:
    """The CPUs and the quota that this process has of the machine, None for what is not known."""
    limits = seen.limits or cgroup.ResourceLimits()
    if (limits.cpuset, limits.inherited, limits.quota_cpus) == (None, None, None):
        return None, None
    return cgroup.usable_cpus(limits, seen.machine.online)


def _check_usage(**given: Any) -> None:
    """Raises UsageError for options that contradict each other, or that would have no effect."""
    for names in (("root", "node", "pod"), ("pod", "sources")):
        both = [name for name in names if given[name]]
        if len(both) > 1:
            raise click.UsageError(f"{' and '.join(map(_option, both))} exclude each other")
    for name, others in NEEDS.items():
        if given[name] and not any(given[other] for other in others):
            raise click.UsageError(f"{_option(name)} needs {' or '.join(map(_option, others))}")


def _option(name: str) -> str:
    return "--filename" if name == "sources" else f"--{name}"


# --- what there is to draw ------------------------------------------------------------------------------------------


def _of_folder(root: Path) -> Observation:
    machine = sysfs.read_machine(str(root))
    if not machine.online:
        raise ManifestError(f"{root}: no online CPU found below sys/devices/system/cpu")
    return Observation(machine=machine, limits=cgroup.read_limits(str(root)), plans={})


def _of_pod(pod: str, namespace: str | None, kubeconfig: Path | None, context: str | None) -> Observation:
    from raddle_operator.cli import cluster

    return of_snapshot(asyncio.run(cluster.read(pod.rpartition("/")[2], namespace, kubeconfig, context)))


def of_snapshot(snapshot: Snapshot) -> Observation:
    """The machine of a pod and the plans that its annotations hold. Raises ClickException without either."""
    pod, node = snapshot.pod["metadata"]["name"], (snapshot.pod.get("spec") or {}).get("nodeName")
    if snapshot.machine is None:
        where = f"node {node} has no NodeCPUTopology that can be read" if node else "it is not bound to a node yet"
        raise click.ClickException(f"pod {pod} can't be drawn: {where}")
    plans = dict(_plans(snapshot.annotations))
    if not plans:
        raise click.ClickException(f"pod {pod} has no plan; `raddle explain {pod}` says why")
    return Observation(machine=snapshot.machine, plans=plans)


def _of_manifests(sources: Sequence[str], machine: Machine) -> dict[str, wire.RecordedPlan]:
    """The plans of the first workload that gets any, by container. Raises ManifestError where none does."""
    from raddle_operator.cli import manifests, offline, workloads
    from raddle_operator.injection.matching import Policies

    result = manifests.load(sources)
    policies = Policies(list(workloads.read_policies(result)))
    for workload in workloads.read_workloads(result):
        decided = offline.decide(workload, policies, {env.INJECT_LABEL: "enabled"}, "this machine", machine)
        plans = dict(_plans(decided.pod["metadata"].get("annotations") or {}))
        if plans:
            return plans
    raise ManifestError("no workload in the files gets a plan; `raddle plan` says why")


def _plans(annotations: Mapping[str, str]) -> Iterator[tuple[str, wire.RecordedPlan]]:
    for key, value in annotations.items():
        if key.startswith(env.PLAN_PREFIX):
            try:
                yield key.removeprefix(env.PLAN_PREFIX), wire.read_plan_text(value)
            except wire.WireError as error:
                raise ManifestError(f"{key}: {error}") from None


def _marks(seen: Observation, container: str | None, exclusive: str | None) -> Marks:
    """What is to be marked on the machine. Raises OverlayError."""
    cpus = _cpus(exclusive) if exclusive is not None else None
    plans = {name: one for name, one in seen.plans.items() if container in (None, name)}
    if container is not None and not plans and seen.plans:
        raise overlay.OverlayError(f"container {container} has no plan; there are {', '.join(seen.plans)}")
    if cpus is not None:
        if len(plans) > 1:
            raise overlay.OverlayError(f"--exclusive is for one container; choose one: {', '.join(plans)}")
        assumed = (container or "any", overlay.assumed(cpuset.count(cpus)))
        name, recorded = next(iter(plans.items()), assumed)
        return overlay.planned(seen.machine, name, recorded, cpus)
    if plans:
        drawn = [overlay.planned(seen.machine, name, recorded) for name, recorded in plans.items()]
        return Marks(boxes=tuple(box for marks in drawn for box in marks.boxes))
    if seen.limits is None:
        return Marks()
    return overlay.allowed(seen.machine, *cgroup.usable_cpus(seen.limits))


def _cpus(value: str) -> int:
    try:
        return cpuset.parse_list(value)
    except ValueError as error:
        raise overlay.OverlayError(f"--exclusive: {error}") from None


# --- how it is printed ----------------------------------------------------------------------------------------------


def show(picture: Picture, problems: Sequence[Problem]) -> None:
    """Prints a picture as wide as the terminal, and what could not be read of the machine."""
    # COLUMNS, else the terminal's width, else 80.
    width = shutil.get_terminal_size().columns
    ascii_only = not (sys.stdout.encoding or "").lower().startswith("utf")
    console = Console(width=width, highlight=False, markup=False)
    for line in text.draw(picture, width, ascii_only=ascii_only):
        console.print(Text.assemble(*((part, text.style_of(style)) for part, style in line)), soft_wrap=True)
    for problem in problems:
        said = printable(f"problem  {problem.path}: {problem.reason}")
        console.print(Text(said, style="yellow"), soft_wrap=True)

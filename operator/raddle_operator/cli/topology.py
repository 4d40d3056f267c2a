"""`raddle topology`: what a machine is made of, for people or as documented JSON."""

from __future__ import annotations

from pathlib import Path

import click
from rich.markup import escape

from raddle import cgroup, cpuset, document, sysfs
from raddle.topology import Machine, cores_within, threads_per_core
from raddle_operator.cli import output
from raddle_operator.cli.manifests import ManifestError

EPILOG = """\b
Examples:
  raddle topology                      this machine, and what this process may use
  raddle topology -o json              the same, as versioned JSON
  raddle topology --root /captures/worker-7 -o json

\b
Exit codes: 0 done, 2 no machine in that folder.
"""


@click.command(epilog=EPILOG)
@click.option(
    "--root",
    default="/",
    show_default=True,
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="A folder that holds sys/ and proc/ of a machine.",
)
@click.option("-o", "--output", "form", default="text", show_default=True, type=click.Choice(["text", "json", "yaml"]))
def topology(root: Path, form: str) -> None:
    """Show a machine: sockets, NUMA nodes, L3 domains, cores, and what may be used of it."""
    machine = sysfs.read_machine(str(root))
    if not machine.online:
        raise ManifestError(f"{root}: no online CPU found below sys/devices/system/cpu")
    allotment = cgroup.read_allotment(str(root))
    if form != "text":
        output.write(document.to_document(machine, allotment), form)
        return
    console = output.console()
    for line in [*describe(machine), *allowed(allotment)]:
        console.print(line)
    for problem in machine.problems:
        console.print(f"[yellow]problem[/]  {escape(problem.path)}: {escape(problem.reason)}")


def describe(machine: Machine) -> list[str]:
    """Return the lines about the machine: one for the whole, then sockets, NUMA nodes, L3 domains, core types."""
    count = cpuset.count
    threads = threads_per_core(machine)
    lines = [
        f"[bold]{escape(machine.model or 'unknown model')}[/] ({machine.architecture or 'unknown architecture'})",
        f"CPUs         {count(machine.online)} online ({cpuset.format_list(machine.online)})"
        + (f", offline {cpuset.format_list(machine.offline)}" if machine.offline else "")
        + (f", isolated {cpuset.format_list(machine.isolated)}" if machine.isolated else ""),
        f"cores        {len(machine.cores)}, {threads} thread{'s' * (threads > 1)} each at most",
    ]
    lines += [f"socket {s.id:<5} {_line(machine, s.cpus)}" for s in machine.sockets]
    for node in machine.numa_nodes:
        memory = f", {node.memory_mib / 1024:.1f} GiB" if node.memory_mib is not None else ""
        far = f", distances {' '.join(map(str, node.distances))}" if len(node.distances) > 1 else ""
        lines.append(f"NUMA node {node.id:<2} {_line(machine, node.cpus)}{memory}{far}")
        lines += [f"  L3 {d.id:<7} {_line(machine, d.cpus)}" for d in machine.l3_domains if d.cpus & node.cpus]
    if not machine.numa_nodes:
        lines += [f"L3 {d.id:<9} {_line(machine, d.cpus)}" for d in machine.l3_domains]
    if len(machine.core_types) > 1:
        for kind in machine.core_types:
            speed = f", {kind.max_frequency_mhz} MHz" if kind.max_frequency_mhz else ""
            capacity = f", capacity {kind.capacity}" if kind.capacity else ""
            lines.append(f"{kind.name:<12} {_line(machine, kind.cpus)}{speed}{capacity}")
    return lines


def _line(machine: Machine, cpus: int) -> str:
    if not cpus:
        return "no CPUs"
    return f"CPUs {cpuset.format_list(cpus)} ({cores_within(machine, cpus)} cores)"


def allowed(allotment: cgroup.Allotment) -> list[str]:
    """Return the line about what a process may use, nothing where no cgroup or status file tells."""
    usable, quota_cpus = cgroup.usable_cpus(allotment)
    parts = []
    if usable is not None:
        parts.append(f"CPUs {cpuset.format_list(usable)}")
    if quota_cpus is not None:
        parts.append(f"quota {quota_cpus:g} CPUs")
    return [f"may use      {', '.join(parts)}"] if parts else []

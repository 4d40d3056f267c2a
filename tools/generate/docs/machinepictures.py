"""Makes docs/images/machines: a picture of each recorded machine, as `raddle topology -o svg` draws it, and a page."""

from __future__ import annotations

from functools import cache
from typing import Final

import machines
from raddle.cpus import cpuset
from raddle.cpus.topology import Machine
from raddle.machine import sysfs
from raddle.planning.policy import Policy
from raddle_operator.cli.picture import layout, overlay, svg

# The README's picture: a container with these CPUs for itself, and what the kubelet keeps.
EXAMPLE: Final = ("2s4n-16c32t", "0-1", "8-15")
HEADER = """\
<!-- Made by `make generate` (tools/generate/docs/machinepictures.py) from tests/machines: edit those. -->

# The recorded machines

`python tools/machines.py NAME FOLDER` creates the folder of a machine, and `raddle topology --root FOLDER -o svg` draws
it. [tests/machines](../../../tests/machines/README.md) names the sources of the recordings.
"""


def picture(name: str) -> str:
    """The picture of a recorded machine."""
    return svg.draw(layout.picture(_machine(name)))


def page() -> str:
    """The page that shows all of them."""
    return HEADER + "".join(
        f"\n## {name}\n\n{layout.counted(_machine(name))}.\n\n![{name}]({name}.svg)\n" for name in machines.names()
    )


def example() -> str:
    """The picture of a pool with a core for each of its workers."""
    name, reserved, exclusive = EXAMPLE
    machine = _machine(name)
    kubelet = machine.kubelet._replace(cpu_manager_policy="static", reserved_cpus=cpuset.parse_list(reserved))
    machine = machine._replace(kubelet=kubelet)
    cpus = cpuset.parse_list(exclusive)
    plan = overlay.assumed(cpuset.count(cpus))._replace(policy=Policy(affinity="PerCore"))
    return svg.draw(layout.picture(machine, overlay.planned(machine, "serve", plan, cpus)))


@cache
def _machine(name: str) -> Machine:
    return sysfs.read_machine(str(machines.path(name)))

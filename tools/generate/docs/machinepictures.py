"""Writes docs/images/machines: a picture of each recorded machine, as `raddle topology -o svg` draws it, and a page.

    python -m generate.docs.machinepictures       write them

tests/contract/test_machine_pictures.py checks that they are current.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import machines
from raddle.cpus import cpuset
from raddle.cpus.topology import Machine
from raddle.machine import sysfs
from raddle.planning.policy import Policy
from raddle_operator.cli.picture import layout, overlay, svg

REPOSITORY = Path(__file__).resolve().parents[3]
TARGET = REPOSITORY / "docs" / "images" / "machines"

# The README's picture: a container with these CPUs for itself, and what the kubelet keeps.
EXAMPLE: Final = ("2s4n-16c32t", "0-1", "8-15")
HEADER = """\
<!-- Made by `make generate` (tools/generate/docs/machinepictures.py) from tests/machines: edit those. -->

# The recorded machines

Each as `raddle topology --root FOLDER -o svg` draws it; `python tools/machines.py NAME FOLDER` makes the folder.
Where the recordings come from: [tests/machines](../../../tests/machines/README.md).
"""


def files() -> Mapping[str, str]:
    """Return the name and content of each file."""
    read = {name: sysfs.read_machine(str(machines.path(name))) for name in machines.names()}
    found = {f"{name}.svg": svg.draw(layout.picture(machine)) for name, machine in read.items()}
    sections = [
        f"\n## {name}\n\n{layout.counted(machine)}.\n\n![{name}]({name}.svg)\n" for name, machine in read.items()
    ]
    found["README.md"] = HEADER + "".join(sections)
    found["example.svg"] = example(read[EXAMPLE[0]])
    return found


def example(machine: Machine) -> str:
    """Return the picture of a pool with a core for each of its workers."""
    _, reserved, exclusive = EXAMPLE
    kubelet = machine.kubelet._replace(cpu_manager_policy="static", reserved_cpus=cpuset.parse_list(reserved))
    machine = machine._replace(kubelet=kubelet)
    cpus = cpuset.parse_list(exclusive)
    plan = overlay.assumed(cpuset.count(cpus))._replace(policy=Policy(affinity="PerCore"))
    return svg.draw(layout.picture(machine, overlay.planned(machine, "serve", plan, cpus)))


def main() -> int:
    """Write the files, and remove the pictures of machines that are no more."""
    TARGET.mkdir(parents=True, exist_ok=True)
    wanted = files()
    for path in TARGET.iterdir():
        if path.name not in wanted:
            path.unlink()
    for name, content in wanted.items():
        (TARGET / name).write_text(content)
    return 0


if __name__ == "__main__":
    sys.exit(main())

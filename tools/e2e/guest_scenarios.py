"""What runs on the virtual node, and on both: plans of more than one thread, on a machine with NUMA and SMT."""

from __future__ import annotations

from typing import Final

from e2e.checks import Check
from e2e.guest import PATIENCE_SECONDS
from e2e.images import VENV_IMAGE
from e2e.resize import resize
from e2e.scenarios import HARDENED, IN_RESTRICTED, Container, Scenario
from e2e.settings import GUEST, HOST

# Each with the CPUs of two cores.
NUMA_NODES: Final = ("0-3", "4-7", "8-11", "12-15")

SCENARIOS: Final = (
    Scenario(
        name="whole-cores",
        why="four exclusive CPUs are two cores of one NUMA node: a thread per core, tied inside the set, spinning",
        qos="Guaranteed",
        nodes=(GUEST.name,),
        containers=(
            Container(
                request="4",
                limit="4",
                memory="512Mi",
                threads=2,
                cpus=None,
                cpu_count=4,
                within=NUMA_NODES,
                exclusive=True,
            ),
        ),
        seconds=PATIENCE_SECONDS,
    ),
    Scenario(
        name="three-cpus",
        why="a limit of three CPUs: three threads, more than a NUMA node has cores, tied to none",
        qos="Burstable",
        nodes=(GUEST.name,),
        containers=(Container(request="100m", limit="3", threads=3, cpus=GUEST.cpus, quota_cpus=3.0),),
        stock=False,
        seconds=PATIENCE_SECONDS,
    ),
    Scenario(
        name="venv-three-cpus",
        why="a virtual environment of which the policy says nothing, by Debian's containerd: three threads, bounded",
        qos="Burstable",
        nodes=(GUEST.name,),
        containers=(
            Container(
                image=VENV_IMAGE,
                security=HARDENED,
                request="100m",
                limit="3",
                threads=3,
                cpus=GUEST.cpus,
                quota_cpus=3.0,
            ),
        ),
        namespace_labels=IN_RESTRICTED,
        stock=False,
        seconds=PATIENCE_SECONDS,
    ),
    Scenario(
        name="best-effort-shared",
        why="nothing asked for beside exclusive CPUs: not tied, not spinning, no reserved CPU counted",
        qos="BestEffort",
        nodes=(GUEST.name,),
        containers=(Container(threads=2, cpus=GUEST.cpus),),
        stock=False,
        seconds=PATIENCE_SECONDS,
    ),
    Scenario(
        name="both-nodes",
        why="one Deployment, a limit of eight CPUs: each replica has the number of its own node",
        qos="Burstable",
        kind="Deployment",
        nodes=(HOST.name, GUEST.name),
        containers=(Container(request="100m", limit="8", threads=1, quota_cpus=8.0),),
        elsewhere={
            # Of its eight cores one is kept back.
            GUEST.name: (Container(request="100m", limit="8", threads=7, cpus=GUEST.cpus, quota_cpus=8.0),),
        },
        stock=False,
        seconds=PATIENCE_SECONDS,
    ),
)
CHECKS: Final = (
    Check(
        name="resize",
        why="a Burstable container loses CPUs in place: it is said, and its next start gets what there is",
        run=resize,
        nodes=(GUEST.name,),
    ),
)

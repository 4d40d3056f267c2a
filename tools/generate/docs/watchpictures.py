"""Makes docs/images/watch: a node's cores as `raddle top` draws them, of an example that nobody measured.

The page docs/how-to/watch-a-cluster.md shows the same example; its test asks for it through an API server's stand-in.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import machines
from raddle.cpus.topology import Machine
from raddle.machine import sysfs
from raddle_operator.cli.picture import layout, svg
from raddle_operator.cli.top import nodepicture
from raddle_operator.effective import compare
from raddle_operator.effective.planned import ContainerPlan
from raddle_operator.objects.nodereport import Container, Level, NodeReport, Pool, Process, Session

NODE: Final = "worker-7"
MACHINE: Final = "2s4n-16c32t"


def reports() -> Mapping[str, NodeReport]:
    """The example's nodes with their reports, compared with what was planned as an agent does."""
    resnet, berts = "resnet-5d8c9bb7f4", ("bert-6c9d7b5f4-k2v9m", "bert-6c9d7b5f4-x8wzr")
    worker = (
        _container("models", f"{resnet}-tq6xn", range(0, 32, 2), used=2.0, delay=11.2, throttled=0.83, source="code"),
        *(
            _container("models", bert, range(8, 16, 2), used=used, delay=2.1, limit=4.0, throttled=0.0, is_bound=True)
            for bert, used in zip(berts, (1.9, 1.8), strict=True)
        ),
        _container("search", "embed-0", range(24, 32, 2), used=2.2, delay=0.1, limit=4.0, throttled=0.0),
    )
    other = (_container("models", f"{resnet}-w7h2d", (0, 1), used=1.2, delay=0.1, throttled=0.01),)
    return {NODE: _report(NODE, worker), "worker-8": _report("worker-8", other)}


def machine() -> Machine:
    """The example's node."""
    return sysfs.read_machine(str(machines.path(MACHINE)))


def node() -> str:
    """The picture of a node's cores."""
    report, its = reports()[NODE], machine()
    return svg.draw(layout.picture(its, nodepicture.marks(report, nodepicture.occupancy(report, its))))


def _report(name: str, containers: tuple[Container, ...]) -> NodeReport:
    report = NodeReport(
        node=name, level=Level.PROCESSES, at="2026-11-24T09:30:00Z", window_s=15.0, containers=containers
    )
    plans = {(one.uid, one.name): _planned(one) for one in containers}
    return compare.compared(report, plans, {}, machine())


def _planned(container: Container) -> ContainerPlan:
    threads = int(container.limit_cpus or 0)
    return ContainerPlan(
        threads=threads,
        counts={"onnxruntime": threads},
        limit_cpus=container.limit_cpus,
        shim=True,
        runtimes=("onnxruntime",),
    )


def _container(
    namespace: str,
    pod: str,
    cpus: Sequence[int],
    *,
    used: float,
    delay: float,
    throttled: float,
    limit: float = 2.0,
    is_bound: bool = False,
    source: str = "plan",
) -> Container:
    """A container whose threads were on these CPUs last, one on each; `source` says who has set their count."""
    threads = len(cpus)
    pool = Pool(
        name="onnxruntime",
        threads=threads,
        ran=threads,
        used_cpus=used,
        delay_cpus=delay,
        migrations_hz=0.0 if is_bound else 40.0,
        last_cpus=dict.fromkeys(cpus, 1),
    )
    session = Session(runtime="onnxruntime", threads=threads, source=source)
    process = Process(
        pid=1,
        command="python3",
        threads=threads + 3,
        runtimes=("onnxruntime",),
        pools=(pool,),
        sessions=(session,),
        listened=True,
    )
    return Container(
        namespace=namespace,
        pod=pod,
        uid=pod,
        name="serve",
        policy=f"InferenceThreading/{namespace}/serving",
        limit_cpus=limit,
        quota_cpus=limit,
        used_cpus=used,
        throttled_share=throttled,
        processes=(process,),
    )

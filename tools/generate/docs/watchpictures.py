"""Makes docs/images/watch: a node's cores as `raddle top` draws them, of an example that nobody measured.

The page docs/how-to/watch-a-cluster.md shows the same example; its test asks for it through an API server's stand-in.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import machines
from raddle.cpus.topology import Machine
from raddle.machine import sysfs
from raddle_operator.cli.picture import layout, svg
from raddle_operator.cli.top import nodepicture
from raddle_operator.objects.nodereport import Cause, Container, Finding, Level, NodeReport, Pool, Process

NODE: Final = "worker-7"
MACHINE: Final = "2s4n-16c32t"


def reports() -> Mapping[str, NodeReport]:
    """The example's nodes with their reports."""
    sets_it = Finding(
        cause=Cause.CODE_SETS_IT,
        detail="onnxruntime has 16 threads, 2 are planned: the code sets intra_op_num_threads",
        fix="leave intra_op_num_threads out of SessionOptions, or set it to 0",
    )
    shared = [
        Finding(
            cause=Cause.SHARED_CORES,
            detail=f"its busy threads ran on cores of {other} serve too (CPUs 8-15)",
            fix="ask for whole CPUs with requests equal to limits, so that the kubelet gives each its own",
        )
        for other in ("models/bert-6c9d7b5f4-x8wzr", "models/bert-6c9d7b5f4-k2v9m")
    ]
    worker = (
        _container("models", "resnet-5d8c9bb7f4-tq6xn", range(0, 32, 2), used=2.0, delay=11.2, throttled=0.83)
        | {"effective_threads": 16, "findings": (sets_it,)},
        _container("models", "bert-6c9d7b5f4-k2v9m", (8, 10, 12, 14), used=3.1, delay=0.7, limit=4.0, throttled=0.04)
        | {"findings": shared[:1]},
        _container("models", "bert-6c9d7b5f4-x8wzr", (9, 11, 13, 15), used=3.4, delay=0.8, limit=4.0, throttled=0.06)
        | {"findings": shared[1:]},
        _container("search", "embed-0", (24, 26, 28, 30), used=2.2, delay=0.1, limit=4.0, throttled=0.0),
    )
    other = (_container("models", "resnet-5d8c9bb7f4-w7h2d", (0, 1), used=1.2, delay=0.1, throttled=0.01),)
    return {NODE: _report(NODE, worker), "worker-8": _report("worker-8", other)}


def machine() -> Machine:
    """The example's node."""
    return sysfs.read_machine(str(machines.path(MACHINE)))


def node() -> str:
    """The picture of a node's cores."""
    report, its = reports()[NODE], machine()
    return svg.draw(layout.picture(its, nodepicture.marks(report, nodepicture.ran(report, its))))


def _report(name: str, containers: tuple[dict[str, Any], ...]) -> NodeReport:
    return NodeReport(
        node=name,
        level=Level.PROCESSES,
        at="2026-11-24T09:30:00Z",
        window_s=15.0,
        containers=tuple(Container(**{**one, "findings": tuple(one["findings"])}) for one in containers),
    )


def _container(
    namespace: str, pod: str, cpus: Any, *, used: float, delay: float, throttled: float, limit: float = 2.0
) -> dict[str, Any]:
    """The fields of a container whose threads were on these CPUs last, one on each."""
    threads = len(cpus)
    pool = Pool(
        name="onnxruntime",
        threads=threads,
        ran=threads,
        used_cpus=used,
        delay_cpus=delay,
        last_cpus=dict.fromkeys(cpus, 1),
    )
    process = Process(pid=1, command="python3", threads=threads + 3, runtimes=("onnxruntime",), pools=(pool,))
    return {
        "namespace": namespace,
        "pod": pod,
        "uid": pod,
        "name": "serve",
        "policy": f"InferenceThreading/{namespace}/serving",
        "limit_cpus": limit,
        "quota_cpus": limit,
        "used_cpus": used,
        "throttled_share": throttled,
        "planned_threads": int(limit),
        "effective_threads": int(limit),
        "processes": (process,),
        "findings": (),
    }

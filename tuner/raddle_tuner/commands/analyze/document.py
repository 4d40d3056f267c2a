"""An analysis as JSON, for tools."""

from __future__ import annotations

from typing import Any

from raddle_tuner.analysis.analysis import Analysis


def document(found: Analysis) -> dict[str, Any]:
    """All that is known, for tools: times in milliseconds, sizes in bytes, null for what is not known.

    `toldApart` is false where what more threads change is no more than what the rounds differ by among themselves.
    """
    graph = found.graph
    return {
        "version": 1,
        "runtime": found.runtime,
        "opset": found.opset,
        "inputs": [
            {"name": one.name, "type": one.type, "shape": None if one.shape is None else list(one.shape)}
            for one in found.inputs
        ],
        "dynamic": {one.name: list(one.dimensions) for one in found.dynamic},
        "runs": {
            str(threads): {
                "ms": run.ms,
                "roundsMs": list(run.rounds_ms),
                "medianMs": run.median_ms,
                "count": run.count,
                "toldApart": None if threads == 1 else found.told_apart(threads),
            }
            for threads, run in found.runs.items()
        },
        "serialShare": found.serial_share,
        "payingThreads": found.paying_threads,
        "kinds": [
            {
                "name": kind.name,
                "count": kind.count,
                "timesMs": {str(threads): time for threads, time in kind.times_ms.items()},
                "serialShare": kind.serial_share,
                "toldApart": None if kind.serial_share is None else kind.told_apart,
            }
            for kind in found.kinds
        ],
        "graph": {
            "unit": "ms" if graph.timed else "nodes",
            "work": graph.work,
            "criticalPath": graph.length,
            "width": graph.width,
            "nodes": [
                {"name": node.name, "kind": node.kind, "needs": list(node.needs), "weight": weight}
                for node, weight in zip(graph.nodes, graph.weights, strict=True)
            ],
            "path": list(graph.path),
        },
        "parallel": {
            "canPay": found.parallel_can_pay,
            "gainAtMost": found.parallel_gain,
            "gainsOfRounds": list(found.parallel_gains),
            "toldApart": found.parallel_told_apart if found.parallel_gains else None,
            "maxInterOp": found.max_inter_op,
            "forks": found.forks,
        },
        "controlFlow": [{"kind": kind, "where": where} for kind, where in found.control_flow],
        "cudaGraphObstacles": list(found.cuda_graph_obstacles),
        "memory": {
            "weightsBytes": found.weights_bytes,
            "externalBytes": found.external_bytes,
            "loadedBytes": found.memory.loaded_bytes if found.memory else None,
            "runningBytes": found.memory.running_bytes if found.memory else None,
            "arenaBytes": found.memory.arena_bytes if found.memory else None,
        },
        "remarks": list(found.remarks),
    }

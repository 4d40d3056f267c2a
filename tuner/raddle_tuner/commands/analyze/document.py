"""An analysis as JSON, for tools."""

from __future__ import annotations

from typing import Any

from raddle_tuner.analysis.analysis import Analysis


def document(result: Analysis) -> dict[str, Any]:
    """All that is known, for tools: times in milliseconds, sizes in bytes, null for what is not known.

    `toldApart` is false where what more threads change is no more than what the rounds differ by among themselves.
    """
    graph = result.graph
    return {
        "version": 1,
        "runtime": result.runtime,
        "opset": result.opset,
        "inputs": [
            {"name": one.name, "type": one.type, "shape": None if one.shape is None else list(one.shape)}
            for one in result.inputs
        ],
        "dynamic": {one.name: list(one.dimensions) for one in result.dynamic},
        "runs": {
            str(threads): {
                "ms": run.ms,
                "roundsMs": list(run.rounds_ms),
                "medianMs": run.median_ms,
                "count": run.count,
                "toldApart": None if threads == 1 else result.told_apart(threads),
            }
            for threads, run in result.runs.items()
        },
        "serialShare": result.serial_share,
        "payingThreads": result.paying_threads,
        "kinds": [
            {
                "name": kind.name,
                "count": kind.count,
                "timesMs": {str(threads): time for threads, time in kind.times_ms.items()},
                "serialShare": kind.serial_share,
                "toldApart": None if kind.serial_share is None else kind.told_apart,
            }
            for kind in result.kinds
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
            "canPay": result.parallel_can_pay,
            "gainAtMost": result.parallel_gain,
            "gainsOfRounds": list(result.parallel_gains),
            "toldApart": result.parallel_told_apart if result.parallel_gains else None,
            "maxInterOp": result.max_inter_op,
            "forks": result.forks,
        },
        "controlFlow": [{"kind": kind, "where": where} for kind, where in result.control_flow],
        "cudaGraphObstacles": list(result.cuda_graph_obstacles),
        "memory": {
            "weightsBytes": result.weights_bytes,
            "externalBytes": result.external_bytes,
            "loadedBytes": result.memory.loaded_bytes if result.memory else None,
            "runningBytes": result.memory.running_bytes if result.memory else None,
            "arenaBytes": result.memory.arena_bytes if result.memory else None,
        },
        "remarks": list(result.remarks),
    }

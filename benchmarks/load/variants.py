"""The variants that are compared: stock, the one-line fixes that people know, and what Raddle's plan sets.

Raddle's environment is made by the functions that the webhook uses (`raddle.planner`, `raddle.wire`), for a container
with this CPU limit, the default policy and this machine; the shim is what the ConfigMap delivers.
"""

from __future__ import annotations

import math
import platform
from collections.abc import Mapping
from pathlib import Path

from load.measure import Cell, Variant
from raddle import delivery, env, sysfs
from raddle.planner import Budget, Plan, plan
from raddle.policy import Policy
from raddle.topology import Machine
from raddle.wire import shim_text
from raddle_operator import families

STOCK = "stock"
COUNT = "threads = limit"
NO_SPIN = "spinning off"
RADDLE = "Raddle"


def of_table(cell: Cell, shim: Path) -> list[Variant]:
    """The four of the load table, stock first. `shim` is a folder made by `deliver`."""
    count = str(math.ceil(cell.limit_cpus or 1))
    return [
        Variant(name=STOCK),
        Variant(name=COUNT, env={env.ORT_INTRA: count}),
        Variant(name=NO_SPIN, spinning_off=True),
        Variant(name=RADDLE, env=raddle_env(cell, shim)),
    ]


def fixed(threads: int, *, spin: bool) -> Variant:
    """A pool of this size, for looking for what a plan should say. BLAS gets one thread, as beside any plan."""
    name = f"{threads} thread" + ("s" if threads > 1 else "") + ("" if spin else ", no spin")
    variables = {env.ORT_INTRA: str(threads), env.OMP: "1"}
    return Variant(name=name, env=variables, spinning_off=not spin)


def planned(cell: Cell) -> Plan:
    """The plan of a container with the cell's limit on the cell's host, under the default policy."""
    limit = cell.limit_cpus
    because = "no CPU limit" if limit is None else f"limits.cpu {limit:g}"
    return plan(machine(cell.host_cores), Budget(quota_cpus=limit, because=because), Policy())


def raddle_env(cell: Cell, shim: Path) -> dict[str, str]:
    """The variables that the webhook gives the container, with the values that the kubelet resolves."""
    decided = planned(cell)
    found: Mapping[str, object | None] = {
        env.ORT_INTRA: decided.intra_op_without_shim,
        env.ORT_INTER: decided.inter_op,
        env.OMP: decided.omp,
        env.OPENBLAS: decided.blas if decided.blas != decided.omp else None,
        env.PLAN: shim_text(decided, Policy()),
        "PYTHONUSERBASE": shim,
    }
    values = {name: str(value) for name, value in found.items() if value is not None}
    return {**values, **families.literals(decided, Policy(), sets={}, image_env={}).values, **_loading(cell, shim)}


def _loading(cell: Cell, shim: Path) -> dict[str, str]:
    """What loads the shims of Node.js and of native programs, which a policy's imageEnv lets the webhook extend."""
    if cell.runtime == "onnxruntime-node":
        return {"NODE_OPTIONS": f"--require {_below(shim, delivery.NODE_MODULE)}"}
    if cell.runtime == "onnxruntime-c":
        return {"LD_PRELOAD": _below(shim, delivery.native_library(platform.machine()))}
    return {}


def _below(shim: Path, mounted: str) -> str:
    return mounted.replace(delivery.MOUNT_PATH, str(shim), 1)


def machine(host_cores: int | None) -> Machine:
    """This machine, or the faked host: that many cores of one CPU each."""
    if host_cores is None:
        return sysfs.read_machine()
    return Machine(online=(1 << host_cores) - 1, cores=tuple(1 << cpu for cpu in range(host_cores)))


def deliver(folder: Path) -> Path:
    """The shim's files below `folder`, as the mounted ConfigMap shows them to a container; the folder."""
    delivery.write(str(folder))
    return folder

"""The variants that are compared: stock, Raddle, and every fixed setting that a user could write.

Raddle's environment is made by the functions that the webhook uses, for a container with this CPU limit and this
machine, once under the default policy and once under one that says what is known of the load; the shim is what the
ConfigMap delivers.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from pathlib import Path

from load.measure import Cell, Variant
from raddle import delivery, env
from raddle.machine import sysfs
from raddle.planning.planner import Budget
from raddle.planning.policy import Policy
from raddle_operator.injection import plan_annotations, variables
from raddle_operator.objects import pods
from raddle_tuner.search.space import thread_counts

STOCK = "stock"
RADDLE = "Raddle"
WITH_LOAD = "Raddle with load"
_SPINS = ("never", "50", "200", "always")
_WAIT_POLICY = "OMP_WAIT_POLICY"
_POD = {"metadata": {"name": "load"}, "spec": {"containers": [{"name": "load", "image": "load"}]}}


def competitors(cell: Cell, service_s: float, shim: Path, settings: Sequence[str] | None = None) -> list[Variant]:
    """Stock, Raddle by default, Raddle with `spec.load`, and the fixed settings; None: all that a user could write.

    `service_s` is what a request takes on one thread, which a policy with `load` knows. `shim` is a folder made by
    `deliver`.
    """
    by_default, with_load = policies(cell, service_s)
    stock, *others = without_raddle(cell, settings)
    return [
        stock,
        Variant(name=RADDLE, env=raddle_env(cell, shim, by_default)),
        Variant(name=WITH_LOAD, env=raddle_env(cell, shim, with_load)),
        *others,
    ]


def without_raddle(cell: Cell, settings: Sequence[str] | None = None) -> list[Variant]:
    """Stock and the fixed settings, as for `competitors`."""
    return [Variant(name=STOCK), *(fixed(cell.runtime, setting) for setting in settings or settings_here(cell))]


def policies(cell: Cell, service_s: float) -> tuple[Policy, Policy]:
    """The default policy, and one that states all that the cell's user could know of its load."""
    known = Policy(run_time_us=round(1e6 * service_s), request_rate=cell.requests_per_s, concurrent_runs=cell.callers)
    return Policy(), known


def settings_here(cell: Cell) -> list[str]:
    """What a user could write for the cell's runtime on this machine, in the words that `fixed` reads."""
    cores = len(sysfs.read_machine().cores)
    return all_settings(cell.runtime, thread_counts(math.ceil(cell.limit_cpus or cores), cores))


def all_settings(runtime: str, counts: Sequence[int]) -> list[str]:
    """What a user could write for this runtime with these thread counts, 1 among them.

    One thread does not wait for others, so it has no second way to. Beside ONNX Runtime BLAS has one thread or the most
    of them.
    """
    several = [count for count in counts if count > 1]
    if runtime in ("torch", "openmp"):
        return ["1", *(f"{count}{wait}" for count in several for wait in ("", ":PASSIVE"))]
    result = ["1", *(f"{count}:{spin}" for count in several for spin in _SPINS)]
    if runtime == "blas":
        return [f"{one}+{blas}" for one, blas in itertools.product(result, sorted({1, *several[-1:]}))]
    return result


def fixed(runtime: str, setting: str) -> Variant:
    """The variant of a setting: THREADS, THREADS:HOW or, for BLAS beside ONNX Runtime, THREADS:HOW+BLAS_THREADS.

    HOW is never, always or microseconds for ONNX Runtime, and OMP_WAIT_POLICY for torch and OpenMP; without it it stays
    the runtime's default. Raises ValueError.
    """
    own, _, blas = setting.partition("+")
    count, _, how = own.partition(":")
    openmp = runtime in ("torch", "openmp")
    hows = how in ("PASSIVE", "ACTIVE") if openmp else how in ("never", "always") or how.isdecimal()
    if not count.isdecimal() or (how and not hows) or (blas and not (runtime == "blas" and blas.isdecimal())):
        raise ValueError(f"{setting!r} is no setting of {runtime}; such are {', '.join(all_settings(runtime, (1, 2)))}")
    name = f"{count} thread" + "s" * (count != "1")
    name += f", {how} us" if how.isdecimal() else f", {how}" * bool(how)
    name += f", BLAS {blas}" * bool(blas)
    if openmp:
        return Variant(name=name, env={env.OMP: count, **({_WAIT_POLICY: how} if how else {})})
    beside = {env.OPENBLAS: blas} if blas else {}
    return Variant(name=name, env=beside, threads=int(count), spin=how or None)


def budget(cell: Cell) -> Budget:
    """What the planner knows of a container of the cell."""
    limit = cell.limit_cpus
    because = "no CPU limit" if limit is None else f"limits.cpu {limit:g}"
    if cell.exclusive:
        return Budget(quota_cpus=limit, whole_cpus=int(limit or 1), dedicated="taskset", because=because)
    return Budget(quota_cpus=limit, because=because)


def raddle_env(cell: Cell, shim: Path, policy: Policy) -> dict[str, str]:
    """The variables that the webhook gives the container under this policy, as the kubelet resolves them."""
    plan, values = plan_annotations.compose(sysfs.read_machine(), budget(cell), policy)
    (container,) = pods.pod_from_object(_POD).containers
    chosen = variables.chosen(container, plan, policy, kept=(), shim=True)
    references = {name: values[prefix] for name, prefix in chosen.references.items() if prefix in values}
    # In a pod a mounted file lists what is preloaded.
    return {**references, **chosen.literals, "LD_PRELOAD": delivery.LIBRARY.replace(delivery.MOUNT_PATH, str(shim), 1)}


def deliver(folder: Path) -> Path:
    """The shim's files below `folder`, as the mounted ConfigMap shows them to a container; the folder.

    Raises KeyError where the native shim was not built for this machine.
    """
    delivery.write(str(folder))
    return folder

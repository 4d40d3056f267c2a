"""ONNX Runtime's affinity string, one CPU set for each worker of a pool; and the CPUs of the thread that makes it."""

from __future__ import annotations

import os
from typing import Any, Callable, Iterable, Mapping

from raddle import errors, log
from raddle.cpus import cpuset

# Config values may be 8192 characters long in newer versions, 1024 in all.
MAX_AFFINITY_TEXT = 1024
# Linux's cpu_set_t, which ONNX Runtime uses, ends here.
CPU_SETSIZE = 1024

# All CPUs that a kernel may have. So many take a while to be told, and most machines have no more than a cpu_set_t.
_MOST_CPUS = 8192

# (what was asked for last, the text, the pool's CPUs)
_last: tuple[tuple[Any, ...], str, int] = ((), "", 0)


def affinity_text(groups: tuple[int, ...]) -> str:
    """ORT's string for one CPU set per worker: ids from 1, each group a range or a list, no spaces.

    "" where it can't be written: no groups, an empty one, a CPU that cpu_set_t can't hold, or too long a text.
    Grammar: onnxruntime/core/util/thread_utils.cc, ReadThreadAffinityConfig.
    """
    # Most groups are equal: each is written once.
    written = {}
    for group in set(groups):
        if group <= 0 or group >> CPU_SETSIZE:
            return ""
        written[group] = _group_text(group)
    text = ";".join([written[group] for group in groups])
    return text if len(text) <= MAX_AFFINITY_TEXT else ""


def _group_text(group: int) -> str:
    ids = [cpu + 1 for cpu in cpuset.ids(group)]
    is_range = len(ids) > 1 and len(ids) == ids[-1] - ids[0] + 1
    return f"{ids[0]}-{ids[-1]}" if is_range else ",".join(map(str, ids))


def threads_of(text: str) -> int:
    """The pool's size that the code's own string was written for: a group for each worker, and the caller."""
    return len([group for group in text.split(";") if group]) + 1


def planned(fields: Mapping[str, Any], cpus: int, count: int) -> tuple[str, int]:
    """The planner's groups for the workers of a pool of `count`, and the pool's CPUs; ("", 0) where there are none."""
    global _last  # noqa: PLW0603  # a cache of one: an application's sessions are alike
    affinity = fields.get("affinity", "none")
    asked = (cpus, count, affinity, *[fields.get(key) for key in ("numa", "ctype", "smt", "gpu")])
    # Read and written once each: other threads make sessions too.
    known = _last
    if known[0] != asked:
        known = _last = (asked, *_planned(fields, cpus, count, affinity))
    return known[1:]


def _planned(fields: Mapping[str, Any], cpus: int, count: int, affinity: str) -> tuple[str, int]:
    try:
        # Imported here: only an exclusive container needs it.
        from raddle.cpus import places  # noqa: PLC0415

        text = _text_within(places.groups(fields, cpus, count, affinity), cpus, count)
        # Too long where siblings are numbered apart, so that each group is a list.
        if not text and affinity == "numa":
            text = _text_within(places.groups(fields, cpus, count, affinity, siblings=False), cpus, count)
        return text, places.pool(fields, cpus, count) if text else 0
    except Exception as error:
        log.failed("no affinity", error)
        return "", 0


def _text_within(groups: tuple[int, ...], cpus: int, count: int) -> str:
    fits = len(groups) == count - 1 and not any(group & ~cpus for group in groups)
    return affinity_text(groups) if fits else ""


# --- the thread that makes a session --------------------------------------------------------------------------------


def with_affinity(cpus: int, call: Callable[..., Any]) -> Callable[..., Any]:
    """`call`, made where the calling thread runs on these CPUs, if they are some of its own or have all of its own.

    A model's weights are on the NUMA node where they are first written to, and a thread hands its CPUs on to those that
    it starts. It gets its own CPUs back.
    """

    def called(*args: Any, **kwargs: Any) -> Any:
        back = _cpus_to_restore(cpus)
        if not back:
            return call(*args, **kwargs)
        # Whatever is raised, a signal handler's KeyboardInterrupt too, comes after `back` is known.
        try:
            _run_on(cpuset.ids(cpus))
            return call(*args, **kwargs)
        finally:
            _run_on(back) or _run_on(range(_MOST_CPUS))

    return called


def _cpus_to_restore(cpus: int) -> Iterable[int]:
    """The CPUs that the calling thread is to have after it was on `cpus`; () where it is to stay as it is."""
    try:
        own = os.sched_getaffinity(0)
        mask = cpuset.of(own)
        if not cpus or cpus == mask or (cpus & ~mask and mask & ~cpus):
            return ()
    except (AttributeError, OSError) as error:
        errors.let_through(error)
        return ()
    # A thread that was never told where to run follows its container through a resize, and has to do so again: since
    # Linux 6.2 the kernel remembers what a thread asked for.
    every = range(CPU_SETSIZE if mask < 1 << CPU_SETSIZE else _MOST_CPUS)
    try:
        return every if _run_on(every) and os.sched_getaffinity(0) == own else own
    except OSError as error:
        errors.let_through(error)
        return own


def _run_on(cpus: Iterable[int]) -> bool:
    try:
        os.sched_setaffinity(0, cpus)
    except OSError as error:
        errors.let_through(error)
        # None of them is the container's any more, or a sandbox forbids it.
        return False
    return True

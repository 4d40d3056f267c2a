"""ONNX Runtime's affinity string: one CPU set for each worker of a pool."""

from __future__ import annotations

from typing import Any, Mapping

from raddle import cpuset, record

# Config values may be 8192 characters long in newer versions, 1024 in all.
MAX_AFFINITY_TEXT = 1024
# Linux's cpu_set_t, which ONNX Runtime uses, ends here.
CPU_SETSIZE = 1024

# (what the last text was asked for, the text)
_last: tuple[tuple[Any, ...], str] = ((), "")


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


def planned_text(fields: Mapping[str, Any], cpus: int, count: int) -> str:
    """The planner's groups for the workers of a pool of `count`, "" where there are none for these CPUs."""
    global _last  # noqa: PLW0603  # a cache of one: an application's sessions are alike
    planned = fields.get("aff", "none")
    asked = (cpus, count, planned, *[fields.get(key) for key in ("numa", "ctype", "smt", "gpu")])
    if _last[0] == asked:
        return _last[1]
    text = _planned_text(fields, cpus, count, planned)
    _last = (asked, text)
    return text


def _planned_text(fields: Mapping[str, Any], cpus: int, count: int, planned: str) -> str:
    try:
        # Imported here: only an exclusive container needs it.
        from raddle.adapters import places  # noqa: PLC0415

        text = _text_within(places.groups(fields, cpus, count, planned), cpus, count)
        # Too long where siblings are numbered apart, so that each group is a list.
        if not text and planned == "numa":
            text = _text_within(places.lowest_groups(fields, cpus, count, planned), cpus, count)
    except Exception as error:
        record.complain(f"no affinity: {error!r}")
        return ""
    return text


def _text_within(groups: tuple[int, ...], cpus: int, count: int) -> str:
    fits = len(groups) == count - 1 and not any(group & ~cpus for group in groups)
    return affinity_text(groups) if fits else ""

"""ONNX Runtime's SessionOptions: what the plan changes on one object, and how it is taken back.

Counts, execution mode and graph level are attributes and go back exactly. Config entries can't be removed, and ONNX
Runtime logs a warning whenever one is overwritten: spinning entries therefore stay on the object, remembered as
ours, and affinity is only added to an object that nobody else holds.
"""

from __future__ import annotations

import threading
import weakref
from typing import Any, Mapping

from raddle import cpuset, record
from raddle.adapters.live import Effective

# session.*.spin_duration_us: microsoft/onnxruntime#27916.
SPIN_DURATION_SINCE = (1, 26)
# Config values may be 8192 characters long in newer versions, 1024 in all.
MAX_AFFINITY_TEXT = 1024
# Linux's cpu_set_t, which ONNX Runtime uses, ends here.
CPU_SETSIZE = 1024
AFFINITY_KEY = "session.intra_op_thread_affinities"
# What a count is when the code has not set it; -1 is ONNX Runtime's "default, not pinned".
UNSET_COUNTS = (0, -1)
GRAPH_LEVELS = {
    "disable": "ORT_DISABLE_ALL",
    "basic": "ORT_ENABLE_BASIC",
    "extended": "ORT_ENABLE_EXTENDED",
    "all": "ORT_ENABLE_ALL",
}


def affinity_text(groups: tuple[int, ...]) -> str:
    """ORT's string for one CPU set per worker: ids from 1, each group a range or a list, no spaces.

    "" where it can't be written: no groups, an empty one, a CPU that cpu_set_t can't hold, or too long a text.
    Grammar: onnxruntime/core/util/thread_utils.cc, ReadThreadAffinityConfig.
    """
    parts = []
    for group in groups:
        if group <= 0 or group >> CPU_SETSIZE:
            return ""
        ids = [cpu + 1 for cpu in cpuset.ids(group)]
        is_range = len(ids) > 1 and len(ids) == ids[-1] - ids[0] + 1
        parts.append(f"{ids[0]}-{ids[-1]}" if is_range else ",".join(map(str, ids)))
    text = ";".join(parts)
    return text if len(text) <= MAX_AFFINITY_TEXT else ""


class Held:
    """What is remembered of a living options object: its lock, and which of its entries are ours."""

    __slots__ = ("lock", "ours", "ref")

    def __init__(self, ref: weakref.ref[Any]) -> None:
        self.ref = ref
        self.lock = threading.RLock()
        self.ours: dict[str, str] = {}


class Edit:
    """Changes to one options object for one construction.

    `untouched`: the object was made for this very construction, so that no entry of it need be asked for. Asking
    costs 30 µs an entry, since ORT throws where there is none.
    """

    __slots__ = ("attributes", "entries", "held", "options", "undo", "untouched")

    def __init__(self, options: Any, held: Held, *, untouched: bool = False) -> None:
        self.untouched = untouched
        self.options = options
        self.held = held
        self.attributes: list[tuple[str, Any]] = []
        # Key, value, and what to write where the construction fails with it (None: nothing can be).
        self.entries: list[tuple[str, str, str | None]] = []
        self.undo: list[tuple[str, Any]] = []

    def entry(self, key: str) -> str | None:
        """The value that the code has set, None if it has set none."""
        if self.untouched:
            return None
        try:
            value: str = self.options.get_session_config_entry(key)
        except RuntimeError:
            return None
        return None if self.held.ours.get(key) == value else value

    def set(self, attribute: str, value: Any) -> None:
        """Plans the attribute's value, unless the object has it already."""
        if getattr(self.options, attribute) != value:
            self.attributes.append((attribute, value))

    def apply(self) -> None:
        """Makes the changes."""
        for name, value in self.attributes:
            self.undo.append((name, getattr(self.options, name)))
            setattr(self.options, name, value)
        for key, value, _ in self.entries:
            # Writing the same value again would only make ORT log that it is overwritten.
            if self.held.ours.get(key) != value:
                self.options.add_session_config_entry(key, value)
                self.held.ours[key] = value

    def restore(self) -> None:
        """Takes the attributes back."""
        while self.undo:
            name, value = self.undo.pop()
            setattr(self.options, name, value)

    def restore_entries(self) -> None:
        """Writes the code's own values, or ORT's defaults, over our entries; ORT logs a warning for each."""
        for key, _, back in self.entries:
            if self.held.ours.pop(key, None) is not None and back is not None:
                self.options.add_session_config_entry(key, back)


class Choice:
    """Decides between the plan's values and the code's, for one options object.

    `values` is what the session gets: intra, inter, mode, spin, spinUs, affinity, graph; absent where neither says
    anything. `because` says what decided where it was not simply the plan.
    module       onnxruntime.capi._pybind_state, for its enumerations.
    core_taken   another session's workers already have a core each.
    ask_affinity ask for affinity of the code's own. It is asked for only where it matters: a string that does not
                 fit the count makes the construction fail, and the caller asks then.
    """

    def __init__(
        self,
        edit: Edit,
        fields: Mapping[str, Any],
        wanted: Effective,
        module: Any,
        *,
        has_spin_duration: bool,
        core_taken: bool,
        ask_affinity: bool,
    ) -> None:
        self.edit = edit
        self.fields = fields
        self.wanted = wanted
        self.module = module
        self.has_spin_duration = has_spin_duration
        self.core_taken = core_taken
        self.respect = fields.get("existing") != "override"
        self.ask_affinity = ask_affinity or not self.respect or fields.get("aff", "none") != "none"
        self.code_affinity: str | None = None
        self.values: dict[str, Any] = {}
        self.because: dict[str, str] = dict(wanted.because)

    def make(self, cpus: int | None) -> None:
        """Decides everything; `cpus` are those that the process may run on."""
        # The attribute came with the global pool's Python function, in 1.23.
        if getattr(self.edit.options, "use_per_session_threads", True):
            self.code_affinity = self.edit.entry(AFFINITY_KEY) if self.ask_affinity else None
            self._counts_and_mode()
            self._spinning()
            self._affinity(cpus)
        else:
            self.because = {"intra": "the session uses the process's global thread pool"}
        self._graph_level()

    def _counts_and_mode(self) -> None:
        options = self.edit.options
        code_intra = None if options.intra_op_num_threads in UNSET_COUNTS else options.intra_op_num_threads
        code_inter = None if options.inter_op_num_threads in UNSET_COUNTS else options.inter_op_num_threads
        if self.respect and code_intra is None and self.code_affinity:
            # The code's affinity has a group for each worker: any other count would fail.
            code_intra = len([group for group in self.code_affinity.split(";") if group]) + 1
        self._count("intra", code_intra, self.wanted.intra)

        modes = self.module.ExecutionMode
        code_parallel = options.execution_mode == modes.ORT_PARALLEL
        planned = self.fields.get("mode")
        parallel = planned == "parallel" if planned and not (code_parallel and self.respect) else code_parallel
        self.values["mode"] = "parallel" if parallel else "sequential"
        self.edit.set("execution_mode", modes.ORT_PARALLEL if parallel else modes.ORT_SEQUENTIAL)
        inter = self.wanted.inter
        if parallel and planned != "parallel":
            # The code asks for Parallel where the plan doesn't: one inter-op thread would quietly turn it off.
            self.because["mode"] = "set in the code"
            inter = self.values.get("intra")
        self._count("inter", code_inter, inter)

    def _count(self, key: str, code: int | None, wanted: int | None) -> None:
        if code is not None and (self.respect or wanted is None):
            self.because[key] = "set in the code"
            wanted = code
        if wanted is not None:
            self.values[key] = wanted
            self.edit.set(key + "_op_num_threads", wanted)

    def _spinning(self) -> None:
        pools = []
        if self.values.get("intra") != 1:
            pools.append("intra")
        if self.values["mode"] == "parallel" and self.values.get("inter") != 1:
            pools.append("inter")
        planned = self.wanted.spin
        if not pools:
            planned = "never"
            self.because["spin"] = "no worker threads"
        elif planned == "bounded" and not self.has_spin_duration:
            planned = "never"
            since = "{}.{}".format(*SPIN_DURATION_SINCE)
            self.because["spin"] = "planned bounded, which onnxruntime can since " + since
        self.values["spin"] = planned or "always"
        if planned in ("never", "bounded"):
            for pool in pools:
                self._pool_spinning(f"session.{pool}_op.", planned)

    def _pool_spinning(self, prefix: str, planned: str) -> None:
        allow_key, duration_key = prefix + "allow_spinning", prefix + "spin_duration_us"
        allow = self.edit.entry(allow_key)
        duration = self.edit.entry(duration_key) if self.has_spin_duration else None
        if self.respect and (allow is not None or duration is not None):
            self.values["spin"], self.because["spin"] = "code", "set in the code"
            return
        if planned == "never":
            wanted = [(allow_key, allow, "0", "1")]
        else:
            self.values["spinUs"] = self.wanted.spin_us
            # Allowed is ORT's default: written only over another value of the code's.
            wanted = [(allow_key, allow or "1", "1", "1"), (duration_key, duration, str(self.wanted.spin_us), "-1")]
        for key, present, value, default in wanted:
            if present != value:
                self.edit.entries.append((key, value, present or default))

    def _affinity(self, cpus: int | None) -> None:
        planned, count = self.fields.get("aff", "none"), self.values.get("intra")
        self.values["affinity"] = "none"
        if self.code_affinity and self.respect:
            self.values["affinity"], self.because["affinity"] = "code", "set in the code"
            return
        text = ""
        if planned != "none" and cpus and count is not None and count > 1:
            text = self._planned_affinity(planned, cpus, count)
        if self.code_affinity and not text and count is not None and count > 1:
            # An entry can't be removed; a group of all CPUs for each worker is the same as none.
            text = affinity_text((cpus or 1,) * (count - 1))
            self.because["affinity"] = "the code's is overridden"
        if text:
            self.edit.entries.append((AFFINITY_KEY, text, self.code_affinity))

    def _planned_affinity(self, planned: str, cpus: int, count: int) -> str:
        if not self.wanted.exclusive:
            self.because["affinity"] = "the CPUs are not the exclusive ones that were planned"
        elif not self.code_affinity and not self.edit.untouched:
            self.because["affinity"] = "the options object is the code's own"
        elif planned == "core" and self.core_taken:
            self.because["affinity"] = "another session's workers have a core each"
        else:
            text = _groups_text(planned, cpus, count)
            if text:
                self.values["affinity"], self.values["affinityGroups"] = planned, text
                return text
            self.because["affinity"] = f"no groups for {count} threads on these CPUs"
        return ""

    def _graph_level(self) -> None:
        planned = self.fields.get("graph")
        if planned is None:
            return
        levels = self.module.GraphOptimizationLevel
        if self.respect and self.edit.options.graph_optimization_level != levels.ORT_ENABLE_ALL:
            self.because["graph"] = "set in the code"
            return
        self.values["graph"] = planned
        self.edit.set("graph_optimization_level", getattr(levels, GRAPH_LEVELS[planned]))

    def line(self, version: str) -> str:
        """E.g. "onnxruntime 1.31.1: intra_op=2 (planned 4, cut to quota 2), inter_op=1, spinning off"."""
        values = self.values
        spin = {"never": "off", "bounded": "{} us".format(values.get("spinUs")), "code": "as in the code"}
        parts = (
            ("intra", "intra_op={}".format(values.get("intra", "default"))),
            ("inter", "inter_op={}".format(values.get("inter", "default"))),
            ("spin", "spinning {}".format(spin.get(values.get("spin", ""), "default"))),
            ("affinity", "affinity {}".format(values.get("affinity", "none"))),
        )
        said = [text + (f" ({self.because[key]})" if key in self.because else "") for key, text in parts]
        return "onnxruntime {}: {}".format(version, ", ".join(said))


def _groups_text(planned: str, cpus: int, count: int) -> str:
    """The planner's groups for the workers in ORT's words, "" where there are none for these CPUs."""
    try:
        # Imported here: only an exclusive container needs them.
        from raddle.placement import affinity_groups  # noqa: PLC0415
        from raddle.sysfs import read_machine  # noqa: PLC0415

        groups = affinity_groups(read_machine(), cpus, count, planned)
    except Exception as error:
        record.complain(f"no affinity: {error!r}")
        return ""
    fits = len(groups) == count - 1 and not any(group & ~cpus for group in groups)
    return affinity_text(groups) if fits else ""

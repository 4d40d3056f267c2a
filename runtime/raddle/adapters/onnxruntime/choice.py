"""What one ONNX Runtime session gets: the plan's value or the code's, decided option by option, with reasons."""

from __future__ import annotations

import os
from typing import Any, Mapping

from raddle.adapters.onnxruntime.capabilities import (
    AFFINITY_SINCE,
    ALLOW_SPINNING_SINCE,
    SPIN_DURATION_SINCE,
    RuntimeCapabilities,
)
from raddle.adapters.onnxruntime.session_options import Edit
from raddle.keys import SWITCHES
from raddle.process.resolution import DEFAULT_SPIN_US, Effective

AFFINITY_KEY = "session.intra_op_thread_affinities"
ENV_ALLOCATORS_KEY = "session.use_env_allocators"
# What ONNX Runtime takes where there is no entry; "0" for all others.
_DEFAULTS = {"allow_spinning": "1", "spin_duration_us": "-1", "spin_backoff_max": "1"}
_SPIN_OPTIONS = ("allow_spinning", "spin_duration_us", "spin_backoff_max")
# What a count is when the code has not set it; -1 is ONNX Runtime's "default, not pinned".
UNSET_COUNTS = (0, -1)
GRAPH_LEVELS = {
    "disable": "ORT_DISABLE_ALL",
    "basic": "ORT_ENABLE_BASIC",
    "extended": "ORT_ENABLE_EXTENDED",
    "all": "ORT_ENABLE_ALL",
}
IN_THE_CODE = "set in the code"
IN_THE_ENVIRONMENT = "set in the environment"
GLOBAL_POOL = "the process's global thread pool"


class Choice:
    """Decides between the plan's values and the code's, for one options object.

    `values` is what the session gets, by the names of the policy and the plan: intraOp, interOp, executionMode,
    spinning, spinDurationUs, affinity, graphOptimizationLevel, sharedAllocator, globalThreadPool, configEntries, and
    SWITCHES; absent where neither says anything. `because` says what decided where it was not simply the plan.
    core_taken   another session's workers already have a core each.
    gpu          the GPU provider that the application asks for, "" for none.
    pool_cpus    the CPUs of the pool whose workers are pinned; 0: they are not.
    workers_cpus CPUs for workers that would have no more than the thread which makes the session; 0: they have enough.
    """

    def __init__(
        self, edit: Edit, capabilities: RuntimeCapabilities, wanted: Effective, *, core_taken: bool, gpu: str = ""
    ) -> None:
        self.edit = edit
        self.capabilities = capabilities
        self.fields = capabilities.fields
        self.wanted = wanted
        self.core_taken = core_taken
        self.respect = capabilities.respect
        self.own = capabilities.own_counts(os.environ)
        self.gpu = gpu
        self.code_affinity: str | None = None
        self.pools: list[str] = []
        self.pool_cpus = self.workers_cpus = 0
        # Pool -> the code's count that is only the machine's.
        self.copied: dict[str, int] = {}
        self.values: dict[str, Any] = {}
        self.because: dict[str, str] = dict(wanted.because)
        self.because.pop("globalIntraOp", None)

    def make(self, cpus: int | None, *, bound: bool = False) -> None:
        """Decides everything; `cpus` are those that the process may run on, `bound`: the calling thread has fewer."""
        # The attribute came with the global pool's Python function, in 1.23.
        if not getattr(self.edit.options, "use_per_session_threads", True):
            self.because = {"intraOp": GLOBAL_POOL}
        elif self._joins_global_pool():
            self._mode()
        elif self.capabilities.openmp is not None:
            self.values.update(self.capabilities.openmp.values)
            self.because.pop("intraOp", None)
            self.because.update(self.capabilities.openmp.because)
            self._inter(self._mode())
        else:
            self.code_affinity = self.edit.entry(AFFINITY_KEY)
            self._intra()
            self._inter(self._mode())
            self._spinning()
            self._affinity(cpus)
            # ONNX Runtime's own count has workers everywhere; one that the code has chosen was for its own thread.
            if bound and self.pools and self.because.get("intraOp") not in (IN_THE_CODE, IN_THE_ENVIRONMENT):
                self.workers_cpus = cpus or 0
        self._switches()
        self._shared_arena()
        self._graph_level()
        self._entries()

    def _joins_global_pool(self) -> bool:
        if not self.fields.get("global_thread_pool"):
            return False
        own_counts = ""
        code = (self._code_count("intra_op", self.wanted.intra_op), self._code_count("inter_op", self.wanted.inter_op))
        if self.respect and code != (None, None):
            own_counts = IN_THE_CODE
        elif self.own:
            own_counts = IN_THE_ENVIRONMENT
        reason = self.capabilities.sharing.join_pool(self.wanted, own_counts=own_counts)
        if reason:
            self.values["globalThreadPool"], self.because["globalThreadPool"] = False, reason
            return False
        intra, inter = self.capabilities.sharing.sizes
        cut = self.wanted.because.get("globalIntraOp")
        self.because["intraOp"] = GLOBAL_POOL + (f", {cut}" if cut else "")
        if own_counts:
            self.because["globalThreadPool"] = "created before a session whose own counts can't be kept"
        spin = "never" if (intra, inter) == (1, 1) else "always"
        self.values.update(globalThreadPool=True, intraOp=intra, interOp=inter, spinning=spin, affinity="none")
        return True

    def _intra(self) -> None:
        """Decides the count; that of the code's own affinity is the one that the affinity was written for.

        Without a count in the code ONNX Runtime takes the cores that it sees, and refuses an affinity for another one.
        Which count that would have been can't be known: Raddle's own variable stands in its place, and its plan for
        fewer must not make a session fail. So such a session is as without Raddle where it would have been created,
        and is created where it would have been refused.
        """
        code, where = self._code_count("intra_op", self.wanted.intra_op), IN_THE_CODE
        if self.respect and code is None and self.code_affinity:
            from raddle.adapters.onnxruntime.affinity import threads_of  # noqa: PLC0415

            code = threads_of(self.code_affinity)
        self._count("intra_op", code, where, self.wanted.intra_op)

    def _mode(self) -> int | None:
        """Decides the execution mode; returns the number of inter-op threads that fits it."""
        options, modes = self.edit.options, self.capabilities.module.ExecutionMode
        code_parallel = options.execution_mode == modes.ORT_PARALLEL
        planned = self.fields.get("execution_mode")
        parallel = planned == "parallel" if planned and not (code_parallel and self.respect) else code_parallel
        self.values["executionMode"] = "parallel" if parallel else "sequential"
        self.edit.set("execution_mode", modes.ORT_PARALLEL if parallel else modes.ORT_SEQUENTIAL)
        if parallel and planned != "parallel":
            # The code asks for Parallel where the plan doesn't: one inter-op thread would quietly turn it off.
            self.because["executionMode"] = IN_THE_CODE
            intra: int | None = self.values.get("intraOp")
            return intra
        return self.wanted.inter_op

    def _inter(self, wanted: int | None) -> None:
        self._count("inter_op", self._code_count("inter_op", wanted), IN_THE_CODE, wanted)

    def _code_count(self, pool: str, wanted: int | None) -> int | None:
        """The count that the code has set, None if it has set none."""
        count: int = getattr(self.edit.options, pool + "_num_threads")
        if count in UNSET_COUNTS:
            return None
        if self.respect and wanted is not None and wanted < count and not self.code_affinity:
            from raddle.process import machine_counts  # noqa: PLC0415

            if machine_counts.is_copied(count, self.wanted):
                self.copied[pool] = count
                return None
        return count

    def _count(self, pool: str, code: int | None, where: str, wanted: int | None) -> None:
        key = {"intra_op": "intraOp", "inter_op": "interOp"}[pool]
        if code is None and key in self.own:
            code, where = self.own[key], IN_THE_ENVIRONMENT
        if code is not None and (self.respect or wanted is None):
            self.because[key] = where
            wanted = code
        elif pool in self.copied:
            from raddle.process import machine_counts  # noqa: PLC0415

            self.because[key] = machine_counts.copied(self.copied[pool])
        if wanted is not None:
            self.values[key] = wanted
            self.edit.set(pool + "_num_threads", wanted)

    def _spinning(self) -> None:
        values = self.values
        self.pools = ["intra_op"] if values.get("intraOp") != 1 else []
        if values["executionMode"] == "parallel" and values.get("interOp") != 1:
            self.pools.append("inter_op")
        planned, why = self.fields.get("spinning"), ""
        may_spin = planned == "bounded"
        if may_spin:
            parallel = values["executionMode"] == "parallel"
            planned, why = self.wanted.pools_spin(values.get("intraOp"), values.get("interOp"), parallel=parallel)
        self.because.pop("spinning", None)
        if not self.pools:
            planned = "never"
            self.because["spinning"] = "no worker threads"
        elif why:
            self.because["spinning"] = why
        elif may_spin and self.gpu:
            # Its workers wait for a GPU most of the time; the count stays, since the provider may fall back to the CPU.
            planned = "never"
            self.because["spinning"] = "planned bounded, turned off: " + self.gpu
        elif planned == "bounded" and self.capabilities.version < SPIN_DURATION_SINCE:
            planned = "never"
            self.because["spinning"] = ("planned bounded, which onnxruntime supports since {}.{}").format(
                *SPIN_DURATION_SINCE
            )
        if self.pools and self.capabilities.version < ALLOW_SPINNING_SINCE:
            values["spinning"] = "always"
            self.because["spinning"] = "onnxruntime can disable it since {}.{}".format(*ALLOW_SPINNING_SINCE)
            return
        values["spinning"] = planned or "always"
        for pool in self.pools:
            self._pool_spinning(f"session.{pool}.", planned or "always")

    def _pool_spinning(self, prefix: str, planned: str) -> None:
        """Writes the pool's three entries, the plan's own before what follows from `spinning`."""
        wanted = {}
        if planned == "never":
            wanted["allow_spinning"] = "0"
        elif planned == "bounded":
            duration_us = self.fields.get("spin_duration_us", DEFAULT_SPIN_US)
            wanted = {"allow_spinning": "1", "spin_duration_us": str(duration_us)}
        for option in _SPIN_OPTIONS:
            if prefix + option in self.capabilities.entries:
                wanted[option] = self.capabilities.entries[prefix + option]
        if not wanted:
            return
        present = {
            option: self.edit.entry(prefix + option)
            for option in _SPIN_OPTIONS
            if option in wanted or (option != "spin_backoff_max" and self.capabilities.knows(prefix + option))
        }
        if self.respect and any(present.get(option) is not None for option in _SPIN_OPTIONS[:2]):
            self.values["spinning"], self.because["spinning"] = "code", IN_THE_CODE
            wanted = {"spin_backoff_max": wanted["spin_backoff_max"]} if "spin_backoff_max" in wanted else {}
        else:
            self._say_spinning(wanted)
        for option, value in wanted.items():
            if not (self.respect and present[option] is not None):
                self._write(prefix + option, present[option], value)

    def _say_spinning(self, wanted: Mapping[str, str]) -> None:
        duration = int(wanted.get("spin_duration_us", "-1"))
        if wanted.get("allow_spinning") == "0" or duration == 0:
            self.values["spinning"] = "never"
            self.values.pop("spinDurationUs", None)
        elif duration > 0:
            self.values["spinning"], self.values["spinDurationUs"] = "bounded", duration
        else:
            self.values["spinning"] = "always"

    def _write(self, key: str, present: str | None, value: str) -> None:
        """Plans the entry, unless ONNX Runtime takes that value anyway."""
        default = _DEFAULTS.get(key.rpartition(".")[2], "0")
        if (default if present is None else present) != value:
            self.edit.entries.append((key, value, present or default))

    def _entries(self) -> None:
        """The plan's own config entries: those of pools were written with them."""
        if self.capabilities.unknown:
            self.because["configEntries"] = self.capabilities.unknown
        if not self.capabilities.entries:
            return
        written = {key: value for key, value, _ in self.edit.entries}
        result: dict[str, str] = {}
        reasons = [self.capabilities.unknown] if self.capabilities.unknown else []
        for key, value in self.capabilities.entries.items():
            if key.rpartition(".")[2] in _SPIN_OPTIONS:
                if key.split(".")[1] not in self.pools:
                    reasons.append(key + ": no such pool")
                    continue
                present = written.get(key) or self.edit.entry(key)
            elif key in written:
                # The shared arena's.
                present = written[key]
            else:
                present = self.edit.entry(key)
                if not (self.respect and present is not None):
                    self._write(key, present, value)
                    present = None
            result[key] = value if present is None else present
            if result[key] != value:
                reasons.append(f"{key}: {'as the shared arena needs it' if key in written else IN_THE_CODE}")
        self.values["configEntries"] = result
        if reasons:
            self.because["configEntries"] = "; ".join(reasons)

    def _affinity(self, cpus: int | None) -> None:
        planned, count = self.fields.get("affinity", "none"), self.values.get("intraOp")
        self.values["affinity"] = "none"
        if self.code_affinity and self.respect:
            self.values["affinity"], self.because["affinity"] = "code", IN_THE_CODE
            return
        text = ""
        if planned != "none" and cpus and count is not None and count > 1:
            text = self._planned_affinity(planned, cpus, count)
        if self.code_affinity and not text and count is not None and count > 1:
            from raddle.adapters.onnxruntime.affinity import affinity_text  # noqa: PLC0415

            # An entry can't be removed; a group of all CPUs for each worker is the same as none.
            text = affinity_text((cpus or 1,) * (count - 1))
            self.because["affinity"] = "the code's value is overridden"
        if text:
            self.edit.entries.append((AFFINITY_KEY, text, self.code_affinity))

    def _planned_affinity(self, planned: str, cpus: int, count: int) -> str:
        if not self.wanted.exclusive:
            self.because["affinity"] = "the CPUs are not the exclusive ones that were planned"
        elif self.capabilities.version < AFFINITY_SINCE:
            self.because["affinity"] = "onnxruntime supports it since {}.{}".format(*AFFINITY_SINCE)
        elif not self.code_affinity and not self.edit.untouched:
            self.because["affinity"] = "the options object is the code's own"
        elif planned == "core" and self.core_taken:
            self.because["affinity"] = "the workers of another session are pinned to these cores"
        else:
            from raddle.adapters.onnxruntime.affinity import planned as planned_groups  # noqa: PLC0415

            text, self.pool_cpus = planned_groups(self.fields, cpus, count)
            if text:
                self.values["affinity"], self.values["affinityGroups"] = planned, text
                return text
            self.because["affinity"] = f"no groups for {count} threads on these CPUs"
        return ""

    def _switches(self) -> None:
        for key, attribute, name, initial in SWITCHES:
            planned = self.fields.get(key)
            if planned is None:
                continue
            if self.respect and getattr(self.edit.options, attribute) != initial:
                self.values[name], self.because[name] = not initial, IN_THE_CODE
            else:
                self.values[name] = bool(planned)
                self.edit.set(attribute, bool(planned))

    def _shared_arena(self) -> None:
        if not self.fields.get("shared_allocator"):
            return
        self.values["sharedAllocator"] = False
        if not self.values.get("cpuMemArena", self.edit.options.enable_cpu_mem_arena):
            self.because["sharedAllocator"] = "the session has no arena"
            return
        present = self.edit.entry(ENV_ALLOCATORS_KEY)
        if self.respect and present is not None:
            self.values["sharedAllocator"], self.because["sharedAllocator"] = present == "1", IN_THE_CODE
            return
        reason = self.capabilities.sharing.join_arena()
        if reason:
            self.because["sharedAllocator"] = reason
            return
        self.values["sharedAllocator"] = True
        self._write(ENV_ALLOCATORS_KEY, present, "1")

    def _graph_level(self) -> None:
        planned = self.fields.get("graph_optimization_level")
        if planned is None:
            return
        levels = self.capabilities.module.GraphOptimizationLevel
        if self.respect and self.edit.options.graph_optimization_level != levels.ORT_ENABLE_ALL:
            self.because["graphOptimizationLevel"] = IN_THE_CODE
            return
        self.values["graphOptimizationLevel"] = planned
        self.edit.set("graph_optimization_level", getattr(levels, GRAPH_LEVELS[planned]))

    def above(self, key: str) -> str:
        """What the code's own count is above, in words; "" where it is none, or not above what the process may use."""
        count = self.values.get(key)
        return self.wanted.above(count) if self.because.get(key) == IN_THE_CODE and type(count) is int else ""

    def line(self, version: str) -> str:
        """E.g. "onnxruntime 1.31.1: intra_op=2 (planned 4, cut to quota 2), inter_op=1, spinning off"."""
        values = self.values
        spin = {"never": "off", "bounded": "{} us".format(values.get("spinDurationUs")), "code": "as in the code"}
        parts = (
            ("intraOp", "intra_op={}".format(values.get("intraOp", "default"))),
            ("interOp", "inter_op={}".format(values.get("interOp", "default"))),
            ("spinning", "spinning {}".format(spin.get(values.get("spinning", ""), "default"))),
            ("affinity", "affinity {}".format(values.get("affinity", "none"))),
        )
        said = [
            text + (f" ({self.because[key]}{self.above(key)})" if key in self.because else "") for key, text in parts
        ]
        return "onnxruntime {}: {}".format(version, ", ".join(said))

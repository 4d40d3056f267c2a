"""PyTorch: its two pools get the plan's counts, and what the code sets wins unless the policy overrides.

Intra-op is a team of OpenMP threads for each calling thread. The door has completed OMP_NUM_THREADS, so mostly there is
nothing to do. torch.set_num_threads is called only where the environment doesn't lead to the planned count: it
starts a pool of sleeping threads that torch would go without, and it is a value of this process alone, so that a
launcher such as torchrun still sees OMP_NUM_THREADS unset and gives its workers a count of its own.

Inter-op is one pool per process, for fork in TorchScript: see inter_op.

A child that was forked after the import shares the CPUs with other workers that are still to be forked, so its count is
chosen again when a model is first called there.

Nothing is bound to CPUs, not even exclusive ones. Under OMP_PROC_BIND, libgomp pins each thread that ever calls torch
to the first place, and a thread hands its CPUs on to the threads and processes that it starts: all would share a core.
"""

from __future__ import annotations

import os
import sys
from typing import Any, Callable, Mapping

from raddle import COMPLETED, env, errors, libraries, log, mark
from raddle.adapters import frame, openmp, version_of
from raddle.adapters.torch.counts import (
    IN_THE_CODE,
    MKL,
    Choice,
    asked_count,
    choose,
    native_threads,
)
from raddle.adapters.torch.first_use import FirstUse
from raddle.adapters.torch.inter_op import InterOp, replace
from raddle.process import current
from raddle.report import record

# A fork from these needs no warning: a DataLoader's worker asks torch for one thread, a new program has none.
_HARMLESS_FORKS = ("torch.utils.data", "subprocess")
# Before, and at least in 1.13, set_num_threads ends a process that can't read /proc/cpuinfo.
_NEEDS_NO_CPUINFO = (2, 6)
# Frames that are looked through for them.
_MAX_FRAMES = 50

# The torch of this process, once it was imported under a plan that concerns it.
_loaded: list[_Torch] = []
# Something in it: the shim has been there since before torch was imported, when the door had completed these variables.
_prepared: list[dict[str, str]] = []


def prepare(plan_text: str) -> None:
    """Notes that torch is about to be imported, and has its OpenMP read the count of a worker, as numpy's."""
    openmp.prepare(plan_text)
    _prepared[:] = [dict(COMPLETED)]


def install(module: Any, plan_text: str) -> None:
    """Gives `torch` the plan's counts.

    A plan that can't be read, or a torch that isn't as expected, is left alone with one line on stderr.
    """
    try:
        fields = env.decode(plan_text)
    except env.PlanError as error:
        log.announce("torch", f"torch is not configured: {error}")
        return
    if "omp" not in fields and "torch_inter_op" not in fields:
        return
    try:
        facts = current.read_facts(fields, libraries.name_starts("torch"))
        choice = choose(fields, os.environ, facts, *_prepared)
        result = _Torch(module, choice, fresh=bool(_prepared))
        result.apply()
        _loaded[:] = [result]
        result.note(facts, plan_text)
        result.await_forks(fields)
    except Exception as error:
        log.failed("torch is not configured", error)


class _Torch:
    """One loaded torch and the counts chosen for it."""

    def __init__(self, module: Any, choice: Choice, *, fresh: bool) -> None:
        self.module = module
        self.choice = choice
        self.version = str(getattr(module, "__version__", ""))
        self.original_set: Callable[..., None] = module.set_num_threads
        self.original_get: Callable[[], int] = module.get_num_threads
        self.inter_op = None
        if choice.inter_op is not None:
            self.inter_op = InterOp(module, choice, choice.inter_op, fresh=fresh, changed=self.changed)
        self.recorded: dict[str, Any] = {}
        # What the mark is about.
        self.about, self.first_worker = "torch", True
        self.native_threads = 0
        self.in_child = FirstUse(module, lambda: None)
        # At the last fork: torch, or some other library, had started threads; and a warning is due, once per process.
        self.had_threads = False
        self.warn = False
        self.warned = False

    def apply(self) -> None:
        if self.choice.set_intra_op is not None:
            if version_of(self.version) >= _NEEDS_NO_CPUINFO or os.path.exists("/proc/cpuinfo"):
                self.original_set(self.choice.set_intra_op)
            else:
                self.choice.intra_op = None
                self.choice.because["intraOp"] = "this torch can't be configured without /proc/cpuinfo"
        if self.choice.intra_op is not None:
            replace(self.module, "set_num_threads", self.original_set, lambda *args, **kwargs: self.set(args, kwargs))
        if self.inter_op is not None:
            self.inter_op.replace()
        try:
            self.native_threads = native_threads()
        except OSError as error:
            errors.let_through(error)

    def await_forks(self, fields: Mapping[str, Any]) -> None:
        """Registers what is done at each fork from now on. torch keeps the environment that it was imported in."""
        environ = {name: os.environ[name] for name in (MKL, env.OMP) if name in os.environ}
        completed = tuple(_prepared)

        def again() -> None:
            try:
                facts = current.read_facts(fields, libraries.name_starts("torch"))
                self.rechoose(choose(fields, environ, facts, *completed), facts)
            except Exception as error:
                log.failed("torch keeps its parent's count of threads", error)
            # Not before: what a signal handler raises leaves it to the next call.
            self.in_child.end()

        self.in_child = FirstUse(self.module, again)
        os.register_at_fork(before=self.before_fork, after_in_child=self.after_fork)

    def rechoose(self, choice: Choice, facts: current.Facts) -> None:
        """In a forked child: takes over the intra-op count of a new choice."""
        if choice.intra_op in (None, self.choice.intra_op):
            return
        if self.original_get() != self.choice.intra_op:
            # The code has told OpenMP itself, by threadpoolctl for one.
            return
        self.original_set(choice.intra_op)
        self.choice.intra_op = choice.intra_op
        self.choice.because.pop("intraOp", None)
        self.choice.because.update({key: why for key, why in choice.because.items() if key == "intraOp"})
        self.note(facts, self.recorded["plan"], "torch after a fork")

    def set(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """A call of torch.set_num_threads: torch's own goes through, the application's unless the policy overrides."""
        choice = self.choice
        # A call in a child is a decision.
        self.in_child.end()
        # A lambda's frame is in between. A DataLoader's worker asks for one thread, and must have it.
        if not _is_in(frame(3), ("torch",)):
            asked = asked_count(args, kwargs)
            if choice.override and asked > 0:
                if asked != choice.intra_op:
                    log.complain(f"torch.set_num_threads({asked}) is overridden: intra_op={choice.intra_op}")
                    args = (choice.intra_op,)
            elif asked > 0:
                args, kwargs = (self.decided(asked),), {}
                self.changed()
        self.original_set(*args, **kwargs)

    def decided(self, asked: int) -> int:
        """The count that a call of the application's comes to."""
        choice, planned = self.choice, self.choice.wanted.intra_op
        try:
            # Few applications set a count.
            from raddle.process import machine_counts  # noqa: PLC0415

            if planned is not None and planned < asked and machine_counts.is_copied(asked, choice.wanted):
                choice.intra_op, choice.because["intraOp"] = planned, machine_counts.copied(asked)
                return planned
        except Exception as error:
            # The mount is out of reach, after chroot for one.
            log.failed("torch's count is not compared with the machine's", error)
        choice.intra_op, choice.because["intraOp"] = asked, IN_THE_CODE
        return asked

    def note(self, facts: current.Facts, plan_text: str, what: str = "torch") -> None:
        """Keeps what it came to, and says it."""
        self.recorded = {
            "runtime": "torch",
            "version": self.version,
            "pid": os.getpid(),
            "plan": plan_text,
            "effective": self.choice.effective(),
            "because": self.choice.reasons(),
            "cpus": facts.cpus,
            "quotaCPUs": facts.quota_cpus,
            "throttled": facts.throttled,
            "workersSeen": facts.workers_seen,
        }
        record.add(self.recorded)
        self.about, self.first_worker = what, facts.first_worker
        log.announce(what, self.choice.line(self.version), first_worker=facts.first_worker)

    def changed(self, *, is_said: bool = False) -> None:
        """Brings the record and the mark up to date with the choice, and says new counts unless a line did so."""
        before, counts = self.recorded.get("effective"), self.choice.effective()
        self.recorded["effective"] = counts
        self.recorded["because"] = self.choice.reasons()
        line = self.choice.line(self.version)
        if is_said or before == counts:
            mark.leave(self.about, line)
        else:
            change = "/".join(map(str, counts.values()))
            log.announce(self.about, line, first_worker=self.first_worker, change=change)
        record.changed()

    def before_fork(self) -> None:
        try:
            self.had_threads = native_threads() > self.native_threads
            harmless = self.warned or _is_below(sys._getframe(1), _HARMLESS_FORKS)  # noqa: SLF001
            self.warn = self.had_threads and not harmless
            self.warned = self.warned or self.warn
        except Exception as error:
            self.had_threads, self.warn = True, False
            errors.let_through(error)

    def after_fork(self) -> None:
        try:
            self.native_threads = 0
            if self.inter_op is not None:
                self.inter_op.forked(had_threads=self.had_threads)
            if self.warn:
                log.complain(
                    "this process was forked after torch, or another library, had started threads: they do not exist "
                    "in it, and torch may wait for them for ever; fork before the first run, or use spawn"
                )
            self.in_child.end()
            if self.choice.intra_op is not None and self.choice.because.get("intraOp") != IN_THE_CODE:
                self.in_child.before(self.module.nn.Module, "__call__")
                self.in_child.before_scripts(self.module._C)  # noqa: SLF001
                for holder in (self.module, self.module._C):  # noqa: SLF001
                    self.in_child.before(holder, "get_num_threads")
        except Exception as error:
            errors.let_through(error)


def _is_in(frame: Any, packages: tuple[str, ...]) -> bool:
    """Whether the frame's module is one of these, or below one; False without a frame."""
    name = "" if frame is None else str(frame.f_globals.get("__name__", ""))
    return any(name == package or name.startswith(package + ".") for package in packages)


def _is_below(frame: Any, packages: tuple[str, ...]) -> bool:
    """Whether the frame, or one of its callers, is in one of these."""
    for _ in range(_MAX_FRAMES):
        if frame is None:
            return False
        if _is_in(frame, packages):
            return True
        frame = frame.f_back
    return False

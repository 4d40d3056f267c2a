"""PyTorch's inter-op count, which torch takes once in a process: Raddle's is kept back until the last moment.

A second call of set_num_interop_threads, or one after the pool was made, raises RuntimeError; before torch 2.2 it
kills the process (pytorch/pytorch#113684). So under `respect` the count is only kept ready, and is set when
TorchScript first runs or parallel_info is asked for, unless the application has set one by then. A pool made some
other way, by a C++ extension that calls at::launch, is noticed and left as it is. Under `override` the count is set
at once. An application's call that comes after ours has no effect, and a line says so: it never fails where torch
alone would not have.
"""

from __future__ import annotations

import os
from typing import Any, Callable

from raddle import RLock, errors, log
from raddle.adapters import version_of
from raddle.adapters.metadata import copy_metadata
from raddle.adapters.torch.counts import IN_THE_CODE, Choice, asked_count, native_threads
from raddle.adapters.torch.first_use import FirstUse

_REQUIRED = ("ScriptMethod", "ScriptFunction", "fork")
# From here on a call that comes too late raises.
_RAISES_SINCE = (2, 2)
# What the pool's threads call themselves where c10::setThreadName works, with glibc (ATen/PTThreadPool.h).
_POOL_THREAD = "PTThreadPool"


class InterOp:
    """The count of `choice`, and torch's two functions around it. Raises where torch isn't as expected.

    `fresh`: torch has just been imported, so that nobody can have used it. `changed` is called when `choice` has been
    brought up to date with what the code or torch itself decided.
    """

    def __init__(self, module: Any, choice: Choice, count: int, *, fresh: bool, changed: Callable[..., None]) -> None:
        self.module = module
        self.native = module._C  # noqa: SLF001
        self.choice = choice
        self.count = count
        self.original_set: Callable[..., None] = module.set_num_interop_threads
        self.original_get: Callable[[], int] = module.get_num_interop_threads
        self.raises = version_of(str(module.__version__)) >= _RAISES_SINCE
        self.fresh = fresh
        self.changed = changed
        # Without /proc it can't be known, and nothing is set where it would matter.
        self.threads_before = 0
        try:
            self.threads_before = native_threads()
        except OSError as error:
            errors.let_through(error)
        self.pending = True  # neither we nor the application have set it
        self.ours = False  # torch has our count, so that it would refuse the application's
        self.first_use = FirstUse(module, self.commit)
        self.lock = RLock()

    def forked(self, *, had_threads: bool) -> None:
        """In a child after fork: the lock may be held by a thread that isn't there, and no pool's threads are."""
        self.lock = RLock()
        self.fresh = self.fresh and not had_threads
        self.threads_before = 0

    def replace(self) -> None:
        """Wraps torch's functions, and what must find the count set; sets it now where that can't be wrapped."""
        replace(
            self.module, "set_num_interop_threads", self.original_set, lambda *args, **kwargs: self.set(args, kwargs)
        )
        replace(self.module, "get_num_interop_threads", self.original_get, lambda: self.get())  # noqa: PLW0108  # a method can't be given a name
        wrappable = all(hasattr(self.native, name) for name in _REQUIRED)
        if self.choice.override or not wrappable or not (self.raises or _threads_have_names()):
            self.commit()
            return
        try:
            self.first_use.before_scripts(self.native)
        except Exception as error:
            errors.let_through(error)
            self.commit()

    def commit(self) -> None:
        """Gives torch the planned count, if nobody has given it one."""
        with self.lock:
            if not self.pending:
                return
            try:
                self.pending = False
                if self.raises or not self._may_be_too_late():
                    self.original_set(self.count)
                    self.ours = True
            except Exception as error:
                if not errors.is_ours(error):
                    # A signal handler's, before or after torch took the count.
                    self.ours = self.original_get() == self.count
                    self.pending = not self.ours
                    raise
                # Too late, which is said below.
            if not self.ours:
                self.choice.inter_op = self.original_get()
                self.choice.because["interOp"] = "may have been set before"
                log.complain(f"torch keeps {self.choice.inter_op} inter-op threads: they may have been set before")
                self.changed(is_said=True)
            self.first_use.end()
            self.fresh = False

    def _may_be_too_late(self) -> bool:
        """Whether torch may have a count or a pool by now."""
        if not self.fresh:
            return True
        if native_threads() <= self.threads_before:
            return False
        names = [_name_of(thread) for thread in os.listdir("/proc/self/task")]
        return _POOL_THREAD in names or not _threads_have_names()

    def set(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """The application's call. Raises what torch would raise without us."""
        with self.lock:
            asked = asked_count(args, kwargs)
            if self.ours and asked > 0:
                # Only once: torch itself refuses a second call.
                self.ours = False
                if asked != self.count:
                    why = "the policy overrides it" if self.choice.override else "TorchScript has run before"
                    log.complain(f"torch.set_num_interop_threads({asked}) has no effect: {why}, inter_op={self.count}")
                return
            self.original_set(*args, **kwargs)
            self.pending = False
            self.choice.inter_op = self.original_get()
            self.choice.because["interOp"] = IN_THE_CODE
            self.first_use.end()
            self.changed()

    def get(self) -> int:
        """The count that the pool has or will have."""
        return self.count if self.pending else self.original_get()


def _threads_have_names() -> bool:
    """Whether torch names its threads: it does with glibc."""
    try:
        return bool(os.confstr("CS_GNU_LIBC_VERSION"))
    except (AttributeError, OSError, ValueError) as error:
        errors.let_through(error)
        return False


def _name_of(thread: str) -> str:
    try:
        with open(f"/proc/self/task/{thread}/comm", encoding="utf-8", errors="replace") as file:
            return file.read().strip()
    except OSError as error:
        # It has ended.
        errors.let_through(error)
        return ""


def replace(module: Any, name: str, original: Any, ours: Any) -> None:
    """Puts `ours` in the place of the function, in torch and in torch._C, which it is copied from."""
    copy_metadata(ours, original)
    for holder in (module, module._C):  # noqa: SLF001
        if getattr(holder, name, None) is original:
            setattr(holder, name, ours)

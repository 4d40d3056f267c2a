"""A library whose threads are an argument or a setting, and no variable: where the code gives none, the plan's count.

The adapter of such a library has one `Library`, and says in a few lines where the count goes: into a keyword of a call
(`argument`), or to an object as soon as it is made (`wrap`'s `after`), which what the code sets later replaces. The
library's function is called once in any case: with what the code has passed where the plan's count can't be had.
"""

from __future__ import annotations

import os
import sys
import time
from functools import wraps
from typing import Any, Callable, Optional, Tuple

from raddle import env, errors, libraries, log
from raddle.process import current, machine_counts, resolution
from raddle.report import record

# Facts are read again for a call that comes later than this: an in-place resize changes the quota.
FACTS_AGE_S = 10.0
# Other counts of the code's than these are not kept.
_MAX_NOTED = 16
# What stands for no count of the code's own.
UNSET = (None, 0)

_Call = Tuple[Tuple[Any, ...], "dict[str, Any]"]


class Library:
    """One loaded library and the plan for it.

    `key` is the plan's count, and `mapped` what the name of the library's mapped file begins with, by which the workers
    that have it are known; without it that is `name`'s row of raddle.libraries.
    Until `read` was called nothing is planned.
    """

    def __init__(self, name: str, mapped: Tuple[bytes, ...] = (), key: str = "intra_op") -> None:
        self.name = name
        self.mapped = mapped or libraries.name_starts(name)
        self.key = key
        self.package = ""
        self.plan_text = ""
        self.fields: dict[str, Any] = {}
        self.override = False
        self.facts = current.Facts(None)
        self._resolved: tuple[int, float, Optional[resolution.Effective]] = (0, 0.0, None)
        # What the record says, and the count that a call was given last: each with its process.
        self._noted: tuple[int, list[dict[str, Any]]] = (0, [])
        self._told = (0, 0)

    def read(self, module: Any, plan_text: str) -> None:
        """Takes over the plan for the library of this module. Raises env.PlanError."""
        self.package = module.__name__.partition(".")[0]
        self.plan_text, fields = plan_text, env.decode(plan_text)
        self.override = fields.get("existing_values") == "override"
        # A plan for other families than ONNX Runtime's has no count but OpenMP's.
        self.key = self.key if self.key in fields else "omp"
        self.fields = {**fields, "intra_op": fields[self.key]} if self.key in fields else {}

    def wanted(self) -> Optional[resolution.Effective]:
        """What the plan comes to in this process now, None where it has no count for the library."""
        if not self.fields:
            return None
        pid, at, result = self._resolved
        now = time.monotonic()
        if result is None or pid != os.getpid() or now - at > FACTS_AGE_S:
            self.facts = current.read_facts(self.fields, self.mapped)
            result = resolution.resolve(self.fields, self.facts)
            self._resolved = (os.getpid(), now, result)
        return result

    def argument(self, holder: Any, name: str, *keywords: str) -> None:
        """Has each call of holder.name pass the count as these arguments where the code passes none."""
        result = {keyword: place(getattr(holder, name, None), keyword) for keyword in keywords}
        places = {keyword: at for keyword, at in result.items() if at is not None}

        def given(args: Tuple[Any, ...], kwargs: dict[str, Any], count: int) -> _Call:
            for keyword, at in places.items():
                if at < len(args):
                    args = (*args[:at], self.chosen(args[at], count), *args[at + 1 :])
                else:
                    kwargs = {**kwargs, keyword: self.chosen(kwargs.get(keyword), count)}
            return args, kwargs

        if places:
            self.wrap(holder, name, before=given, notes=True)

    def setter(self, holder: Any, name: str) -> None:
        """Has holder.name, which takes one count, set what that of the code's comes to."""

        def given(args: Tuple[Any, ...], kwargs: dict[str, Any], count: int) -> _Call:
            if kwargs:
                return args, {name: self.chosen(value, count) for name, value in kwargs.items()}
            return (*args[:-1], self.chosen(args[-1], count)), {}

        self.wrap(holder, name, before=given, notes=True)

    def chosen(self, value: Any, count: int) -> Any:
        """What a count in the code comes to, which is noted: the plan's where it is none, or only the machine's."""
        if value in UNSET:
            self.note()
            return count
        wanted = self.wanted()
        is_copied = wanted is not None and machine_counts.is_copied(value, wanted)
        if self.override or is_copied:
            self.note(why=machine_counts.copied(value) if is_copied and not self.override else "")
            return count
        if isinstance(value, int):
            self.note(value)
        return value

    def wrap(
        self,
        holder: Any,
        name: str,
        *,
        before: Optional[Callable[[Tuple[Any, ...], "dict[str, Any]", int], _Call]] = None,
        after: Optional[Callable[[Any, Tuple[Any, ...], "dict[str, Any]", int], object]] = None,
        notes: bool = False,
    ) -> None:
        """Puts a function in the place of holder.name, where there is one, that calls it.

        `before` says what it is called with, and `after` is told what it has returned. Neither is asked where the plan
        has no count, and what they raise leaves the call as the code has made it. `notes`: what it came to is noted by
        them.
        """
        original = None if holder is None else getattr(holder, name, None)
        if original is None or hasattr(original, "raddle_wrapped"):
            return

        @wraps(original)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            ours = self._guarded(notes, before, args, kwargs) or (args, kwargs)
            try:
                result = original(*ours[0], **ours[1])
            except BaseException as error:
                error.__traceback__ = errors.without_frames(error)
                raise
            self._guarded(notes, after, result, args, kwargs)
            return result

        wrapped.raddle_wrapped = True  # type: ignore[attr-defined]
        setattr(holder, name, wrapped)

    def _guarded(self, notes: bool, ours: Optional[Callable[..., Any]], *told: Any) -> Any:
        """What `ours` returns; None where it can't be asked, or has failed."""
        if ours is None:
            return None
        try:
            wanted = self.wanted()
            if wanted is None or wanted.intra_op is None:
                return None
            result = ours(*told, wanted.intra_op)
            if not notes and self._told != (os.getpid(), wanted.intra_op):
                self._told = os.getpid(), wanted.intra_op
                self.note()
        except Exception as error:
            log.failed(f"{self.name} is not configured", error)
            return None
        return result

    def note(self, count: Optional[int] = None, why: str = "", **details: Any) -> None:
        """Keeps what it came to, and says it, where that is new in this process.

        `count` is what the code has made of the plan's, `why` is the reason where it is not the plan's own, and
        `details` are beside it in the record.
        """
        wanted = self.wanted()
        if wanted is None:
            return
        recorded = "omp" if self.key == "omp" else "intraOp"
        above = ""
        why = why or wanted.because.get("intraOp", "")
        if count not in (None, wanted.intra_op):
            why, above = "set in the code", wanted.above(count)
        noted = {recorded: wanted.intra_op if count is None else count, **details}
        if self._noted[0] != os.getpid():
            self._noted = os.getpid(), []
        if noted in self._noted[1] or len(self._noted[1]) >= _MAX_NOTED:
            return
        change = str(noted[recorded]) if self._noted[1] else ""
        self._noted[1].append(noted)
        record.add(
            {
                "runtime": self.name,
                "version": self.version(),
                "pid": os.getpid(),
                "plan": self.plan_text,
                "effective": noted,
                "because": {recorded: why} if why else {},
                "cpus": self.facts.cpus,
                "quotaCPUs": self.facts.quota_cpus,
                "throttled": self.facts.throttled,
                "workersSeen": self.facts.workers_seen,
            }
        )
        line = f"{self.name} {self.version()}".strip() + f": threads={noted[recorded]}"
        line += f" ({why}{above})" if why else ""
        log.announce(self.name, line, first_worker=self.facts.first_worker, change=change)

    def version(self) -> str:
        """The package's, "" where it doesn't say; known only once all of the package was imported."""
        return str(getattr(sys.modules.get(self.package), "__version__", ""))


def place(function: Any, keyword: str) -> Optional[int]:
    """The argument's place among those by position, beyond all where it has none; None where there is no such one."""
    code = getattr(function, "__code__", None)
    if code is None:
        # An extension's function has its arguments in its text.
        return sys.maxsize if keyword in (getattr(function, "__doc__", None) or "") else None
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    if keyword not in names:
        return None
    at: int = names.index(keyword)
    return at if at < code.co_argcount else sys.maxsize

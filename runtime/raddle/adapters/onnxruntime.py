"""ONNX Runtime: every session of the process gets the plan's values, whoever makes it.

`onnxruntime.capi._pybind_state.InferenceSession` is the one constructor that all Python code reaches, and it copies
the SessionOptions it is given. So a subclass in its place sets values on the options, constructs, and takes the
values back. Where that fails the session is constructed as it would have been without Raddle.
"""

from __future__ import annotations

import os
import sys
import threading
import time
import weakref
from typing import Any, Callable, Mapping

from raddle import env, observe, record
from raddle.adapters import live
from raddle.adapters.session_options import AFFINITY_KEY, SPIN_DURATION_SINCE, Choice, Edit, Held

# Facts are read again for a session that comes later than this: an in-place resize changes the quota.
FACTS_AGE_S = 10.0


def prepare(plan_text: str) -> None:
    """Nothing: ONNX Runtime reads no environment variable at import that Raddle sets."""


def effective() -> dict[str, Any]:
    """The version that is loaded; each session's own values are in its record."""
    return {"version": str(getattr(sys.modules.get("onnxruntime"), "__version__", ""))}


def install(module: Any, plan_text: str) -> None:
    """Puts the wrapped constructor into the module (`_pybind_state`), and into the extension it came from.

    A plan that can't be read, or a module that isn't as expected, is left alone with one line on stderr.
    """
    try:
        fields = env.decode(plan_text)
    except env.PlanError as error:
        record.announce("onnxruntime", f"onnxruntime is left alone: {error}")
        return
    try:
        _Runtime(module, without_own_counts(fields, os.environ), plan_text).replace()
    except Exception as error:
        record.complain(f"onnxruntime is left alone: {error!r}")


def without_own_counts(fields: Mapping[str, Any], environ: Mapping[str, str]) -> Mapping[str, Any]:
    """The plan's fields without the counts that the environment sets otherwise, unless the policy overrides.

    What Raddle itself puts into the environment equals the plan; anything else came by a way that the webhook can't see
    (envFrom, an entrypoint's export), and ONNX Runtime from 1.29 on reads it by itself.
    """
    if fields.get("existing") == "override":
        return fields
    kept = dict(fields)
    for name, key in ((env.ORT_INTRA, "intra"), (env.ORT_INTER, "inter")):
        value = environ.get(name, "")
        if value.isascii() and value.isdigit() and 0 < int(value[:9]) != kept.get(key):
            kept.pop(key, None)
    return kept


def version_of(text: str) -> tuple[int, ...]:
    """(1, 31) of "1.31.1" or "1.31.0.dev20260901"; () where there is no such start."""
    parts = text.split(".")[:2]
    return tuple(int(part) for part in parts) if all(part.isdigit() for part in parts) else ()


class _Runtime:
    """One loaded onnxruntime and the plan for it."""

    def __init__(self, module: Any, fields: Mapping[str, Any], plan_text: str) -> None:
        self.module = module
        self.fields = fields
        self.plan_text = plan_text
        self.original = module.InferenceSession
        self.default_options = module.get_default_session_options
        self.version = str(getattr(sys.modules.get("onnxruntime"), "__version__", ""))
        self.has_spin_duration = version_of(self.version) >= SPIN_DURATION_SINCE
        # ORT returns a copy each time. One shared object would be nobody's to add affinity to.
        self.fresh_defaults = self.default_options() is not self.default_options()
        self.reset()

    def reset(self) -> None:
        """Forgets what belongs to the process: at start, and in a child after fork."""
        self.lock = threading.Lock()
        self.fresh = threading.local()
        self.held: dict[int, Held] = {}
        self.facts: live.Facts | None = None
        self.facts_at = 0.0
        # Living sessions that have worker threads, and those whose workers have a core each.
        self.pools: weakref.WeakSet[Any] = weakref.WeakSet()
        self.pinned: weakref.WeakSet[Any] = weakref.WeakSet()

    def replace(self) -> None:
        wrapped = _session_class(self)
        extension: Any = sys.modules.get("onnxruntime.capi.onnxruntime_pybind11_state")
        for module in (self.module, extension):
            if getattr(module, "InferenceSession", None) is self.original:
                module.InferenceSession = wrapped
                module.get_default_session_options = self.get_default_session_options
        os.register_at_fork(after_in_child=self.after_fork)

    def after_fork(self) -> None:
        try:
            dead = len(self.pools)
            self.reset()
            if dead:
                record.complain(
                    f"process {os.getpid()} was forked after {dead} onnxruntime session(s) had been created; "
                    "their threads do not exist in it: create sessions after the fork"
                )
        except Exception:
            pass

    def get_default_session_options(self) -> Any:
        """Stands in for ORT's own and remembers the object: whoever asked is the only one who has it."""
        options = self.default_options()
        self.fresh.ref = weakref.ref(options)
        return options

    def is_fresh(self, options: Any) -> bool:
        ref = getattr(self.fresh, "ref", None)
        return self.fresh_defaults and ref is not None and ref() is options

    def hold(self, options: Any) -> Held:
        key = id(options)
        with self.lock:
            held = self.held.get(key)
            if held is None or held.ref() is not options:
                held = self.held[key] = Held(weakref.ref(options, lambda _: self.held.pop(key, None)))
            return held

    def current_facts(self) -> live.Facts:
        now = time.monotonic()
        if self.facts is None or now - self.facts_at > FACTS_AGE_S:
            self.facts = live.read_facts()
            self.facts_at = now
        else:
            self.facts.cpus = live.read_cpus()
        return self.facts

    def construct(self, session: Any, init: Callable[..., None], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Constructs the session with the plan's values, or as it would have been where that isn't possible."""
        creation = observe.begin(self.fields)
        held = self._held_of(args)
        if held is None:
            init(session, *args, **kwargs)
            return
        # The lock is the options object's own: two threads that share it must not see each other's edits.
        with held.lock:
            edit, choice = self._prepared(args[0], held)
            failure = _try(edit, session, init, args, kwargs)
            if failure is not None and edit.entry(AFFINITY_KEY):
                edit, choice = self._prepared(args[0], held, ask_affinity=True)
                failure = _try(edit, session, init, args, kwargs)
            if failure is not None:
                edit.restore_entries()
                # Affinity can't be removed, but it is only ever added to an object that can be replaced.
                again = (self.default_options(), *args[1:]) if self.is_fresh(args[0]) else args
                init(session, *again, **kwargs)
                record.complain(f"onnxruntime session is created without the plan's values: {failure}")
                return
        if choice is not None:
            self._created(session, choice, creation, args[1] if len(args) > 1 else None)

    def _held_of(self, args: tuple[Any, ...]) -> Held | None:
        try:
            return self.hold(args[0]) if args and isinstance(args[0], self.module.SessionOptions) else None
        except Exception as error:
            record.complain(f"onnxruntime session is left alone: {error!r}")
            return None

    def _prepared(self, options: Any, held: Held, *, ask_affinity: bool = False) -> tuple[Edit, Choice | None]:
        """The edit, applied, and the choice that it carries out; an empty edit and None where choosing failed."""
        edit = Edit(options, held, untouched=self.is_fresh(options))
        try:
            facts = self.current_facts()
            choice = Choice(
                edit,
                self.fields,
                live.resolve(self.fields, facts),
                self.module,
                has_spin_duration=self.has_spin_duration,
                core_taken=len(self.pinned) > 0,
                ask_affinity=ask_affinity,
            )
            choice.make(facts.cpus)
            edit.apply()
        except Exception as error:
            record.complain(f"onnxruntime session is left alone: {error!r}")
            edit.restore()
            return Edit(options, held), None
        return edit, choice

    def _created(self, session: Any, choice: Choice, creation: observe.Creation, model: Any) -> None:
        """Keeps what the construction came to; `initialized` completes it."""
        try:
            facts = self.current_facts()
            values = choice.values
            session.raddle = creation.created(
                runtime="onnxruntime",
                version=self.version,
                plan=self.plan_text,
                effective=values,
                because=choice.because,
                facts=facts,
                model=model,
            )
            if values.get("intra") != 1:
                self.pools.add(session)
            if values.get("affinity") == "core":
                self.pinned.add(session)
            if facts.first_worker:
                record.announce("onnxruntime", choice.line(self.version))
        except Exception as error:
            record.complain(f"onnxruntime session is not recorded: {error!r}")

    @staticmethod
    def initialized(session: Any) -> None:
        """Completes the record once the model is loaded."""
        try:
            made = session.__dict__.get("raddle")
            if made:
                inputs = [(one.name, one.type, one.shape) for one in getattr(session, "inputs_meta", ())]
                observe.initialized(made, session.get_providers(), inputs)
        except Exception as error:
            record.complain(f"onnxruntime session's record is incomplete: {error!r}")


def _try(
    edit: Edit, session: Any, init: Callable[..., None], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Exception | None:
    """None when the session was constructed, the failure where our changes may be to blame. Raises any other."""
    try:
        init(session, *args, **kwargs)
    except Exception as error:
        if not edit.attributes and not edit.entries:
            raise
        return error
    finally:
        edit.restore()
    return None


def _session_class(runtime: _Runtime) -> Any:
    original: Any = runtime.original

    class InferenceSession(original):  # type: ignore[misc]
        __doc__ = original.__doc__

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            runtime.construct(self, original.__init__, args, kwargs)

        def initialize_session(self, *args: Any, **kwargs: Any) -> Any:
            result = original.initialize_session(self, *args, **kwargs)
            runtime.initialized(self)
            return result

    if runtime.fields.get("observe") == "runs":
        for name in ("run", "run_with_iobinding", "run_with_ort_values"):
            if hasattr(original, name):
                setattr(InferenceSession, name, observe.timed(getattr(original, name)))
    InferenceSession.__module__ = original.__module__
    InferenceSession.__qualname__ = original.__qualname__
    return InferenceSession

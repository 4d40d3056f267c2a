"""One loaded ONNX Runtime: how its sessions are made, and what those of the process have in common.

For each session values are set on the options, the native constructor is called, and the values are taken back. Where
that fails the session is constructed as it would have been without Raddle.
"""

from __future__ import annotations

import os
import sys
import threading
import time
import weakref
from typing import Any, Callable

from raddle import observe, record
from raddle.adapters import live
from raddle.adapters.ort_choice import AFFINITY_KEY, IN_THE_CODE, Choice
from raddle.adapters.ort_class import wrapped
from raddle.adapters.ort_given import Given
from raddle.adapters.session_options import Edit, Held

# Facts are read again for a session that comes later than this: an in-place resize changes the quota.
FACTS_AGE_S = 10.0


class Runtime:
    """One loaded onnxruntime and the plan for it."""

    def __init__(self, given: Given, plan_text: str, version: str) -> None:
        self.module = module = given.module
        self.fields = fields = given.fields
        self.plan_text = plan_text
        self.original = module.InferenceSession
        self.default_options = module.get_default_session_options
        self.version = version
        self.given = given
        self.providers: Any = None
        if any("." in key and not key.startswith("session.") for key in fields):
            from raddle.adapters.ort_providers import Providers, planned_options  # noqa: PLC0415

            self.providers = Providers(planned_options(fields), override=not given.respect)
        if fields.get("global") or fields.get("shared_arena") or hasattr(module, "set_global_thread_pool_sizes"):
            from raddle.adapters.ort_sharing import Sharing  # noqa: PLC0415

            resolve = lambda: self.wanted(self.current_facts())  # noqa: E731
            self.given.sharing = Sharing(module, resolve, override=not self.given.respect)
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
        self.resolved: tuple[Any, live.Effective | None] = (None, None)
        self.announced = False
        # Living sessions that have worker threads, and those whose workers have a core each.
        self.pools: weakref.WeakSet[Any] = weakref.WeakSet()
        self.pinned: weakref.WeakSet[Any] = weakref.WeakSet()

    def replace(self) -> None:
        """Puts the wrapped class, and what goes with it, into the runtime's modules."""
        session_class = wrapped(self)
        extension: Any = sys.modules.get("onnxruntime.capi.onnxruntime_pybind11_state")
        for module in (self.module, extension):
            if getattr(module, "InferenceSession", None) is self.original:
                module.InferenceSession = session_class
                module.get_default_session_options = self.get_default_session_options
        if self.providers is not None:
            self.providers.await_sessions()
        if self.given.sharing is not None:
            self.given.sharing.replace((self.module, extension, sys.modules.get("onnxruntime")))
        os.register_at_fork(after_in_child=self.after_fork)

    def after_fork(self) -> None:
        """To be called in a child after fork: says what has no threads there."""
        try:
            dead = len(self.pools)
            self.reset()
            if self.given.sharing is not None and self.given.sharing.forked():
                record.complain(
                    f"process {os.getpid()} was forked after onnxruntime's global thread pool had been created; its "
                    "threads do not exist in it, and every run has one thread: create sessions after the fork"
                )
            elif dead:
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
        """Whether the object is the one that this thread was given last, for a session with default options."""
        ref = getattr(self.fresh, "ref", None)
        return self.fresh_defaults and ref is not None and ref() is options

    def hold(self, options: Any) -> Held:
        """What is remembered of the object, for as long as it lives."""
        key = id(options)
        with self.lock:
            held = self.held.get(key)
            if held is None or held.ref() is not options:
                held = self.held[key] = Held(weakref.ref(options, lambda _: self.held.pop(key, None)))
            return held

    def current_facts(self) -> live.Facts:
        """The facts of the process: its CPUs and its quota now, the workers beside it at most FACTS_AGE_S ago."""
        now, known = time.monotonic(), self.facts
        if known is None or now - self.facts_at > FACTS_AGE_S:
            facts = live.read_facts(self.fields, live.ONNXRUNTIME)
            self.facts_at = now
        else:
            # Another thread may have CPUs of its own, and makes a session at the same time.
            facts = known.copy()
            live.refresh(facts)
            facts.placed = live.place(self.fields, facts.cpus)
        self.facts = facts
        return facts

    def wanted(self, facts: live.Facts) -> live.Effective:
        """What the plan comes to; worked out again when the facts have changed."""
        key = (self.facts_at, facts.cpus, facts.quota_cpus)
        known, effective = self.resolved
        if effective is None or known != key:
            effective = live.resolve(self.fields, facts)
            self.resolved = (key, effective)
        return effective

    def construct(
        self, session: Any, init: Callable[..., None], args: tuple[Any, ...], kwargs: dict[str, Any], caller: Any
    ) -> None:
        """Constructs the session with the plan's values, or as it would have been where that isn't possible."""
        creation = observe.begin(self.fields)
        held = self._held_of(args)
        if held is None:
            init(session, *args, **kwargs)
            return
        # The lock is the options object's own: two threads that share it must not see each other's edits.
        with held.lock:
            edit, choice = self._prepared(args[0], held, caller)
            failure = self._try(edit, choice, session, init, args, kwargs)
            if failure is not None and edit.entry(AFFINITY_KEY):
                edit, choice = self._prepared(args[0], held, caller, ask_affinity=True)
                failure = self._try(edit, choice, session, init, args, kwargs)
            if failure is not None:
                edit.restore_entries()
                # Affinity can't be removed, but it is only ever added to an object that can be replaced.
                again = (self.default_options(), *args[1:]) if self.is_fresh(args[0]) else args
                self._native(session, init, again, kwargs)
                record.complain(f"onnxruntime session is created without the plan's values: {failure}")
                return
        if choice is not None:
            self._created(session, choice, creation, args[1] if len(args) > 1 else None)

    def _native(self, session: Any, init: Callable[..., None], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """The native constructor. Once there are global pools it takes no options that ask for pools of their own."""
        options, sharing = args[0], self.given.sharing
        if sharing is None or sharing.sizes is None or not options.use_per_session_threads:
            init(session, *args, **kwargs)
            return
        options.use_per_session_threads = False
        try:
            init(session, *args, **kwargs)
        finally:
            options.use_per_session_threads = True

    def _try(
        self,
        edit: Edit,
        choice: Choice | None,
        session: Any,
        init: Callable[..., None],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Exception | None:
        """None when the session was constructed, the failure where our changes may be to blame. Raises any other."""
        # Workers between operators are tied to nothing, and would keep the CPUs of the thread that starts them.
        cpus = choice.pool_cpus if choice is not None and "inter" not in choice.pools else 0
        try:
            _near(cpus, self._native)(session, init, args, kwargs)
        except Exception as error:
            if not edit.attributes and not edit.entries:
                raise
            return error
        finally:
            edit.restore()
        return None

    def _held_of(self, args: tuple[Any, ...]) -> Held | None:
        try:
            return self.hold(args[0]) if args and isinstance(args[0], self.module.SessionOptions) else None
        except Exception as error:
            record.complain(f"onnxruntime session is left alone: {error!r}")
            return None

    def _prepared(
        self, options: Any, held: Held, caller: Any, *, ask_affinity: bool = False
    ) -> tuple[Edit, Choice | None]:
        """The edit, applied, and the choice that it carries out; an empty edit and None where choosing failed."""
        edit = Edit(options, held, untouched=self.is_fresh(options))
        try:
            facts = self.current_facts()
            wanted = self.wanted(facts)
            gpu = ""
            if wanted.spin == "bounded":
                from raddle.adapters.ort_providers import gpu_asked  # noqa: PLC0415

                gpu = gpu_asked(caller)
            choice = Choice(
                edit, self.given, wanted, core_taken=len(self.pinned) > 0, ask_affinity=ask_affinity, gpu=gpu
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
            facts = self.facts or self.current_facts()
            values = choice.values
            if self.fields.get("shrink"):
                self._shrinks(session, choice)
            session.raddle_cpus = choice.pool_cpus
            session.raddle_alone = values.get("intra") == 1 and choice.because.get("intra") != IN_THE_CODE
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
            if facts.first_worker and not self.announced:
                self.announced = True
                record.announce("onnxruntime", choice.line(self.version))
        except Exception as error:
            record.complain(f"onnxruntime session is not recorded: {error!r}")

    def _shrinks(self, session: Any, choice: Choice) -> None:
        """Lets each run of the session give its arena's unused memory back, where the session has an arena."""
        values, can = choice.values, hasattr(self.module.RunOptions, "add_run_config_entry")
        arena = values.get("arena", choice.edit.options.enable_cpu_mem_arena) or values.get("sharedArena", False)
        values["shrink"] = session.raddle_shrinks = can and arena
        if not values["shrink"]:
            choice.because["shrink"] = "the session has no arena" if can else "onnxruntime can since 1.8"

    def initialize(self, session: Any, native: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        """Loads the model with the plan's provider options, and completes the record."""
        used: dict[str, Any] = {}
        why = ""
        native = _near(session.__dict__.get("raddle_cpus", 0), native)
        try:
            if self.providers is None:
                result = native(session, *args)
            else:
                result, used, why = self.providers.initialize(native, session, args)
        except Exception:
            self._forget(session)
            raise
        try:
            made = session.__dict__.get("raddle")
            if made:
                self._complete(session, made, list(args[0]) if args else [], used, why)
        except Exception as error:
            record.complain(f"onnxruntime session's record is incomplete: {error!r}")
        return result

    def _forget(self, session: Any) -> None:
        """Takes back what is kept of a session whose model could not be loaded: none was created."""
        self.pools.discard(session)
        self.pinned.discard(session)
        made = session.__dict__.get("raddle") or {}
        if record.UNFINISHED in made:
            record.sessions[:] = [kept for kept in record.sessions if kept is not made]

    @staticmethod
    def _complete(session: Any, made: dict[str, Any], asked: list[str], used: dict[str, Any], why: str) -> None:
        present = session.get_providers()
        if used:
            made["effective"]["providerOptions"] = used
        if why:
            made["because"]["providerOptions"] = why
        missing = [name for name in asked if name not in present]
        if missing:
            made["because"]["providers"] = "asked for, and not in use: " + ", ".join(missing)
        inputs = [(one.name, one.type, one.shape) for one in getattr(session, "inputs_meta", ())]
        observe.initialized(made, present, inputs)


def _near(cpus: int, call: Callable[..., Any]) -> Callable[..., Any]:
    """`call`, made on the CPUs of the pool where it has some."""
    if not cpus:
        return call
    from raddle.adapters.ort_affinity import near  # noqa: PLC0415

    return near(cpus, call)

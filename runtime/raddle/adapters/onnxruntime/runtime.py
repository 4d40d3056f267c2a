"""One loaded ONNX Runtime: how its sessions are made, and what those of the process have in common.

For each session values are set on the options, the native constructor is called, and the values are taken back. Where
the constructor refuses them the session is constructed as it would have been without Raddle.

A signal handler of the application's may run between any two steps here: it may raise, and it may make a session.
"""

from __future__ import annotations

import threading
import time
import weakref
from typing import Any, Callable

from raddle import RLock, errors, libraries, log
from raddle.adapters.onnxruntime.capabilities import RuntimeCapabilities
from raddle.adapters.onnxruntime.choice import IN_THE_CODE, Choice
from raddle.adapters.onnxruntime.session_options import Edit, OptionsState, living
from raddle.process import current, resolution
from raddle.report import observe, record

# Facts are read again for a session that comes later than this: an in-place resize changes the quota.
FACTS_AGE_S = 10.0


class Runtime:
    """One loaded onnxruntime and the plan for it."""

    def __init__(self, capabilities: RuntimeCapabilities, plan_text: str, version: str) -> None:
        self.module = module = capabilities.module
        self.fields = fields = capabilities.fields
        self.plan_text = plan_text
        self.original = module.InferenceSession
        self.default_options = module.get_default_session_options
        self.version = version
        self.capabilities = capabilities
        self.providers: Any = None
        # Says what this process has lost by a fork, until it has said it.
        self.lost: Callable[[], None] | None = None
        has_openvino = "OpenVINOExecutionProvider" in getattr(module, "get_available_providers", tuple)()
        if has_openvino or any("." in key and not key.startswith("session.") for key in fields):
            from raddle.adapters.onnxruntime.providers import Providers, planned_options  # noqa: PLC0415

            count = (lambda: self.wanted(self.current_facts()).intra_op) if has_openvino else lambda: None
            self.providers = Providers(planned_options(fields), override=not capabilities.respect, count=count)
        self.gpu_asked: Callable[[Any], str] | None = None
        # What sessions need is imported here: a signal handler's session can't use what is half imported.
        if fields.get("spinning") == "bounded":
            from raddle.adapters.onnxruntime.providers import gpu_asked  # noqa: PLC0415

            self.gpu_asked = gpu_asked
        if fields.get("affinity", "none") != "none":
            from raddle.cpus import places  # noqa: F401, PLC0415
        if (
            fields.get("global_thread_pool")
            or fields.get("shared_allocator")
            or hasattr(module, "set_global_thread_pool_sizes")
        ):
            from raddle.adapters.onnxruntime.sharing import Sharing  # noqa: PLC0415

            resolve = lambda: self.wanted(self.current_facts())  # noqa: E731
            self.capabilities.sharing = Sharing(module, resolve, override=not self.capabilities.respect)
        # ORT returns a copy each time. One shared object would be nobody's to add affinity to.
        self.fresh_defaults = self.default_options() is not self.default_options()
        # By references without a callback, here and below: what a signal handler raises in one of those is lost.
        self.states: dict[weakref.ref[Any], OptionsState] = {}
        self.reset()

    def reset(self) -> None:
        """Forgets what belongs to the process: at start, and in a child after fork."""
        self.fresh = threading.local()
        for state in self.states.values():
            # Another thread may have had it; which entries are ours remains.
            state.lock = RLock()
        self.facts: current.Facts | None = None
        self.facts_at = 0.0
        self.resolved: tuple[Any, resolution.Effective | None] = (None, None)
        # Living sessions that have worker threads, and those whose workers have a core each.
        self.pools: dict[weakref.ref[Any], None] = {}
        self.pinned: dict[weakref.ref[Any], None] = {}

    def get_default_session_options(self) -> Any:
        """Stands in for ORT's own and remembers the object: the caller is the only one that has it."""
        options = self.default_options()
        self.fresh.ref = weakref.ref(options)
        return options

    def is_fresh(self, options: Any) -> bool:
        """Whether the object is the one that this thread was given last, for a session with default options."""
        ref = getattr(self.fresh, "ref", None)
        return self.fresh_defaults and ref is not None and ref() is options

    def state_of(self, options: Any) -> OptionsState:
        """What is remembered of the object, for as long as it lives."""
        living(self.states)
        return self.states.setdefault(weakref.ref(options), OptionsState())

    def current_facts(self) -> current.Facts:
        """The facts of the process: its CPUs and its quota now, the workers beside it at most FACTS_AGE_S ago."""
        now, known = time.monotonic(), self.facts
        if known is None or now - self.facts_at > FACTS_AGE_S:
            facts = current.read_facts(self.fields, libraries.name_starts("onnxruntime"))
            self.facts_at = now
        else:
            # Another thread may have CPUs of its own, and makes a session at the same time.
            facts = known.copy()
            current.refresh(facts)
            facts.placed = current.place(self.fields, facts.cpus, facts.owner)
        self.facts = facts
        return facts

    def wanted(self, facts: current.Facts) -> resolution.Effective:
        """What the plan comes to; worked out again when the facts have changed."""
        key = (self.facts_at, facts.cpus, facts.owner, facts.quota_cpus)
        known, effective = self.resolved
        if effective is None or known != key:
            effective = resolution.resolve(self.fields, facts)
            self.resolved = (key, effective)
        return effective

    def construct(
        self, session: Any, init: Callable[..., None], args: tuple[Any, ...], kwargs: dict[str, Any], caller: Any
    ) -> None:
        """Constructs the session with the plan's values, or as it would have been where that isn't possible."""
        if self.lost is not None:
            self.lost()
        state = self._state_for(args)
        if state is None:
            init(session, *args, **kwargs)
            return
        # The lock is the options object's own: two threads that share it must not see each other's edits.
        with state.lock:
            # That of a session which this very thread was creating when a signal came.
            outer = state.edit
            edited = outer.suspend() if outer is not None else []
            try:
                try:
                    choice = self._constructed(session, init, args, kwargs, state, caller)
                finally:
                    _take_back(state, outer, edited)
            finally:
                # Again, where a signal handler has raised meanwhile.
                _take_back(state, outer, edited)
        if choice is not None:
            self._created(session, choice)

    def _constructed(
        self,
        session: Any,
        init: Callable[..., None],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        state: OptionsState,
        caller: Any,
    ) -> Choice | None:
        """The choice that the session was constructed with, None where it was constructed without the plan."""
        edit, choice = self._prepared(args[0], state, caller)
        try:
            self._with_plan(choice, session, init, args, kwargs)
        except (RuntimeError, ValueError) as error:
            if not _is_refusal(edit, choice, error):
                raise
            failure = str(error)
        else:
            return choice
        edit.restore()
        edit.restore_entries()
        # Affinity can't be removed, but it is only ever added to an object that can be replaced.
        again = (self.default_options(), *args[1:]) if self.is_fresh(args[0]) else args
        self._native(session, init, again, kwargs)
        log.complain(f"onnxruntime session is created without the plan's values: {failure}")
        return None

    def _native(self, session: Any, init: Callable[..., None], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """The native constructor. Once there are global pools it takes no options that ask for pools of their own."""
        options, sharing = args[0], self.capabilities.sharing
        if sharing is None or sharing.sizes is None or not options.use_per_session_threads:
            init(session, *args, **kwargs)
            return
        options.use_per_session_threads = False
        try:
            init(session, *args, **kwargs)
        finally:
            options.use_per_session_threads = True

    def _with_plan(
        self,
        choice: Choice | None,
        session: Any,
        init: Callable[..., None],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> None:
        # Workers between operators are pinned to nothing, and would keep the CPUs of the thread that starts them.
        cpus = 0
        if choice is not None:
            cpus = (choice.pool_cpus if "inter_op" not in choice.pools else 0) or choice.workers_cpus
        _with_affinity(cpus, self._native)(session, init, args, kwargs)

    def _state_for(self, args: tuple[Any, ...]) -> OptionsState | None:
        try:
            return self.state_of(args[0]) if args and isinstance(args[0], self.module.SessionOptions) else None
        except Exception as error:
            log.failed("onnxruntime session is not configured", error)
            return None

    def _prepared(self, options: Any, state: OptionsState, caller: Any) -> tuple[Edit, Choice | None]:
        """The edit, applied, and the choice that it carries out; an empty edit and None where choosing failed."""
        edit = state.edit = Edit(options, state, untouched=self.is_fresh(options))
        try:
            facts = self.current_facts()
            wanted = self.wanted(facts)
            gpu = self.gpu_asked(caller) if self.gpu_asked is not None else ""
            choice = Choice(edit, self.capabilities, wanted, core_taken=living(self.pinned) > 0, gpu=gpu)
            choice.make(facts.cpus, bound=facts.bound)
            edit.apply()
        except Exception as error:
            edit.restore()
            log.failed("onnxruntime session is not configured", error)
            return Edit(options, state), None
        return edit, choice

    def _created(self, session: Any, choice: Choice) -> None:
        """Keeps what the construction came to; `initialized` completes it."""
        try:
            facts = self.facts or self.current_facts()
            values = choice.values
            if self.fields.get("arena_shrinkage"):
                self._shrinks(session, choice)
            session.raddle_cpus = choice.pool_cpus
            session.raddle_single_thread = values.get("intraOp") == 1 and choice.because.get("intraOp") != IN_THE_CODE
            session.raddle = observe.created(
                self.fields,
                runtime="onnxruntime",
                version=self.version,
                plan=self.plan_text,
                effective=values,
                because=choice.because,
                facts=facts,
            )
            if values.get("intraOp") != 1:
                living(self.pools)
                self.pools[weakref.ref(session)] = None
            if values.get("affinity") == "core":
                self.pinned[weakref.ref(session)] = None
            # One that has more threads than it may use has a line of its own.
            change = str(values["intraOp"]) if choice.above("intraOp") and log.has_announced("onnxruntime") else ""
            log.announce("onnxruntime", choice.line(self.version), first_worker=facts.first_worker, change=change)
        except Exception as error:
            log.failed("onnxruntime session is not recorded", error)

    def _shrinks(self, session: Any, choice: Choice) -> None:
        """Lets each run of the session give its arena's unused memory back, where the session has an arena."""
        values, can = choice.values, hasattr(self.module.RunOptions, "add_run_config_entry")
        own_arena = values.get("cpuMemArena", choice.edit.options.enable_cpu_mem_arena)
        arena = own_arena or values.get("sharedAllocator", False)
        values["arenaShrinkage"] = session.raddle_shrinks = can and arena
        if not values["arenaShrinkage"]:
            why = "the session has no arena" if can else "onnxruntime supports it since 1.8"
            choice.because["arenaShrinkage"] = why

    def initialize(self, session: Any, native: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        """Loads the model with the plan's provider options, and completes the record."""
        used: dict[str, Any] = {}
        why = ""
        native = _with_affinity(session.__dict__.get("raddle_cpus", 0), native)
        try:
            if self.providers is None:
                result = native(session, *args)
            else:
                result, used, why = self.providers.initialize(native, session, args)
        except BaseException:
            self._forget(session)
            raise
        try:
            made = session.__dict__.get("raddle")
            if made:
                self._complete(session, made, list(args[0]) if args else [], used, why)
        except Exception as error:
            log.failed("onnxruntime session's record is incomplete", error)
        return result

    def _forget(self, session: Any) -> None:
        """Takes back what is kept of a session whose model could not be loaded: none was created."""
        self.pools.pop(weakref.ref(session), None)
        self.pinned.pop(weakref.ref(session), None)
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
            made["because"]["providers"] = "requested, but not in use: " + ", ".join(missing)
        observe.initialized(made, present)


def _take_back(state: OptionsState, outer: Edit | None, edited: list[tuple[str, Any]]) -> None:
    """Ends the present edit, and goes on with the outer one."""
    if state.edit is not None and state.edit is not outer:
        state.edit.restore()
    state.edit = outer
    if outer is not None:
        outer.resume(edited)


def _is_refusal(edit: Edit, choice: Choice | None, error: Exception) -> bool:
    """Whether the native constructor has refused what Raddle has set.

    Options that it can't use are one of Python's own exceptions, raised before it looks at the model; a model that it
    can't load is one of ONNX Runtime's. Where the code's own affinity is kept, so is the count that it has to fit.
    """
    return (
        bool(edit.attributes or edit.entries)
        and type(error) in (RuntimeError, ValueError)
        and not (choice is not None and choice.values.get("affinity") == "code")
        and errors.is_ours(error)
    )


def _with_affinity(cpus: int, call: Callable[..., Any]) -> Callable[..., Any]:
    """`call`, made on the CPUs of the pool where it has some."""
    if not cpus:
        return call
    from raddle.adapters.onnxruntime.affinity import with_affinity  # noqa: PLC0415

    return with_affinity(cpus, call)

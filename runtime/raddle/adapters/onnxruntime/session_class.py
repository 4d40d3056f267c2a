"""The class in the place of `onnxruntime.capi._pybind_state.InferenceSession`: it only passes on to its Runtime."""

from __future__ import annotations

import os
import sys
from typing import Any, Callable

from raddle import errors, log
from raddle.adapters import frame
from raddle.adapters.metadata import stand_in
from raddle.adapters.onnxruntime.runtime import Runtime
from raddle.adapters.onnxruntime.session_options import living
from raddle.report import observe

_RUNS = ("run", "run_with_iobinding", "run_with_ort_values", "run_with_ortvaluevector", "run_async")


def replace(runtime: Runtime) -> None:
    """Puts the wrapped class, and what goes with it, into the runtime's modules."""
    session_class = wrapped(runtime)
    # A method can't be given a name.
    default_options = stand_in(lambda: runtime.get_default_session_options(), runtime.default_options)  # noqa: PLW0108
    extension: Any = sys.modules.get("onnxruntime.capi.onnxruntime_pybind11_state")
    for module in (runtime.module, extension):
        if getattr(module, "InferenceSession", None) is runtime.original:
            module.InferenceSession = session_class
            module.get_default_session_options = default_options
    if runtime.providers is not None:
        runtime.providers.await_sessions()
    if runtime.capabilities.sharing is not None:
        runtime.capabilities.sharing.replace((runtime.module, extension, sys.modules.get("onnxruntime")))
    os.register_at_fork(after_in_child=lambda: _after_fork(runtime, session_class))


def wrapped(runtime: Runtime) -> Any:
    """The subclass of `runtime.original` that has its sessions constructed and initialized by the runtime."""
    original: Any = runtime.original

    class InferenceSession(original):  # type: ignore[misc]
        __doc__ = original.__doc__
        raddle_wrapped = True

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            try:
                runtime.construct(self, original.__init__, args, kwargs, frame(2))
            except BaseException as error:
                error.__traceback__ = errors.without_frames(error)
                raise

        def initialize_session(self, *args: Any, **kwargs: Any) -> Any:
            try:
                if kwargs:
                    return original.initialize_session(self, *args, **kwargs)
                return runtime.initialize(self, original.initialize_session, args)
            except BaseException as error:
                error.__traceback__ = errors.without_frames(error)
                raise

    InferenceSession.__module__ = original.__module__
    InferenceSession.__qualname__ = original.__qualname__
    _wrap_runs(runtime, original, InferenceSession)
    return InferenceSession


def _wrap_runs(runtime: Runtime, original: Any, session_class: Any) -> None:
    """Gives the class its own run methods: run_async, and others only where the plan asks for something at each run."""
    methods: dict[str, Callable[..., Any]] = {}
    if runtime.fields.get("arena_shrinkage"):
        from raddle.adapters.onnxruntime.shrink import wrappers  # noqa: PLC0415

        methods = wrappers(runtime.module, original)
    if hasattr(original, "run_async"):
        native_async = methods.get("run_async", original.run_async)

        def run_async(self: Any, *args: Any, **kwargs: Any) -> Any:
            try:
                # Compiled only where it is used: few applications do.
                from raddle.adapters.onnxruntime import run_async as ort_async  # noqa: PLC0415
            except Exception as error:
                errors.let_through(error)
                return native_async(self, *args, **kwargs)
            return ort_async.run(native_async, self, args, kwargs)

        run_async.__doc__ = original.run_async.__doc__
        methods["run_async"] = run_async
    if runtime.fields.get("observe") == "runs":
        for name in ("run", "run_with_iobinding", "run_with_ort_values"):
            if hasattr(original, name):
                methods[name] = observe.timed(methods.get(name, getattr(original, name)))
    for name, method in methods.items():
        setattr(session_class, name, method)


def _after_fork(runtime: Runtime, session_class: Any) -> None:
    """To be called in a child after fork: what has no threads there is said at its first run or session.

    Most children start another program.
    """
    try:
        dead = living(runtime.pools)
        runtime.reset()
        if runtime.lost is not None:
            return
        if runtime.capabilities.sharing is not None and runtime.capabilities.sharing.forked():
            line = (
                "this process was forked after onnxruntime's global thread pool had been created; its threads do "
                "not exist in it, and every run has one thread: create sessions after the fork"
            )
        elif dead:
            line = (
                f"this process was forked after {dead} onnxruntime session(s) had been created; their threads do "
                "not exist in it: create sessions after the fork"
            )
        else:
            return
        _say_at_runs(runtime, session_class, line)
    except Exception as error:
        errors.let_through(error)


def _say_at_runs(runtime: Runtime, session_class: Any, line: str) -> None:
    """Has the line said at the next run of any session of the class, or by `runtime.lost` before that."""
    methods = {name: getattr(session_class, name) for name in _RUNS if hasattr(session_class, name)}

    def say() -> None:
        runtime.lost = None
        for name, method in methods.items():
            setattr(session_class, name, method)
        log.complain(line)

    def telling(method: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any, **kwargs: Any) -> Any:
            say()
            return method(*args, **kwargs)

        return run

    runtime.lost = say
    for name, method in methods.items():
        setattr(session_class, name, telling(method))

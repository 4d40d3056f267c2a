"""The class in the place of `onnxruntime.capi._pybind_state.InferenceSession`: it only passes on to its Runtime."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Callable

from raddle import errors, log
from raddle.report import observe

if TYPE_CHECKING:
    from raddle.adapters.onnxruntime.runtime import Runtime

_RUNS = ("run", "run_with_iobinding", "run_with_ort_values", "run_with_ortvaluevector", "run_async")


def _caller() -> Any:
    """The frame that calls the caller of this function; None where no Python code does, as in a bare thread."""
    try:
        return sys._getframe(2)  # noqa: SLF001
    except ValueError as error:
        errors.let_through(error)
        return None


def wrapped(runtime: Runtime) -> Any:
    """The subclass of `runtime.original` that has its sessions constructed and initialized by the runtime."""
    original: Any = runtime.original

    class InferenceSession(original):  # type: ignore[misc]
        __doc__ = original.__doc__
        raddle_wrapped = True

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            try:
                runtime.construct(self, original.__init__, args, kwargs, _caller())
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
    if runtime.fields.get("shrink"):
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


def told_at_runs(runtime: Runtime, line: str) -> None:
    """Has the line said at the next run of any session of the runtime, or by `runtime.lost` before that."""
    session_class = runtime.session_class
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

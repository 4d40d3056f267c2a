"""Arena shrinkage: after each run the session's arena gives unused memory back. Only loaded where the plan asks.

It is a run option, so that each run's RunOptions need it: the application's own object gets the entry beside its
others, a run without one gets an object of ours. Only memory that the C library gives back leaves the process: glibc
keeps freed blocks below 32 MB.
"""

from __future__ import annotations

import weakref
from typing import Any, Callable

from raddle import errors, log
from raddle.adapters.onnxruntime.session_options import living

# onnxruntime_run_options_config_keys.h, since 1.8.
KEY = "memory.enable_memory_arena_shrinkage"
ARENAS = "cpu:0"
# Method of the native session -> where its RunOptions are.
POSITIONS = {
    "run": 2,
    "run_with_ort_values": 2,
    "run_with_iobinding": 1,
    "run_with_ortvaluevector": 0,
    "run_async": 4,
}


def wrappers(module: Any, original: Any) -> dict[str, Callable[..., Any]]:
    """Name -> method for the session class; {} where this onnxruntime's run options have no entries."""
    if not hasattr(module.RunOptions, "add_run_config_entry"):
        return {}
    ours = module.RunOptions()
    ours.add_run_config_entry(KEY, ARENAS)
    # The application's own objects that have got the entry from us, by references without a callback: what a signal
    # handler raises in one of those is lost.
    marked: dict[weakref.ref[Any], None] = {}
    return {
        name: _shrinking(getattr(original, name), position, ours, marked)
        for name, position in POSITIONS.items()
        if hasattr(original, name)
    }


def _shrinking(
    native: Callable[..., Any], position: int, ours: Any, marked: dict[weakref.ref[Any], None]
) -> Callable[..., Any]:
    def run(self: Any, *args: Any, **kwargs: Any) -> Any:
        if kwargs or len(args) <= position:
            return native(self, *args, **kwargs)
        given = used = args[position]
        if getattr(self, "raddle_shrinks", False):
            if given is None:
                used = ours
            else:
                _add(given, marked)
        try:
            return native(self, *args[:position], used, *args[position + 1 :])
        except Exception as error:
            # Said before anything is computed: this session has no arena on the CPU. The application's object may have
            # its entry from a run of another session that has one; it keeps an empty one, and is not given it again.
            if "shrink" not in str(error) or not (used is ours or (given is not None and weakref.ref(given) in marked)):
                raise
            self.raddle_shrinks = False
            log.complain(f"onnxruntime arena is not shrunk: {error}")
            if given is not None:
                given.add_run_config_entry(KEY, "")
            return native(self, *args[:position], given, *args[position + 1 :])

    run.__name__ = getattr(native, "__name__", "run")
    run.__doc__ = native.__doc__
    return run


def _add(options: Any, marked: dict[weakref.ref[Any], None]) -> None:
    """Adds the entry where the application's own RunOptions have none."""
    try:
        options.get_run_config_entry(KEY)
    except RuntimeError as error:
        errors.let_through(error)
        living(marked)
        # Before it is there: a signal handler may raise in between, and it must not be taken for the application's.
        marked[weakref.ref(options)] = None
        options.add_run_config_entry(KEY, ARENAS)
    except Exception as error:
        errors.let_through(error)

"""Arena shrinkage: after each run the session's arena gives unused memory back. Only loaded where the plan asks.

It is a run option, so that each run's RunOptions need it: the application's own object gets the entry beside its
others, a run without one gets an object of ours. Only memory that the C library gives back leaves the process: glibc
keeps freed blocks below 32 MB.
"""

from __future__ import annotations

from typing import Any, Callable

from raddle import record

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
    return {
        name: _shrinking(getattr(original, name), position, ours)
        for name, position in POSITIONS.items()
        if hasattr(original, name)
    }


def _shrinking(native: Callable[..., Any], position: int, ours: Any) -> Callable[..., Any]:
    def run(self: Any, *args: Any, **kwargs: Any) -> Any:
        if kwargs or len(args) <= position or not getattr(self, "raddle_shrinks", False):
            return native(self, *args, **kwargs)
        given = args[position]
        added = False
        if given is None:
            args = (*args[:position], ours, *args[position + 1 :])
        else:
            added = _add(given)
        try:
            return native(self, *args)
        except Exception as error:
            # Said before anything is computed: the session has no arena on the CPU after all.
            if "shrink" not in str(error):
                raise
            self.raddle_shrinks = False
            record.complain(f"onnxruntime arena is not shrunk: {error}")
            if added:
                given.add_run_config_entry(KEY, "")
            return native(self, *args[:position], given, *args[position + 1 :])

    run.__name__ = getattr(native, "__name__", "run")
    run.__doc__ = native.__doc__
    return run


def _add(options: Any) -> bool:
    """Adds the entry where the application's own RunOptions have none."""
    try:
        options.get_run_config_entry(KEY)
    except RuntimeError:
        options.add_run_config_entry(KEY, ARENAS)
        return True
    except Exception:
        pass
    return False

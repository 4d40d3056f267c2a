"""The shim's fast path: what every Python process of an injected container runs before its own code.

It puts one finder on `sys.meta_path` and leaves. Only when a runtime of `RUNTIMES` is imported is anything more
loaded: `raddle.adapters.hook` and that runtime's adapter. The mount is read-only, so this file is compiled again by
each process: it is as short as it can be, and imports only what every process has, not even `__future__`.
"""

import os
import sys

from raddle import COMPLETED, HIDDEN, RUNTIMES, STARTS, in_c, in_list

TYPE_CHECKING = False
if TYPE_CHECKING:
    # typing isn't imported at run time: it would cost more than the rest of the shim.
    from typing import Any

# A `.pex` file takes what its start finds loaded out of sys.modules again; the finder stays.
_LOADED = [(name, sys.modules[name]) for name in ("raddle", __name__)]


class _Finder:
    """Finds nothing but awaited modules, and those through the other finders."""

    def find_spec(self, name: str, path: "Any" = None, target: "Any" = None) -> "Any":
        if name in RUNTIMES and not (RUNTIMES[name] == "openmp" and _is_alone()):
            try:
                for ours, module in _LOADED:
                    sys.modules.setdefault(ours, module)
                from raddle.adapters import hook  # noqa: PLC0415

                return hook.find_spec(self, name, path, target)
            except Exception as error:
                # The other finders are asked next, as if this one were not there.
                _let_through(error)
        return None


def _is_alone() -> bool:
    """Whether the parent has no child but this process, as far as the kernel says: no others share the CPUs."""
    try:
        tasks = f"/proc/{os.getppid()}/task"
        children = 0
        for thread in os.listdir(tasks):
            with open(f"{tasks}/{thread}/children", "rb") as file:
                children += len(file.read().split())
    except OSError:
        return True
    return children < 2


def _let_through(error: Exception) -> None:
    """Raises it again where a signal handler of the application's has raised it, even before `errors` was loaded."""
    try:
        from raddle import errors  # noqa: PLC0415

        is_ours = errors.is_ours(error)
    except Exception:
        # The mount is not what it was.
        return
    if not is_ours:
        raise error


def _complete() -> None:
    """Puts the counts that the door has listed where they are read.

    Python has made os.environ of C's environment before. What goes into C's now is read by the libraries of this
    process, and by no framework, which would copy it for each of its processes. `subprocess` hands C's environment on
    where it has no other: with the list, by which the child's door takes out what is ours.
    """
    text = os.environ.pop("RADDLE_COMPLETED", "")
    for part in text.split(";"):
        name, equals, value = part.partition("=")
        if equals:
            COMPLETED[name] = value
        elif name:
            STARTS.append(name)
        if name in HIDDEN:
            if os.environ.get(name) == value:
                # The door has started this Python again, for a preloaded library that reads it before.
                del os.environ[name]
            os.putenv(name, in_c(name, value))
        elif equals:
            os.environ[name] = value
    if text:
        os.putenv("RADDLE_COMPLETED", in_list(COMPLETED))


def activate() -> bool:
    """True when the shim waits for runtimes now: RADDLE_PLAN is set, not in a frozen application, not done before."""
    try:
        if os.environ.get("OMP_NUM_THREADS") == "":
            # What a copied pod without our annotation has: LLVM's OpenMP, as Debian builds it, ends the process there.
            del os.environ["OMP_NUM_THREADS"]
        _complete()
        if not os.environ.get("RADDLE_PLAN") or hasattr(sys, "frozen"):
            return False
        if any(type(finder) is _Finder for finder in sys.meta_path):
            return False
        sys.meta_path.insert(0, _Finder())
        if "PYTHON_CPU_COUNT=" in os.environ.get("RADDLE_LITERALS", ""):
            from raddle.adapters import cpu_count  # noqa: PLC0415

            cpu_count.install()
        if not sys.modules.keys().isdisjoint(RUNTIMES):
            from raddle.adapters import hook  # noqa: PLC0415

            hook.adapt_loaded()
    except Exception as error:
        _let_through(error)
        return False
    return True

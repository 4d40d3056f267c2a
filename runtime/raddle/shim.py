"""The shim's fast path: what every Python process of an injected container runs before its own code.

It puts one finder on `sys.meta_path` and leaves. Only when a runtime of `RUNTIMES` is imported is anything more
loaded: `raddle.adapters.hook` and that runtime's adapter. The mount is read-only, so this file is compiled again by
each process: it is as short as it can be, and imports only what every process has, not even `__future__`.
"""

import os
import sys

from raddle import RUNTIMES

TYPE_CHECKING = False
if TYPE_CHECKING:
    # typing isn't imported at run time: it would cost more than the rest of the shim.
    from typing import Any

# A `.pex` file takes what its start finds loaded out of sys.modules again; the finder stays.
_LOADED = [(name, sys.modules[name]) for name in ("raddle", __name__)]


class _Finder:
    """Finds nothing but awaited modules, and those through the other finders."""

    def find_spec(self, name: str, path: "Any" = None, target: "Any" = None) -> "Any":
        if name in RUNTIMES:
            try:
                for ours, module in _LOADED:
                    sys.modules.setdefault(ours, module)
                from raddle.adapters import hook  # noqa: PLC0415

                return hook.find_spec(self, name, path, target)
            except Exception as error:
                # The other finders are asked next, as if this one were not there.
                _let_through(error)
        return None


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


def activate() -> bool:
    """True when the shim waits for runtimes now: RADDLE_PLAN is set, not in a frozen application, not done before."""
    try:
        if os.environ.get("OMP_NUM_THREADS") == "":
            # What a copied pod without our annotation has: LLVM's OpenMP, as Debian builds it, ends the process there.
            del os.environ["OMP_NUM_THREADS"]
        if not os.environ.get("RADDLE_PLAN") or hasattr(sys, "frozen"):
            return False
        if any(type(finder) is _Finder for finder in sys.meta_path):
            return False
        sys.meta_path.insert(0, _Finder())
        if "PYTHON_CPU_COUNT=" in os.environ.get("RADDLE_LITERALS", "") and sys.version_info < (3, 13):
            from raddle.adapters import cpu_count  # noqa: PLC0415

            cpu_count.install()
        if not sys.modules.keys().isdisjoint(RUNTIMES):
            from raddle.adapters import hook  # noqa: PLC0415

            hook.adapt_loaded()
    except Exception as error:
        _let_through(error)
        return False
    return True

"""The shim's fast path: what every Python process of an injected container runs before its own code.

It puts one finder on `sys.meta_path` and leaves. Only when a runtime of `ADAPTERS` is imported is anything more
loaded: `raddle.adapters` decodes the plan and wraps that runtime. A process that imports no runtime pays for this
file alone, so it imports `os` and `sys` only, and no `__future__`. Nothing here may raise.
"""

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    # typing isn't imported at run time: it would cost more than the rest of the shim.
    from typing import Any

# The module of a runtime whose import is waited for -> the adapter in raddle.adapters that is told.
ADAPTERS = {"onnxruntime.capi._pybind_state": "onnxruntime"}


class _Finder:
    """Finds nothing itself: lets the other finders find an awaited module and wraps the loader they name."""

    def find_spec(self, name: str, path: "Any" = None, target: "Any" = None) -> "Any":
        if name not in ADAPTERS:
            return None
        for finder in sys.meta_path:
            find_spec = getattr(finder, "find_spec", None)
            spec = None if finder is self or find_spec is None else find_spec(name, path, target)
            if spec is not None:
                if hasattr(spec.loader, "exec_module"):
                    spec.loader = _Loader(spec.loader)
                return spec
        return None


class _Loader:
    """The loader that was found, which tells the adapter once the module is complete."""

    def __init__(self, loader: "Any") -> None:
        self._loader = loader

    def __getattr__(self, name: str) -> "Any":
        return getattr(self._loader, name)

    def create_module(self, spec: "Any") -> "Any":
        return self._loader.create_module(spec)

    def exec_module(self, module: "Any") -> None:
        # From here on the module looks as if nobody had been in between.
        module.__loader__ = module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        _adapt(module)


def _adapt(module: "Any") -> None:
    try:
        name = "raddle.adapters." + ADAPTERS[module.__name__]
        __import__(name)
        sys.modules[name].install(module, os.environ.get("RADDLE_PLAN", ""))
    except Exception:
        # The user's import succeeded; ours failing is no reason to say more than the adapter already has.
        pass


def activate() -> bool:
    """True when the shim waits for runtimes now: RADDLE_PLAN is set, not in a frozen application, not done before."""
    try:
        if not os.environ.get("RADDLE_PLAN") or getattr(sys, "frozen", False):
            return False
        if any(type(finder) is _Finder for finder in sys.meta_path):
            return False
        sys.meta_path.insert(0, _Finder())
        for name in ADAPTERS:
            if name in sys.modules:
                _adapt(sys.modules[name])
    except Exception:
        return False
    return True


def from_user_site() -> None:
    """Activates where raddle.pth was found through PYTHONUSERBASE, and puts the user's own user site in its place.

    Afterwards sys.path, site.USER_BASE and site.USER_SITE are what they were without PYTHONUSERBASE. The variable
    stays, so that child processes have the shim too.
    """
    activate()
    site: "Any" = sys.modules["site"]
    mount = site.USER_BASE
    own = (site.USER_SITE, mount + "/python")
    sys.path[:] = [entry for entry in sys.path if entry not in own]
    site.USER_BASE = os.path.join(os.path.expanduser("~"), ".local")
    site.USER_SITE = site.USER_BASE + own[0][len(mount) :]
    if os.path.isdir(site.USER_SITE):
        site.addsitedir(site.USER_SITE)

"""Tells an adapter when its runtime has been imported: the awaited module's loader is wrapped for that one import."""

from __future__ import annotations

import os
import sys
from typing import Any, Iterable

from raddle import env
from raddle.adapters import onnxruntime

# shim.RUNTIMES -> what is told.
_INSTALL = {"onnxruntime.capi._pybind_state": onnxruntime.install}


def find_spec(asking: Any, name: str, path: Any, target: Any) -> Any:
    """The module's spec as the finders other than `asking` find it, its loader wrapped; None where none does."""
    for finder in sys.meta_path:
        find = getattr(finder, "find_spec", None)
        spec = None if finder is asking or find is None else find(name, path, target)
        if spec is not None:
            if hasattr(spec.loader, "exec_module"):
                spec.loader = _Loader(spec.loader)
            return spec
    return None


def adapt_loaded(names: Iterable[str]) -> None:
    """Tells the adapters of those modules that were imported before the shim was there."""
    for name in names:
        if name in sys.modules:
            _adapt(sys.modules[name])


class _Loader:
    """The loader that was found, which tells the adapter once the module is complete."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: Any) -> Any:
        return self._loader.create_module(spec)

    def exec_module(self, module: Any) -> None:
        # From here on the module looks as if nobody had been in between.
        module.__loader__ = module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        _adapt(module)


def _adapt(module: Any) -> None:
    try:
        _INSTALL[module.__name__](module, os.environ.get(env.PLAN, ""))
    except Exception:
        # The user's import succeeded; ours failing is no reason to say more than the adapter already has.
        pass

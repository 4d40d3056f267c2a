"""Tells an adapter when its runtime is imported: the awaited module's loader is wrapped for that one import.

Nothing here raises. An adapter that is missing or fails is left out with one line on stderr, and the runtime is what
it would have been without Raddle.
"""

from __future__ import annotations

import os
import sys
from _thread import get_ident
from importlib import import_module
from typing import Any, Callable

from raddle import RUNTIMES, env, errors, log
from raddle.report import record

try:
    # Without an agent no process pays for it.
    if os.environ.get(env.AGENT):
        from raddle.report import datagrams  # noqa: F401
except Exception as error:
    errors.let_through(error)

# Awaited module -> the module that its adapter was told of: a reload executes the same one again.
_installed: dict[str, Any] = {}
# (awaited module, thread) that is being looked for. Another import hook, such as wrapt's, asks all finders again.
_searching: set[tuple[str, int]] = set()


def find_spec(asking: Any, name: str, path: Any, target: Any) -> Any:
    """The module's spec as the finders other than `asking` find it, its loader wrapped; None where none does."""
    search = (name, get_ident())
    if search in _searching:
        return None
    _searching.add(search)
    try:
        for finder in sys.meta_path:
            find = getattr(finder, "find_spec", None)
            spec = None if finder is asking or find is None else find(name, path, target)
            if spec is not None:
                if hasattr(spec.loader, "exec_module"):
                    spec.loader = _Loader(spec.loader)
                return spec
    finally:
        _searching.discard(search)
    return None


def adapt_loaded() -> None:
    """Tells the adapters of those modules that were imported before the shim was there; it is too late to prepare."""
    # An adapter may add a module to wait for.
    for name in list(RUNTIMES):
        if name in sys.modules:
            _install(sys.modules[name], name)


class _Loader:
    """The loader that was found, which tells the adapter before and after the module is executed."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    @property  # type: ignore[misc]  # isinstance asks for it
    def __class__(self) -> Any:
        return type(self._loader)

    def __repr__(self) -> str:
        return repr(self._loader)

    def __eq__(self, other: object) -> bool:
        return bool(self._loader == (other._loader if type(other) is _Loader else other))

    def __hash__(self) -> int:
        return hash(self._loader)

    def __reduce_ex__(self, protocol: Any) -> Any:
        # Copies are of the loader that was found.
        return self._loader.__reduce_ex__(protocol)

    def create_module(self, spec: Any) -> Any:
        return self._loader.create_module(spec)

    def exec_module(self, module: Any) -> None:
        # From here on the module looks as if nobody had been in between.
        module.__loader__ = module.__spec__.loader = self._loader
        name = module.__name__
        try:
            _prepare(name)
            self._loader.exec_module(module)
            _install(module, name)
        except BaseException as error:
            _abandon(name)
            error.__traceback__ = errors.without_frames(error)
            raise


def _prepare(awaited: str) -> None:
    _tell(awaited, _prepared)


def _prepared(adapter: Any, plan_text: str) -> None:
    # Few have something to prepare.
    prepare = getattr(adapter, "prepare", None)
    if prepare is not None:
        prepare(plan_text)


def _abandon(awaited: str) -> None:
    """The import has failed: what an adapter has prepared for it is taken back."""
    abandon = getattr(record.adapters.get(RUNTIMES[awaited]), "abandon", None)
    if abandon is not None:
        abandon()


def _install(module: Any, awaited: str) -> None:
    if _installed.get(awaited) is module:
        return
    _installed[awaited] = module
    _tell(awaited, lambda adapter, plan_text: adapter.install(module, plan_text))


def _tell(awaited: str, call: Callable[[Any, str], None]) -> None:
    name = RUNTIMES[awaited]
    plan_text = os.environ.get(env.PLAN, "")
    if not plan_text:
        # The application has removed it.
        return
    try:
        adapter = _adapter(awaited)
        if adapter is not None:
            call(adapter, plan_text)
    except env.PlanError as error:
        log.announce(name, f"{name} is not configured: {error}")
    except Exception as error:
        log.failed(f"{name} is not configured", error)


def _adapter(awaited: str) -> Any:
    """The adapter's module; None where it is missing or broken, which is said."""
    name = RUNTIMES[awaited]
    if name not in record.adapters:
        try:
            record.adapters[name] = import_module("raddle.adapters." + name)
        except Exception as error:
            log.failed(f"{name} is not configured, its adapter can't be loaded", error)
    return record.adapters.get(name)

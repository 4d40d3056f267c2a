"""Something that is done once, ahead of the first call of any of some functions; then they are as they were."""

from __future__ import annotations

from typing import Any, Callable

from raddle import errors
from raddle.adapters.metadata import copy_metadata

# Where TorchScript begins to run from Python: (class in torch._C, its method), and torch._C's own functions.
_METHODS = (
    ("ScriptMethod", "__call__"),
    ("ScriptFunction", "__call__"),
    ("LiteScriptModule", "__call__"),
    ("LiteScriptModule", "forward"),
    ("LiteScriptModule", "run_method"),
    ("StaticModule", "__call__"),
)
_FUNCTIONS = ("fork", "_parallel_info")


class FirstUse:
    """Calls `then` ahead of the first call of a function that `before` was told of; `then` calls `end`.

    A call that torch.compile only traces is none: what `then` does can't be compiled.
    """

    def __init__(self, module: Any, then: Callable[[], None]) -> None:
        self.then = then
        self.is_compiling: Callable[[], bool] = getattr(getattr(module, "compiler", None), "is_compiling", bool)
        self.undo: list[tuple[Any, str, Any, Any]] = []

    def before_scripts(self, native: Any) -> None:
        """Wraps all ways into TorchScript from Python; `native` is torch._C."""
        for holder, method in _METHODS:
            self.before(getattr(native, holder, None), method)
        for function in _FUNCTIONS:
            self.before(native, function)

    def before(self, holder: Any, name: str) -> None:
        """Wraps holder.name."""
        # Looked up in the holder itself: a class's `__call__` may be its metaclass's.
        if name not in getattr(holder, "__dict__", ()):
            return
        original, is_compiling = getattr(holder, name), self.is_compiling

        def first(*args: Any, **kwargs: Any) -> Any:
            if not is_compiling() and self.undo:
                self.then()
            return original(*args, **kwargs)

        setattr(holder, name, copy_metadata(first, original))
        self.undo.append((holder, name, first, original))

    def end(self) -> None:
        """Puts everything back that nobody else has replaced since."""
        for holder, name, first, original in self.undo:
            try:
                if getattr(holder, name, None) is first:
                    setattr(holder, name, original)
            except Exception as error:  # noqa: PERF203
                # The wrapper stays, and does nothing more.
                errors.let_through(error)
        self.undo = []

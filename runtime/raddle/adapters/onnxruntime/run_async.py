"""run_async of a session that has one thread by its plan: ONNX Runtime itself refuses it without a worker thread.

The application would have had workers, so its runs are made one after another by a thread of Python's. It is started
at the first of them, and ends with the session.
"""

from __future__ import annotations

import sys
from typing import Any, Callable

# session/inference_session.cc, RunAsync.
_REFUSED = "must have at least one thread for RunAsync"


def run(native: Callable[..., Any], session: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What the native run_async returns, or None where a thread of ours does its work."""
    try:
        return native(session, *args, **kwargs)
    except Exception as error:
        alone = getattr(session, "raddle_single_thread", False)
        if kwargs or len(args) != 5 or _REFUSED not in str(error) or not alone:
            raise
    _queue(session).submit(_answer, session, *args)
    return None


def _queue(session: Any) -> Any:
    result = session.__dict__.get("raddle_queue")
    if result is None:
        from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415

        # Of two that are made at once one is kept.
        result = session.__dict__.setdefault("raddle_queue", ThreadPoolExecutor(1, thread_name_prefix="raddle-async"))
    return result


def _answer(session: Any, names: Any, feed: Any, callback: Callable[..., Any], user_data: Any, options: Any) -> None:
    try:
        results, problem = session.run(names, feed, options), ""
    except Exception as error:
        results, problem = [], str(error)
    try:
        callback(results, user_data, problem)
    except Exception:
        sys.excepthook(*sys.exc_info())

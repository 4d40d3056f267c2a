"""Options of execution providers: the plan's are merged into the list that the application passes.

They reach the native `initialize_session` as two lists of one length, names and options, whichever way the application
wrote them: names, pairs, a list of options, `set_providers`. Nothing is added for a provider that it doesn't ask for.

A native session whose initialization has failed takes no second one: its providers are registered already. So it is
onnxruntime's own `InferenceSession._create_inference_session` that is called again: it makes a new native session.
Where nothing could be called again, the plan's options aren't used.
"""

from __future__ import annotations

import functools
import sys
import threading
from typing import Any, Callable, Mapping, Sequence

from raddle import RUNTIMES, errors, log
from raddle.keys import PROVIDERS

# Its InferenceSession is the one that applications use; it is imported after the extension.
COLLECTION = "onnxruntime.capi.onnxruntime_inference_collection"
_CREATE = "_create_inference_session"
# Providers that compute beside the CPU: spinning workers have nothing to wait for.
GPU_PROVIDERS = frozenset(
    name + "ExecutionProvider"
    for name in ("CUDA", "Tensorrt", "NvTensorRTRTX", "ROCM", "MIGraphX", "Dml", "WebGPU", "CANN", "JS")
)
# It counts the machine's CPUs, whatever the session's own count.
OPENVINO = "OpenVINOExecutionProvider"
_OPENVINO_COUNT = "num_of_threads"
# Frames between the native constructor and the function that knows the providers.
_MAX_FRAMES = 4


def planned_options(fields: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """Provider -> its options in the plan, as ONNX Runtime takes them; providers without any are left out."""
    result = {}
    for provider, prefix in PROVIDERS.items():
        options = {key[len(prefix) :]: str(value) for key, value in fields.items() if key.startswith(prefix)}
        if options:
            result[provider] = options
    return result


class _Attempts:
    """The attempts at one session: which of the plan's options are left, and which are not and why."""

    def __init__(self, planned: Mapping[str, Mapping[str, str]]) -> None:
        self.planned = planned
        self.left: dict[str, Mapping[str, str]] = dict(planned)
        self.unknown: list[str] = []
        self.dropped: list[str] = []
        self.failure = ""
        # The last attempt failed with options that the application had not asked for.
        self.blamed = False

    def go_on(self, error: Exception) -> bool:
        """Whether another attempt makes sense: without the options that onnxruntime names, or else without any."""
        if not self.blamed:
            return False
        self.blamed = False
        keys = [key for options in self.left.values() for key in options]
        named = [key for key in keys if f'"{key}"' in str(error)]
        if named:
            self.unknown += named
        else:
            self.dropped, self.failure = keys, str(error)
            named = keys
        self.left = {name: {k: v for k, v in options.items() if k not in named} for name, options in self.left.items()}
        return True

    def why(self) -> str:
        """Why some of the plan's options are not used, "" where all are."""
        reasons = (
            ("not known to this onnxruntime: ", self.unknown),
            ("no session could be created with them: ", self.dropped),
        )
        return "; ".join(reason + ", ".join(keys) for reason, keys in reasons if keys)


class Providers:
    """The plan's options for the providers of one loaded onnxruntime.

    `count` is the plan's for a session now, which OpenVINO's gets where the plan has none for it.
    """

    def __init__(
        self,
        planned: Mapping[str, Mapping[str, str]],
        *,
        override: bool,
        count: Callable[[], int | None] = lambda: None,
    ) -> None:
        self.planned = planned
        self.override = override
        self.count = count
        # attempts: those at the session that this thread is creating.
        self.thread = threading.local()

    def await_sessions(self) -> None:
        """Has `adopt` called for onnxruntime's module of sessions once it is imported, or calls it now."""
        RUNTIMES[COLLECTION] = "onnxruntime"
        if COLLECTION in sys.modules:
            self.adopt(sys.modules[COLLECTION])

    def adopt(self, module: Any) -> None:
        """Lets the module's InferenceSession attempt again what failed because of the plan's options."""
        session = getattr(module, "InferenceSession", None)
        create = getattr(session, _CREATE, None)
        if create is not None:
            setattr(session, _CREATE, self.attempting(create))

    def attempting(self, create: Callable[..., Any]) -> Callable[..., Any]:
        """The method that creates a native session, called until it is created or fails without the plan's options."""

        @functools.wraps(create)
        def attempted(*args: Any, **kwargs: Any) -> Any:
            try:
                return attempt(args, kwargs)
            except BaseException as error:
                error.__traceback__ = errors.without_frames(error)
                raise

        def attempt(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            outer = getattr(self.thread, "attempts", None)
            attempts = self.thread.attempts = _Attempts(self.planned_now())
            try:
                while True:
                    # The next attempt is made when the error, and with it the session that failed, is gone.
                    try:
                        result = create(*args, **kwargs)
                        break
                    except Exception as error:
                        if not (errors.is_ours(error) and attempts.go_on(error)):
                            raise
            finally:
                self.thread.attempts = outer
            if attempts.failure:
                line = "onnxruntime session is created without the plan's provider options: "
                log.complain(line + attempts.failure)
            return result

        return attempted

    def planned_now(self) -> Mapping[str, Mapping[str, str]]:
        """The plan's options for a session that is made now."""
        try:
            options, count = self.planned.get(OPENVINO, {}), self.count()
        except Exception as error:
            log.failed("onnxruntime's OpenVINO provider keeps its own count of threads", error)
            return self.planned
        if count is None or _OPENVINO_COUNT in options:
            return self.planned
        return {**self.planned, OPENVINO: {**options, _OPENVINO_COUNT: str(count)}}

    def initialize(
        self, native: Callable[..., Any], session: Any, args: tuple[Any, ...]
    ) -> tuple[Any, dict[str, dict[str, str]], str]:
        """What the native `initialize_session` returns, with the plan's options merged into args[0:2].

        Beside it the options of each provider that the plan has some for, and why some of those are not used ("": all
        are). Raises what the native function raises.
        """
        attempts: _Attempts | None = getattr(self.thread, "attempts", None)
        names, given = _lists(args)
        left = attempts.left if attempts else {}
        merged = [merge(options, left.get(name, {}), override=self.override) for name, options in zip(names, given)]
        if merged == given:
            # Also where there is nothing to merge into.
            result = native(session, *args)
        else:
            assert attempts is not None
            attempts.blamed = True
            result = native(session, args[0], merged, *args[2:])
            attempts.blamed = False
        planned = attempts.planned if attempts else self.planned
        used = {name: options for name, options in zip(names, merged) if name in planned}
        if not used:
            return result, {}, ""
        return result, used, attempts.why() if attempts else "the session is not onnxruntime.InferenceSession's"


def merge(code: Mapping[str, str], planned: Mapping[str, str], *, override: bool) -> dict[str, str]:
    """The options of one provider: those that the code sets win unless the policy overrides."""
    return {**code, **planned} if override else {**planned, **code}


def _lists(args: Sequence[Any]) -> tuple[list[str], list[dict[str, str]]]:
    """Names and options; without any where the runtime's own list is used, or the two aren't what they should be."""
    try:
        names, options = list(args[0]), [dict(one) for one in args[1]]
    except (IndexError, TypeError, ValueError):
        return [], []
    return (names, options) if len(names) == len(options) else ([], [])


def gpu_asked(frame: Any) -> str:
    """The first GPU provider that the application asks for, "" for none; `frame` is the native constructor's caller.

    The pools are made by the constructor and the providers are told to another function later, so they are read off
    the variables of onnxruntime's own function that calls both.
    """
    for _ in range(_MAX_FRAMES):
        if frame is None:
            break
        if frame.f_code.co_name == "_create_inference_session":
            for provider in frame.f_locals.get("providers") or ():
                name = provider[0] if isinstance(provider, tuple) and provider else provider
                if name in GPU_PROVIDERS:
                    return str(name)
            break
        frame = frame.f_back
    return ""

"""Options of execution providers: the plan's are merged into the list that the application passes.

They reach `initialize_session` as two lists of one length, names and options, whichever way the application wrote
them: names, pairs, a list of options, `set_providers`. Nothing is added for a provider that it doesn't ask for.
"""

from __future__ import annotations

from typing import Any, Callable, Mapping, Sequence

from raddle import env, record

# Providers that compute beside the CPU: spinning workers have nothing to wait for.
GPU_PROVIDERS = frozenset(
    name + "ExecutionProvider"
    for name in ("CUDA", "Tensorrt", "NvTensorRTRTX", "ROCM", "MIGraphX", "Dml", "WebGPU", "CANN", "JS")
)
# Frames between the native constructor and the function that knows the providers.
_MAX_FRAMES = 4


def planned_options(fields: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """Provider -> its options in the plan, as ONNX Runtime takes them; providers without any are left out."""
    found = {}
    for provider, (prefix, allowed) in env.PROVIDERS.items():
        options = {option: str(fields[prefix + option]) for option in allowed if prefix + option in fields}
        if options:
            found[provider] = options
    return found


def initialize(
    native: Callable[..., Any],
    session: Any,
    args: tuple[Any, ...],
    planned: Mapping[str, Mapping[str, str]],
    *,
    override: bool,
) -> tuple[Any, dict[str, dict[str, str]], str]:
    """What the native `initialize_session` returns, with the plan's options merged into args[0:2].

    Beside it the options of each provider that the plan has some for, and why some of those are not used ("": all
    are). An option that this onnxruntime refuses by name is left out, and where that does not help, all are.
    Where that does not help either, what the first attempt raised is raised: a session that failed while its model was
    loaded refuses a second initialization, with an error that the application would not have seen.
    """
    first: Exception | None = None
    left: dict[str, dict[str, str]] = {name: dict(options) for name, options in planned.items()}
    refused: list[str] = []
    while True:
        names, given = _lists(args)
        merged = [merge(options, left.get(name, {}), override=override) for name, options in zip(names, given)]
        used = {name: options for name, options in zip(names, merged) if name in planned}
        why = "not known to this onnxruntime: " + ", ".join(refused) if refused else ""
        try:
            if merged == given:
                # Also where there is nothing to merge into.
                return native(session, *args), used, why
            return native(session, args[0], merged, *args[2:]), used, why
        except Exception as error:
            if merged == given:
                raise (first or error) from None
            named = [key for options in left.values() for key in options if f'"{key}"' in str(error)]
            if not named:
                first = first or error
                record.complain(f"onnxruntime session is created without the plan's provider options: {error}")
                named = [key for options in left.values() for key in options]
            refused += named
            left = {name: {k: v for k, v in options.items() if k not in named} for name, options in left.items()}


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

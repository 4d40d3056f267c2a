"""OpenVINO: on CPUs a model gets the plan's threads, in any number of streams, under a quota on no fixed CPUs.

A new Core gets them as the CPU's defaults, also for AUTO and the like. What the code passes to the Core later, or to a
model, wins, but for a count of zero, which stands for none.
"""

from __future__ import annotations

from typing import Any

from raddle.adapters.library import UNSET, Library
from raddle.process import machine_counts

_library = Library("openvino")
_COUNT = "INFERENCE_NUM_THREADS"
_PINNING = "ENABLE_CPU_PINNING"


def install(module: Any, plan_text: str) -> None:
    """The native Core is what all of OpenVINO's Python classes and functions use."""
    _library.read(module, plan_text)
    core = module.Core
    _library.wrap(core, "__init__", after=_made)
    _library.wrap(core, "set_property", before=_given)
    for name in ("compile_model", "import_model"):
        _library.wrap(core, name, before=_given, after=_compiled)


def _made(_: None, args: tuple[Any, ...], kwargs: dict[str, Any], count: int) -> None:
    core = args[0]
    # A file of the code's may say more; asking for it would load the CPU's part of OpenVINO.
    is_own = any(args[1:]) or any(kwargs.values())
    if not (is_own and core.get_property("CPU", _COUNT)) or _library.override:
        core.set_property("CPU", {_COUNT: count})
    wanted = _library.wanted()
    if _library.facts.quota_cpus is not None and wanted is not None and not wanted.exclusive and not is_own:
        core.set_property("CPU", {_PINNING: False})


def _given(args: tuple[Any, ...], kwargs: dict[str, Any], count: int) -> tuple[tuple[Any, ...], dict[str, Any]]:
    return tuple(_planned(one, count) for one in args), {key: _planned(one, count) for key, one in kwargs.items()}


def _compiled(model: Any, args: tuple[Any, ...], kwargs: dict[str, Any], count: int) -> None:  # noqa: ARG001
    if _COUNT in model.get_property("SUPPORTED_PROPERTIES"):
        _library.note(int(model.get_property(_COUNT)), streams=int(model.get_property("NUM_STREAMS")))


def _planned(value: Any, count: int) -> Any:
    """The properties with the plan's count where theirs is none; whatever else it is, as it is."""
    wanted = _library.wanted()
    if not isinstance(value, dict) or _COUNT not in value or wanted is None:
        return value
    is_open = value[_COUNT] in UNSET or machine_counts.is_copied(value[_COUNT], wanted)
    return {**value, _COUNT: count} if _library.override or is_open else value

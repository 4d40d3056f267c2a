"""onnxruntime-genai: its sessions get the plan's threads and spinning where the model's own configuration sets none.

It gives each session a count of its own, half of the machine's CPUs and up to sixteen, which no variable changes. What
the code overlays on the configuration later wins.
"""

from __future__ import annotations

import json
import os
from typing import Any

from raddle.adapters.library import UNSET, Library

_library = Library("onnxruntime_genai")
_FILE = "genai_config.json"
_COUNT = "intra_op_num_threads"
_SPINNING = "session.intra_op.allow_spinning"


def install(module: Any, plan_text: str) -> None:
    """A model that is made from a folder is made from the folder's configuration instead, which is the same."""
    _library.read(module, plan_text)
    config = module.Config
    if not hasattr(config, "overlay"):
        # An early release.
        return
    _library.wrap(config, "__init__", after=_made)
    _library.wrap(module.Model, "__init__", before=lambda args, kwargs, _: (_configured(config, args), kwargs))
    if _library.override:
        _library.wrap(config, "overlay", after=_overridden)


def _configured(config: Any, args: tuple[Any, ...]) -> tuple[Any, ...]:
    if len(args) == 2 and isinstance(args[1], str) and os.path.isfile(os.path.join(args[1], _FILE)):
        return args[0], config(args[1])
    return args


def _made(_: None, args: tuple[Any, ...], kwargs: dict[str, Any], count: int) -> None:
    path = args[1] if len(args) > 1 else next(iter(kwargs.values()))
    with open(os.path.join(path, _FILE), encoding="utf-8") as file:
        text = overlay(json.load(file), count, spins=_spins(), override=_library.override)
    if text:
        args[0].overlay(text)


def _overridden(_: None, args: tuple[Any, ...], kwargs: dict[str, Any], count: int) -> None:  # noqa: ARG001
    # Not through the function that was wrapped, which would come here again.
    type(args[0]).overlay.__wrapped__(args[0], overlay({}, count, spins=_spins(), override=True))


def _spins() -> bool:
    wanted = _library.wanted()
    return wanted is None or wanted.spinning != "never"


def overlay(config: dict[str, Any], count: int, *, spins: bool, override: bool = False) -> str:
    """What is to be laid over this configuration of a model, as JSON; "" for nothing.

    A session without options of its own takes the decoder's.
    """
    parts = config.get("model", {})
    result: dict[str, Any] = {}
    for name, part in {"decoder": {}, **parts}.items():
        options = part.get("session_options") if isinstance(part, dict) else None
        if options is None and name == "decoder":
            options = {}
        if not isinstance(options, dict):
            continue
        ours: dict[str, Any] = {}
        if override or options.get(_COUNT) in UNSET:
            ours[_COUNT] = count
        if not spins and (override or _SPINNING not in options):
            ours[_SPINNING] = "0"
        if ours:
            result[name] = {"session_options": ours}
    return json.dumps({"model": result}) if result else ""

"""ONNX Runtime: every session of the process gets the plan's values, no matter what makes it.

`onnxruntime.capi._pybind_state.InferenceSession` is the one constructor that all Python code reaches, and it copies
the SessionOptions it is given: `session_class` puts a subclass in its place.
"""

from __future__ import annotations

import os
import sys
from typing import Any, Iterable

from raddle import env, log
from raddle.adapters import version_of
from raddle.adapters.onnxruntime.capabilities import RuntimeCapabilities
from raddle.adapters.onnxruntime.runtime import Runtime
from raddle.adapters.onnxruntime.session_class import replace

# The runtime of this process, once it was imported under a plan that can be read.
_loaded: list[Runtime] = []
# The environment that an OpenMP build is loaded with, between `prepare` and `install`.
_openmp: list[Any] = []


def prepare(plan_text: str) -> None:
    """Gives a build with OpenMP its environment for the moment of loading; any other build reads none of Raddle's."""
    if _loaded or not _brings_libgomp(getattr(sys.modules.get("onnxruntime"), "__path__", ())):
        return
    from raddle.adapters.onnxruntime.openmp import OpenMP  # noqa: PLC0415

    try:
        _openmp.append(OpenMP(env.decode(plan_text)))
    except env.PlanError:
        # `install` says so.
        pass


def _brings_libgomp(package_paths: Iterable[str]) -> bool:
    """Whether the wheel at these paths (onnxruntime.__path__) has a libgomp in its <name>.libs beside it."""
    for path in package_paths:
        site = os.path.dirname(path)
        for folder in os.listdir(site):
            if folder.startswith("onnxruntime") and folder.endswith(".libs"):
                return any(name.startswith("libgomp") for name in os.listdir(os.path.join(site, folder)))
    return False


def install(module: Any, plan_text: str) -> None:
    """Puts the wrapped constructor into the module (`_pybind_state`), and into the extension it came from.

    A plan that can't be read, or a module that isn't as expected, is left alone with one line on stderr. So is the
    constructor that is wrapped already: the module was dropped and imported again, and the extension was not.
    Also told of onnxruntime's module of sessions, where providers waits for it.
    """
    if module.__name__ == "onnxruntime.capi.onnxruntime_inference_collection":
        if _loaded[0].providers is not None:
            _loaded[0].providers.adopt(module)
        return
    if hasattr(getattr(module, "InferenceSession", None), "raddle_wrapped"):
        return
    openmp = _openmp.pop() if _openmp else None
    if openmp is not None:
        openmp.restore()
    try:
        fields = env.decode(plan_text)
    except env.PlanError as error:
        log.announce("onnxruntime", f"onnxruntime is not configured: {error}")
        return
    try:
        version = str(getattr(sys.modules.get("onnxruntime"), "__version__", ""))
        capabilities = RuntimeCapabilities(fields, module, version_of(version))
        capabilities.openmp = openmp
        runtime = Runtime(capabilities, plan_text, version)
        replace(runtime)
        _loaded[:] = [runtime]
    except Exception as error:
        log.failed("onnxruntime is not configured", error)

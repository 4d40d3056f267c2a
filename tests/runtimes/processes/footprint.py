"""Prints, as JSON, everything about this process that loading something into it could change.

python footprint.py MODEL PROGRAM: PROGRAM is a key of PROGRAMS. It runs first, and the process is looked at
afterwards; what looks is imported then.
"""

import sys


def numpy(model):
    import numpy as np

    assert (np.ones((64, 64)) @ np.ones(64)).sum() == 64 * 64


def onnxruntime(model):
    import numpy as np
    import onnxruntime

    options = onnxruntime.SessionOptions()
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    session.run(None, {"input": np.zeros((64, 256), "float32")}, onnxruntime.RunOptions())
    return {
        "session": session,
        "native session": session._sess,
        "SessionOptions": options,
        "RunOptions": onnxruntime.RunOptions(),
        "session options of the session": session.get_session_options(),
    }


def torch(model):
    import torch

    torch.set_num_threads(torch.get_num_threads())
    assert torch.ones(64, 64) @ torch.ones(64) is not None
    return {"parameter": torch.nn.Linear(2, 2)}


PROGRAMS = {"plain": lambda model: None, "numpy": numpy, "onnxruntime": onnxruntime, "torch": torch}


def main(model, program):
    kept = PROGRAMS[program](model) or {}
    loaded = dict(sys.modules)
    libraries = mapped()
    # From here on anything may be imported: it is the same in every process.
    import json

    found = process()
    found["sys.modules"] = sorted(name for name in loaded if name != "__main__")
    found["libraries"] = libraries
    for name, module in sorted(loaded.items()):
        if name != "__main__" and name.partition(".")[0] != "raddle":
            found.update(objects(name, module))
    for name, value in kept.items():
        found[f"object {name}"] = {**described(value), "attributes": sorted(dir(value))}
    print(json.dumps(found))


def mapped():
    with open("/proc/self/maps") as lines:
        return sorted({line.split(None, 5)[5].strip() for line in lines if ".so" in line})


def process():
    import atexit
    import builtins
    import contextlib
    import gc
    import locale
    import os
    import resource
    import signal
    import site
    import sysconfig
    import threading
    import warnings

    def text(path):
        with open(path) as file:
            return file.read()

    def descriptors():
        found = {}
        for number in os.listdir("/proc/self/fd"):
            with contextlib.suppress(OSError):  # the one that listed them
                found[number] = os.readlink("/proc/self/fd/" + number).partition("[")[0]
        return found

    status = dict(line.split(":", 1) for line in text("/proc/self/status").splitlines())
    steady = ("Name", "Umask", "NoNewPrivs", "Seccomp", "FDSize")
    return {
        "sys.path": sys.path,
        "sys.meta_path": [kind(finder) for finder in sys.meta_path],
        "sys.path_hooks": [plain(repr(hook)) for hook in sys.path_hooks],
        "sys.path_importer_cache": sorted(sys.path_importer_cache),
        "sys hooks": {
            name: plain(repr(getattr(sys, name)))
            for name in ("excepthook", "unraisablehook", "displayhook", "breakpointhook", "__stderr__", "stderr")
        },
        "sys settings": [
            [
                sys.argv,
                getattr(sys, "orig_argv", None),
                sys.executable,
                sys.prefix,
                repr(sys.flags),
                sys.pycache_prefix,
            ],
            [sys.dont_write_bytecode, sys.getrecursionlimit(), sys.getswitchinterval()],
            [sys.gettrace(), sys.getprofile(), sys.warnoptions, sys.getdefaultencoding()],
        ],
        "threading.excepthook": plain(repr(threading.excepthook)),
        "python threads": sorted(thread.name for thread in threading.enumerate()),
        "os.environ": dict(os.environ),
        "site": [site.ENABLE_USER_SITE, site.USER_BASE, site.USER_SITE, site.PREFIXES],
        "sysconfig userbase": sysconfig.get_config_var("userbase"),
        "builtins": sorted(vars(builtins)),
        "descriptors": descriptors(),
        "signal handlers": {number: plain(repr(signal.getsignal(number))) for number in range(1, signal.NSIG)},
        "signals of the kernel": {key: status[key].strip() for key in ("SigBlk", "SigIgn", "SigCgt")},
        # How many there are of each is what a plan decides.
        "threads": sorted({text(f"/proc/self/task/{task}/comm").strip() for task in os.listdir("/proc/self/task")}),
        "status": {
            key: value.strip() for key, value in status.items() if key in steady or key[:3] in ("Cap", "Cpu", "Mem")
        },
        "warnings.filters": [plain(repr(one)) for one in warnings.filters],
        "warnings.showwarning": plain(repr(warnings.showwarning)),
        "gc": [len(gc.callbacks), gc.get_threshold(), gc.isenabled(), gc.get_debug(), gc.get_freeze_count()],
        "atexit": atexit._ncallbacks(),
        "locale": locale.setlocale(locale.LC_ALL),
        "folder": os.getcwd(),
        "limits": {
            name: resource.getrlimit(getattr(resource, name)) for name in dir(resource) if name.startswith("RLIMIT")
        },
        "affinity": sorted(os.sched_getaffinity(0)),
        "scheduling": [os.sched_getscheduler(0), os.getpriority(os.PRIO_PROCESS, 0), text("/proc/self/timerslack_ns")],
        "kernel": [text("/proc/self/" + name) for name in ("comm", "oom_score_adj", "coredump_filter", "personality")],
        "process": [
            os.getpgid(0) == os.getppid(),
            os.getsid(0) == os.getppid(),
            os.getuid(),
            os.getgid(),
            os.getgroups(),
        ],
    }


def objects(name, module):
    """Each function and class that the module has by a name, and what is in the classes that are its own."""
    found = {f"module {name}": {key: plain(repr(getattr(module, key, None))) for key in ("__loader__", "__file__")}}
    # All of it for what users of a runtime name; of the rest, what shows that somebody has replaced it.
    tell = described if name in ("torch", "torch._C") or name.startswith("onnxruntime") else identity
    for key, value in sorted(vars(module).items(), key=lambda item: str(item[0])):
        if callable(value):
            found[f"{name}.{key}"] = tell(value)
            if isinstance(value, type) and value.__module__ == name:
                members = {
                    k: v for cls in reversed(value.__mro__) if cls.__module__ == name for k, v in vars(cls).items()
                }
                found.update({f"{name}.{key}.{k}": tell(v) for k, v in members.items() if callable(v)})
    return found


def identity(value):
    code = getattr(value, "__code__", None)
    return {"repr": told(lambda: repr(value)), "type": kind(value), "file": getattr(code, "co_filename", None)}


NAMES = ("__name__", "__qualname__", "__module__", "__doc__")


def described(value):
    import inspect
    import pickle

    return {
        **identity(value),
        "bases": [kind_of(base) for base in value.__mro__] if isinstance(value, type) else None,
        "pickle": told(lambda: pickle.loads(pickle.dumps(value)) is value),
        "signature": told(lambda: inspect.signature(value)),
        **{
            key[2:-2]: told(lambda key=key: getattr(value, key))
            for key in ("__name__", "__qualname__", "__module__", "__doc__")
        },
    }


def told(call):
    """What the call returns, or that it fails."""
    try:
        return plain(str(call()))
    except Exception:  # noqa: BLE001  # whatever the runtime's own objects raise
        return "none"


def kind_of(cls):
    return f"{cls.__module__}.{cls.__qualname__}"


def kind(value):
    return kind_of(type(value))


def plain(text):
    """The text without addresses."""
    import re

    return re.sub(r"0x[0-9a-f]+", "0x", text)


main(*sys.argv[1:])

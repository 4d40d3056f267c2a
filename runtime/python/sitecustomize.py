"""Starts Raddle's shim where PYTHONPATH names this folder, then runs the sitecustomize that this one hides.

The native library names it there before this process's main, and here the variable is made again what it was: children
get what the application gives them, and the library serves each of them. What was there before shows in how the library
writes the folder: `<folder>/` for no variable, `<folder>/:old`, `<folder>/.` for an empty one (runtime/native/door.c).

Any Python may meet this file, so its syntax is as old as it can be, and only Python 3.8 and later gets the shim.
"""

import os
import sys

_RUNNING = "raddle.sitecustomize"


def _start(folder):  # noqa: ANN001, ANN202  # Python 2 may read this
    written = sys.dont_write_bytecode
    sys.dont_write_bytecode = True
    try:
        activate = _activate()
        if activate is not None:
            # What it raises is the application's: a signal handler's, where a path file has set one.
            activate()
    finally:
        sys.dont_write_bytecode = written
        # Raddle's submodules are found through the package from now on; the application's path is its own.
        # A path file may have put in what is no text.
        sys.path[:] = [entry for entry in sys.path if not isinstance(entry, str) or entry.rstrip("/.") != folder]


def _restore(folder):  # noqa: ANN001, ANN202
    """Takes out of PYTHONPATH, here and in the environment of the process, what the native library has put there."""
    before = os.environ.get("PYTHONPATH", "").split(":")
    after = [entry for entry in before if entry not in (folder + "/", folder + "/.")]
    if len(after) == len(before):
        return
    if after or folder + "/." in before:
        os.environ["PYTHONPATH"] = ":".join(after)
    else:
        del os.environ["PYTHONPATH"]


def _activate():  # noqa: ANN202
    if sys.version_info >= (3, 8):  # noqa: UP036  # any Python may be in the image
        try:
            from raddle.shim import activate  # noqa: PLC0415
        except Exception:
            return None
        return activate
    return None


def _run_next(this):  # noqa: ANN001, ANN202
    sys.modules[_RUNNING] = this
    del sys.modules["sitecustomize"]
    try:
        import sitecustomize  # noqa: F401, PLC0415  # the next one on the path
    except ImportError:
        if getattr(sys.exc_info()[1], "name", "sitecustomize") != "sitecustomize":
            raise
    finally:
        sys.modules.setdefault("sitecustomize", this)
        del sys.modules[_RUNNING]


_FOLDER = __file__.rpartition("/")[0].rstrip("/.")
try:
    try:
        _restore(_FOLDER)
    finally:
        _start(_FOLDER)
finally:
    # The next one may be this very file under another name, by a link in the path.
    if _RUNNING not in sys.modules:
        _run_next(sys.modules["sitecustomize"])

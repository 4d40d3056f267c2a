"""A program as users have it: it says what it finds of itself, then makes a session where it is given onnxruntime.

reach_app.py HOW PACKAGES MODEL: PACKAGES is a folder that is put behind sys.path, "" for no session. HOW is "" or the
process that does the work, a child or the same process again. Any Python from 2.7 on runs it.
"""

import json
import os
import subprocess
import sys

METHODS = ("fork", "spawn", "forkserver")


def look(packages, model):
    site = sys.modules.get("site")
    said = {
        "active": any(type(finder).__name__ == "_Finder" for finder in sys.meta_path),
        "path": list(sys.path),
        "environ": dict(os.environ),
        "site": [getattr(site, name, None) for name in ("ENABLE_USER_SITE", "USER_BASE", "USER_SITE")],
        "argv": [sys.argv[0], len(sys.argv)],
        "program": [sys.executable, sys.prefix, repr(sys.flags), __name__],
        "package": package(),
        # What a sitecustomize and a usercustomize of the image's have said.
        "customized": getattr(sys, "reach", []),
        "count": None,
    }
    if packages:
        said["count"] = count(packages, model)
    return said


def package():
    """Where the image's own package was found, None where it has none."""
    try:
        import reach_package
    except ImportError:
        return None
    # Python 2 names the compiled file from the second start on.
    return os.path.dirname(reach_package.__file__)


def count(packages, model):
    """How many threads a session of default options runs."""
    sys.path.append(packages)
    # numpy's own threads would spin when they start.
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    import onnxruntime

    before = len(os.listdir("/proc/self/task"))
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    return len(os.listdir("/proc/self/task")) - before + (session is not None)


def work(queue, packages, model):
    queue.put(look(packages, model))


def by_multiprocessing(method, packages, model):
    import multiprocessing

    context = multiprocessing.get_context(method)
    queue = context.Queue()
    child = context.Process(target=work, args=(queue, packages, model))
    child.start()
    said = queue.get(timeout=60)
    child.join()
    return said


def main():
    how, packages, model = (sys.argv[1:] + [""] * 3)[:3]
    if how in METHODS:
        print(json.dumps(by_multiprocessing(how, packages, model)))
        return
    if not how:
        print(json.dumps(look(packages, model)))
        return
    again = [sys.executable, os.path.abspath(__file__), "", packages, model]
    if how == "execve":
        os.execve(again[0], again, os.environ)
    environment = {} if how == "empty-environment" else None
    sys.stdout.write(subprocess.check_output(again, env=environment).decode())


if __name__ == "__main__":
    main()

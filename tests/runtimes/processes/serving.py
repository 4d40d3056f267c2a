"""A small service as users write it: one session per process, made at the first request, or at import for PRELOAD=1.

`wsgi` is for gunicorn, `asgi` for uvicorn. Each answer says which process it was and how large its pool is.
"""

import json
import os
import threading

import numpy as np
import onnxruntime

_lock = threading.Lock()
_made = {}


def _tasks():
    return len(os.listdir("/proc/self/task"))


def session():
    with _lock:
        if "session" not in _made:
            before = _tasks()
            _made["session"] = onnxruntime.InferenceSession(os.environ["MODEL"])
            _made["pool"] = _tasks() - before + 1
            _made["by"] = os.getpid()
    return _made["session"]


def describe():
    output = session().run(None, {"input": np.ones((64, 256), np.float32)})[0]
    ours = {name: os.environ.get(name) for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")}
    said = {"pid": os.getpid(), "pool": _made["pool"], "madeBy": _made["by"], "finite": bool(np.isfinite(output).all())}
    return json.dumps({**said, **ours}).encode()


def wsgi(_environ, start_response):
    body = describe()
    start_response("200 OK", [("Content-Type", "application/json"), ("Content-Length", str(len(body)))])
    return [body]


async def asgi(scope, receive, send):
    if scope["type"] != "http":
        return
    body = describe()
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"application/json")]})
    await send({"type": "http.response.body", "body": body})


if os.environ.get("PRELOAD") == "1":
    session()

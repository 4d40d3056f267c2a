"""One JSON file per process in the folder that RADDLE_REPORT names: docs/reference/report.md describes it.

It is written when a session was created or something went wrong, and at exit; a burst of eight writes at once, then at
most one a second. A folder that is missing, full or read-only is left alone without a word: stderr has said the same.
"""

from __future__ import annotations

import atexit
import json
import os
import sys
import threading
import time
from binascii import crc32
from typing import Any

from raddle import __version__, env, errors, log
from raddle.cpus import cpuset
from raddle.process import current, totals
from raddle.report import record

VERSION = 1
MAX_FILES = 64
MAX_BYTES = 16384
MAX_BURST = 8
LAST_WRITE_WAITS_S = 1.0
# Of the parts that the runtime or the application has a say in.
MAX_COMPLAINTS = 16
MAX_LINE = 300
MAX_RUNTIME_BYTES = 2048
MAX_INPUTS = 16


class _Writer:
    """This process's file."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.started_at = time.time()
        self.name = f"{os.getpid()}-{int(self.started_at * 1000) & 0xFFFFFFFF:08x}.json"
        self.tokens = float(MAX_BURST)
        self.refilled = time.monotonic()
        self.exists = False

    def may_write(self) -> bool:
        """Takes one of the writes that are left."""
        now = time.monotonic()
        self.tokens = min(MAX_BURST, self.tokens + now - self.refilled)
        self.refilled = now
        if self.tokens < 1:
            return False
        self.tokens -= 1
        return True

    def write(self, *, at_exit: bool = False) -> None:
        """Writes the report. Raises OSError."""
        self._put(_fitted(_document(self.started_at, at_exit=at_exit), _own_sessions()))

    def _put(self, data: bytes) -> None:
        if not self.exists and len(os.listdir(self.folder)) >= MAX_FILES:
            return
        path = os.path.join(self.folder, self.name)
        unfinished = os.path.join(self.folder, f".{self.name}.tmp")
        # O_NONBLOCK: opening a FIFO that somebody put there would wait for its reader for ever.
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        file = os.open(unfinished, flags, 0o644)
        try:
            with os.fdopen(file, "wb") as whole:
                whole.write(data)
            os.rename(unfinished, path)
        except OSError:
            os.unlink(unfinished)
            raise
        if not self.exists and len(os.listdir(self.folder)) > MAX_FILES:
            # Others came at the same time; each takes its own back.
            os.unlink(path)
            return
        self.exists = True


class _State:
    """This process's writer, and whether something has changed since it wrote."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.writer: _Writer | None = None
        self.lock = threading.Lock()
        self.behind = False
        # multiprocessing.util.Finalize, in a process that has it.
        self.finalizer: Any = None


_state = _State()


def _own() -> _State:
    """A forked child has a report of its own, and no thread that would release its parent's lock.

    Asked for each time: a function that was registered for forks before this module was would come first.
    """
    global _state  # noqa: PLW0603  # one per process
    if _state.pid != os.getpid():
        _state = _State()
    return _state


def changed() -> None:
    """Writes this process's report if it may be written now. Never raises."""
    if not record.report_wanted():
        # The application has taken the variable out.
        return
    state = _own()
    state.behind = True
    try:
        # The holder of the lock writes for the others too; it may be this very thread, which said something meanwhile.
        while state.behind and state.lock.acquire(blocking=False):
            try:
                state.behind = False
                if state.writer is None:
                    state.writer = _Writer(os.environ[env.REPORT])
                    atexit.register(_last)
                _finalize(state)
                if not state.writer.may_write():
                    return
                state.writer.write()
            finally:
                state.lock.release()
    except Exception as error:
        # The folder is the platform's; the application must not notice.
        errors.let_through(error)


def _finalize(state: _State) -> None:
    """Has the last report written in a child of multiprocessing too: it leaves by os._exit, after its own finalizers.

    Done again at each write where need be: such a child forgets those that were registered while it was forked, and
    an application may import multiprocessing at any time.
    """
    util = sys.modules.get("multiprocessing.util")
    if util is not None and (state.finalizer is None or not state.finalizer.still_active()):
        state.finalizer = util.Finalize(None, _last, exitpriority=0)


def _last() -> None:
    state = _own()
    try:
        # Another thread may be writing; the last report is worth a wait.
        if state.writer is not None and state.lock.acquire(timeout=LAST_WRITE_WAITS_S):
            try:
                state.writer.write(at_exit=True)
            finally:
                state.lock.release()
    except Exception:
        pass


def _own_sessions() -> list[dict[str, Any]]:
    """This process's sessions: not those of the process that it was forked from."""
    return [session for session in record.sessions if session.get("pid", os.getpid()) == os.getpid()]


def _document(started_at: float, *, at_exit: bool) -> dict[str, Any]:
    """The report without its sessions."""
    plan = os.environ.get(env.PLAN, "")
    found: dict[str, Any] = {
        "v": VERSION,
        "raddle": __version__,
        "pid": os.getpid(),
        "language": "python",
        "command": _command(),
        "startedAt": round(started_at, 3),
        "writtenAt": round(time.time(), 3),
        "plan": plan[: env.MAX_PLAN_TEXT],
        "facts": _facts(),
        "runtimes": _runtimes(),
        "complaints": [line[:MAX_LINE] for line in log.complaints[:MAX_COMPLAINTS]],
    }
    if record.samples:
        found["samples"] = list(record.samples)
    if at_exit:
        found["atExit"] = {"at": round(time.time(), 3), **totals.read(_cgroup_path(), recent=False)}
    return found


def _command() -> str:
    """The program's name without its folder and arguments, which may hold secrets."""
    path = sys.argv[0] if getattr(sys, "argv", None) else ""
    folder, name = os.path.split(path)
    # python -m package
    return (os.path.basename(folder) if name == "__main__.py" else name)[:64]


def _facts() -> dict[str, Any]:
    facts = current.read_facts()
    found = {
        "cpus": None if facts.cpus is None else cpuset.format_list(facts.cpus)[:1024],
        "quotaCPUs": facts.quota_cpus,
        "workersSeen": facts.workers_seen,
    }
    return {name: value for name, value in found.items() if value is not None}


def _cgroup_path() -> str | None:
    from raddle.process import cgroup  # noqa: PLC0415  # once, at exit

    return cgroup.CPUController().read().quota_path


def _runtimes() -> dict[str, Any]:
    """Adapter's name -> what its runtime says it uses now, for each runtime that was imported."""
    found: dict[str, Any] = {}
    for name, adapter in list(record.adapters.items()):
        try:
            said = adapter.effective()
            found[name] = said if len(_dump(said)) <= MAX_RUNTIME_BYTES else {"truncated": True}
        except Exception as error:  # noqa: PERF203  # one adapter's failure is not the others'
            errors.let_through(error)
            found[name] = {"problem": repr(error)}
    return found


def _session(session: dict[str, Any]) -> dict[str, Any]:
    """A record as the report has it."""
    found = {
        name: session[name]
        for name in (
            "runtime",
            "version",
            "createdAt",
            "createMs",
            "providers",
            "effective",
            "because",
            "quotaCPUs",
            "workersSeen",
            "model",
            "tasks",
            "threads",
            "totals",
        )
        if session.get(name) is not None
    }
    if "plan" in session:
        found["plan"] = f"{crc32(session['plan'].encode('utf-8', 'replace')):08x}"
    if "inputs" in session:
        found["inputs"] = session["inputs"][:MAX_INPUTS]
    if "runs" in session:
        found["runs"] = session["runs"].document()
    return found


def _fitted(document: dict[str, Any], sessions: list[dict[str, Any]]) -> bytes:
    """The whole document in MAX_BYTES: the oldest sessions are dropped, and `truncated` counts them."""
    texts = [_dump(_session(session)) for session in sessions]
    if len(_dump(document)) > MAX_BYTES // 2:
        document.pop("samples", None)
    document["truncated"] = len(texts)
    room = MAX_BYTES - len(_dump(document)) - len(',"sessions":[]')
    kept: list[bytes] = []
    for text in reversed(texts):
        room -= len(text) + 1
        if room < 0:
            break
        kept.insert(0, text)
    document["truncated"] -= len(kept)
    if not document["truncated"]:
        del document["truncated"]
    return _dump(document)[:-1] + b',"sessions":[' + b",".join(kept) + b"]}"


def _dump(part: Any) -> bytes:
    return json.dumps(part, separators=(",", ":"), default=str).encode()


log.update_report = changed

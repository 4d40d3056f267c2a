"""The reports of a container's processes, side by side with what was planned: `python -m raddle report`.

`read_folder` reads the files, `compare` is pure, `table` and `document` are its two forms. Reports are written by
whatever runs in the container: every part is checked before it is used, and made printable.
"""

from __future__ import annotations

import json
import os
from typing import Any, Dict, Iterable, List, Mapping, NamedTuple, Optional, Tuple

from raddle import env
from raddle.keys import SWITCHES

# Twice what a shim writes.
MAX_BYTES = 32768
MAX_TEXT = 160
# A session's value -> the plan's key, where they are named otherwise.
_PLAN_KEYS = {
    "affinity": "aff",
    "spinUs": "spin_us",
    "globalIntra": "global_intra",
    "torchIntra": "omp",
    "torchInter": "torch_inter",
    **{report: key for key, _, report, _ in SWITCHES},
}
# Not a value of its own.
_DETAILS = ("affinityGroups",)
_HEADINGS = ("VALUE", "PLANNED", "EFFECTIVE", "WHY")


class Value(NamedTuple):
    """One value of a session: as text, None where one side has nothing to say; `why` is "" where nothing explains."""

    name: str
    planned: Optional[str]
    effective: Optional[str]
    why: str

    @property
    def unexplained(self) -> bool:
        """The process does otherwise than planned, and doesn't say why."""
        return self.planned not in (None, self.effective) and not self.why


class Sessions(NamedTuple):
    """`alike` sessions of one process, which came to the same."""

    runtime: str
    alike: int
    providers: Tuple[str, ...]
    values: Tuple[Value, ...]


class Process(NamedTuple):
    """What one report says. `ended`: the process ended by itself. `facts` are texts, `problem` is the plan's."""

    pid: int
    language: str
    command: str
    plan: str
    problem: str
    facts: Mapping[str, str]
    sessions: Tuple[Sessions, ...]
    omitted: int
    runtimes: Mapping[str, Mapping[str, str]]
    complaints: Tuple[str, ...]
    ended: bool

    @property
    def as_planned(self) -> bool:
        """Every value is as planned or explained, and nothing went wrong."""
        values = [value for group in self.sessions for value in group.values]
        return not (self.problem or self.complaints or any(value.unexplained for value in values))


def read_folder(folder: str) -> Tuple[List[Dict[str, Any]], Dict[str, str]]:
    """The reports in it by start, and what is wrong with each file that is none. Raises OSError for the folder."""
    found, unreadable = [], {}
    for name in sorted(name for name in os.listdir(folder) if name.endswith(".json") and name[0] != "."):
        report, problem = _read(os.path.join(folder, name))
        if problem:
            unreadable[_text(name)] = problem
        else:
            found.append(report)
    return sorted(found, key=lambda report: _number(report.get("startedAt"))), unreadable


def _read(path: str) -> Tuple[Dict[str, Any], str]:
    """The report, or what is wrong with it."""
    try:
        # Not through a link or a pipe that somebody left there.
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
            data = file.read(MAX_BYTES + 1) or b""
        if len(data) > MAX_BYTES:
            return {}, f"is longer than {MAX_BYTES} bytes"
        report = json.loads(data.decode("utf-8"))
    # A deep nesting raises RecursionError.
    except (OSError, ValueError, RecursionError) as error:
        return {}, _text(f"can't be read: {error}")
    if not isinstance(report, dict):
        return {}, "is no JSON object"
    if report.get("v") != 1:
        return {}, "is of version {}, this raddle reads 1".format(_text(report.get("v")))
    return report, ""


def compare(report: Mapping[str, Any]) -> Process:
    """What the report says, planned against effective. Never raises: a part of another type counts as absent."""
    plan = report.get("plan")
    plan = plan if isinstance(plan, str) else ""
    fields: Mapping[str, Any] = {}
    problem = ""
    try:
        fields = env.decode(plan) if plan else {}
    except env.PlanError as error:
        problem = _text(error)
    return Process(
        pid=int(_number(report.get("pid"))),
        language=_text(report.get("language", "")),
        command=_text(report.get("command", "")),
        plan=_text(plan, env.MAX_PLAN_TEXT),
        problem=problem,
        facts=_texts(report.get("facts")),
        sessions=_grouped(_items(report.get("sessions")), fields),
        omitted=int(_number(report.get("truncated"))),
        runtimes={_text(name): _texts(said) for name, said in _mapping(report.get("runtimes")).items()},
        complaints=tuple(_text(line, 300) for line in _items(report.get("complaints"))),
        ended="atExit" in report,
    )


def _grouped(sessions: Iterable[Any], fields: Mapping[str, Any]) -> Tuple[Sessions, ...]:
    counts: Dict[Sessions, int] = {}
    for session in map(_mapping, sessions):
        runtime = "{} {}".format(_text(session.get("runtime", "")), _text(session.get("version", ""))).strip()
        providers = tuple(_text(one) for one in _items(session.get("providers")))
        group = Sessions(runtime, 1, providers, tuple(_values(session, fields)))
        counts[group] = counts.get(group, 0) + 1
    return tuple(group._replace(alike=count) for group, count in counts.items())


def _values(session: Mapping[str, Any], fields: Mapping[str, Any]) -> Iterable[Value]:
    # A switch is 0 or 1 in the plan.
    said = _mapping(session.get("effective"))
    effective = _texts({name: int(one) if isinstance(one, bool) else one for name, one in said.items()})
    because = _texts(session.get("because"))
    for name in dict.fromkeys([*effective, *because]):
        if name not in _DETAILS:
            planned = fields.get(_PLAN_KEYS.get(name, name))
            # The plan says both: what spins for a time does so without end where the CPUs are the container's own.
            if name == "spin" and fields.get("excl_always") and effective.get(name) == "always":
                planned = "always"
            yield Value(name, None if planned is None else str(planned), effective.get(name), because.get(name, ""))


def table(processes: Iterable[Process]) -> str:
    """For people: a paragraph per process."""
    return "\n".join("\n".join(_lines(process)) + "\n" for process in processes)


def _lines(process: Process) -> Iterable[str]:
    facts = ", ".join(f"{name} {text}" for name, text in process.facts.items()) or "nothing known of its CPUs"
    state = "ended" if process.ended else "running, or ended by a signal"
    yield f"process {process.pid}: {process.command} ({process.language}), {state}; {facts}"
    yield f"  plan {process.plan or 'none'}"
    if process.problem:
        yield f"  ! the plan can't be used: {process.problem}"
    for group in process.sessions:
        yield f"  {group.alike} x {group.runtime} {' '.join(group.providers)}".rstrip()
        yield from _aligned(group.values)
    if process.omitted:
        yield f"  {process.omitted} older sessions are not in the report"
    for name, said in process.runtimes.items():
        yield "  {} says: {}".format(name, ", ".join(f"{key}={text}" for key, text in said.items()) or "nothing")
    for line in process.complaints:
        yield f"  ! {line}"


def _aligned(values: Iterable[Value]) -> Iterable[str]:
    rows = [_HEADINGS]
    for value in values:
        why = value.why or ("! no reason is given" if value.unexplained else "")
        rows.append((value.name, value.planned or "-", value.effective or "-", why))
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    for row in rows:
        yield "    " + "  ".join([*(text.ljust(width) for text, width in zip(row, widths)), row[3]]).rstrip()


def document(processes: Iterable[Process], unreadable: Mapping[str, str]) -> Dict[str, Any]:
    """For programs: the same as JSON values."""
    return {"processes": [_jsonable(process) for process in processes], "unreadable": dict(unreadable)}


def _jsonable(process: Process) -> Dict[str, Any]:
    sessions = []
    for group in process.sessions:
        values = [{**value._asdict(), "unexplained": value.unexplained} for value in group.values]
        sessions.append({**group._asdict(), "values": values})
    return {**process._asdict(), "sessions": sessions, "asPlanned": process.as_planned}


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _items(value: Any) -> List[Any]:
    return value if isinstance(value, list) else []


def _number(value: Any) -> float:
    # JSON has no bound: 1e999 is infinite.
    return value if isinstance(value, (int, float)) and abs(value) < 1e18 else 0


def _texts(value: Any) -> Dict[str, str]:
    return {_text(name): _text(one) for name, one in _mapping(value).items()}


def _text(value: Any, limit: int = MAX_TEXT) -> str:
    """One line of printable text, so that no report can steer a terminal."""
    text = value if isinstance(value, str) else str(value)
    return "".join(char if char.isprintable() else "?" for char in text[:limit])

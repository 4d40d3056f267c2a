"""What runs on a node, as its agent tells it: governed containers, their processes, and these threads by pool.

A report is of one window between two samples. Absent (None) means that the agent's level may not see it. Arguments of
processes are never in it: they hold secrets.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from raddle_operator.objects import reading
from raddle_operator.objects.reading import SpecError


class Level(StrEnum):
    """What an agent may look at, least first; each sees what those before it see."""

    KUBELET = "Kubelet"
    CGROUPS = "Cgroups"
    PROCESSES = "Processes"


class Cause(StrEnum):
    """Why what runs is not what was planned."""

    CODE_SETS_IT = "CodeSetsIt"
    NOT_REACHED = "NotReached"
    RESIZED = "Resized"
    CPUSET_CHANGED = "CpusetChanged"
    OTHER_THREADS = "OtherThreads"
    OVERSUBSCRIBED = "Oversubscribed"
    SHARED_CORES = "SharedCores"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that is not as planned: its cause, what was seen in a sentence, and what to do."""

    cause: Cause
    detail: str
    fix: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """Threads of one process that share a name (digits at its end are left out).

    `ran` is how many of them used CPU time in the window; `used_cpus` that time a second, `delay_cpus` how long they
    waited runnable for a CPU, a second; `migrations_hz` the changes of CPU that were seen, a lower bound;
    `involuntary_hz` how often they were preempted. `last_cpus`: CPU -> how many of those that ran were there last.
    """

    name: str
    threads: int
    ran: int
    used_cpus: float
    delay_cpus: float | None = None
    migrations_hz: float | None = None
    involuntary_hz: float | None = None
    last_cpus: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """What the shim says of one session or runtime in a process: the threads in effect and who has set them.

    `source` is "plan", "code" or "default"; `runs` how many runs were counted and `run_seconds` their histogram, upper
    bound in seconds -> runs not longer than that since the process began; `run_seconds_total` is the time of them all.
    """

    runtime: str
    threads: int | None = None
    source: str = ""
    runs: int | None = None
    run_seconds: Mapping[str, int] = field(default_factory=dict)
    run_seconds_total: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """One process of a container; `pid` is the container's own where it is known, else the node's.

    `runtimes` are the families whose libraries it has mapped, None where the level can't see them. `sessions` is None
    where no shim has said anything; `listened`: one that is in it would have been heard. `memory_numa_mib`: NUMA node
    -> MiB.
    """

    pid: int
    command: str
    threads: int
    runtimes: tuple[str, ...] | None = None
    pools: tuple[Pool, ...] = ()
    sessions: tuple[Session, ...] | None = None
    listened: bool = False
    memory_numa_mib: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    """One governed container.

    `policy` is the reference of the policy that it was planned by (kind/namespace/name as in its annotation).
    `limit_cpus` is the pod spec's now, `quota_cpus` and `cpuset` the cgroup's now (quota None: none, or not seen).
    `planned_threads` is the plan's intra-op count and `effective_threads` what is in effect: the shim's word, else the
    threads that ran. Shares are 0 to 1 of the window; `used_cpus` is CPU time a second. `process_count`: how many
    processes it has, of which `processes` may list fewer.
    """

    namespace: str
    pod: str
    uid: str
    name: str
    policy: str = ""
    limit_cpus: float | None = None
    quota_cpus: float | None = None
    cpuset: str | None = None
    used_cpus: float | None = None
    throttled_share: float | None = None
    throttled_cpus: float | None = None
    waiting_share: float | None = None
    planned_threads: int | None = None
    effective_threads: int | None = None
    process_count: int | None = None
    processes: tuple[Process, ...] = ()
    findings: tuple[Finding, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeReport:
    """A node's governed containers; `at` is the window's end (RFC 3339), `window_s` its length."""

    node: str
    level: Level
    at: str
    window_s: float
    containers: tuple[Container, ...] = ()


# --- as JSON ----------------------------------------------------------------------------------------------------------


def to_document(report: NodeReport) -> dict[str, Any]:
    """The report as the agent serves it: names in camel case, None, False and empty lists left out."""
    return {**as_document(report), "containers": [as_document(one) for one in report.containers]}


def as_document(part: NodeReport | Container | Finding) -> dict[str, Any]:
    """A report or a part of one, written in the same way."""
    result = _document(part)
    assert isinstance(result, dict)  # a dataclass makes one
    return result


def _document(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _document(one) for key, one in value.items()}
    if isinstance(value, tuple):
        return [_document(one) for one in value]
    if hasattr(value, "__dataclass_fields__"):
        named = {name: getattr(value, name) for name in value.__dataclass_fields__}
        # An empty `sessions` says that a shim spoke of none, which is not the same as silence.
        return {
            _camel(name): _document(one)
            for name, one in named.items()
            if one is not None
            and one is not False
            and (one or name in {"sessions", "runtimes"} or isinstance(one, (int, float)))
        }
    return str(value) if isinstance(value, StrEnum) else value


def _camel(name: str) -> str:
    first, *more = name.split("_")
    return first + "".join(word.capitalize() for word in more)


def from_document(document: Mapping[str, Any]) -> NodeReport:
    """The report that a document holds; unknown fields are ignored. Raises SpecError with the field's path."""
    document = reading.as_object(document, "report")
    return NodeReport(
        node=reading.text(document, "node", ""),
        level=_level(document),
        at=reading.text(document, "at", ""),
        window_s=_number(document, "windowS", "") or 0.0,
        containers=tuple(_container(one, path) for one, path in _objects(document, "containers", "")),
    )


def _level(document: Mapping[str, Any]) -> Level:
    said = reading.text(document, "level", "")
    try:
        return Level(said)
    except ValueError:
        raise SpecError("level", f"is {said!r}, must be one of {', '.join(Level)}") from None


def _container(one: Mapping[str, Any], path: str) -> Container:
    return Container(
        namespace=reading.text(one, "namespace", path),
        pod=reading.text(one, "pod", path),
        uid=reading.text(one, "uid", path),
        name=reading.text(one, "name", path),
        policy=reading.text(one, "policy", path),
        limit_cpus=_number(one, "limitCpus", path),
        quota_cpus=_number(one, "quotaCpus", path),
        cpuset=_text_or_none(one, "cpuset", path),
        used_cpus=_number(one, "usedCpus", path),
        throttled_share=_number(one, "throttledShare", path),
        throttled_cpus=_number(one, "throttledCpus", path),
        waiting_share=_number(one, "waitingShare", path),
        planned_threads=_count(one, "plannedThreads", path),
        effective_threads=_count(one, "effectiveThreads", path),
        process_count=_count(one, "processCount", path),
        processes=tuple(_process(item, at) for item, at in _objects(one, "processes", path)),
        findings=tuple(_finding(item, at) for item, at in _objects(one, "findings", path)),
    )


def _process(one: Mapping[str, Any], path: str) -> Process:
    sessions = _objects(one, "sessions", path) if "sessions" in one else None
    return Process(
        pid=_count(one, "pid", path) or 0,
        command=reading.text(one, "command", path),
        threads=_count(one, "threads", path) or 0,
        runtimes=reading.texts(one, "runtimes", path) if "runtimes" in one else None,
        pools=tuple(_pool(item, at) for item, at in _objects(one, "pools", path)),
        sessions=None if sessions is None else tuple(_session(item, at) for item, at in sessions),
        listened=one.get("listened") is True,
        memory_numa_mib=_numbered(one, "memoryNumaMib", path),
    )


def _pool(one: Mapping[str, Any], path: str) -> Pool:
    return Pool(
        name=reading.text(one, "name", path),
        threads=_count(one, "threads", path) or 0,
        ran=_count(one, "ran", path) or 0,
        used_cpus=_number(one, "usedCpus", path) or 0.0,
        delay_cpus=_number(one, "delayCpus", path),
        migrations_hz=_number(one, "migrationsHz", path),
        involuntary_hz=_number(one, "involuntaryHz", path),
        last_cpus=_numbered(one, "lastCpus", path),
    )


def _session(one: Mapping[str, Any], path: str) -> Session:
    bounds = reading.mapping(one, "runSeconds", path)
    return Session(
        runtime=reading.text(one, "runtime", path),
        threads=_count(one, "threads", path),
        source=reading.text(one, "source", path),
        runs=_count(one, "runs", path),
        run_seconds={bound: _count(bounds, bound, f"{path}.runSeconds") or 0 for bound in bounds},
        run_seconds_total=_number(one, "runSecondsTotal", path),
    )


def _finding(one: Mapping[str, Any], path: str) -> Finding:
    said = reading.text(one, "cause", path)
    try:
        cause = Cause(said)
    except ValueError:
        raise SpecError(f"{path}.cause", f"is {said!r}, must be one of {', '.join(Cause)}") from None
    return Finding(cause=cause, detail=reading.text(one, "detail", path), fix=reading.text(one, "fix", path))


def _objects(parent: Mapping[str, Any], key: str, path: str) -> list[tuple[Mapping[str, Any], str]]:
    at = f"{path}.{key}" if path else key
    return [
        (reading.as_object(one, f"{at}[{index}]"), f"{at}[{index}]")
        for index, one in enumerate(reading.sequence(parent, key, path))
    ]


def _number(parent: Mapping[str, Any], key: str, path: str) -> float | None:
    value = parent.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < float("inf"):
        raise SpecError(f"{path}.{key}" if path else key, f"is {value!r:.40}, must be a number from 0")
    return float(value)


def _count(parent: Mapping[str, Any], key: str, path: str) -> int | None:
    value = parent.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise SpecError(f"{path}.{key}" if path else key, f"is {value!r:.40}, must be a whole number from 0")
    return value


def _numbered(parent: Mapping[str, Any], key: str, path: str) -> Mapping[int, int]:
    result = reading.mapping(parent, key, path)
    at = f"{path}.{key}" if path else key
    if wrong := next((name for name in result if not name.isdecimal()), None):
        raise SpecError(at, f"has {wrong[:40]!r}, must have whole numbers for names")
    return {int(name): _count(result, name, at) or 0 for name in result}


def _text_or_none(parent: Mapping[str, Any], key: str, path: str) -> str | None:
    return reading.text(parent, key, path) if key in parent else None

"""What a user may ask for: the part of a policy's spec that decides a plan, as one value, and the table of its fields.

A field is one row of `Policy`. By `make generate` the CRDs, the keys of RADDLE_PLAN in Python and C, and the API
reference are made from the rows; so a switch of ONNX Runtime that sessions are simply told is a row and its test.
"""

from __future__ import annotations

from typing import Any, Dict, Iterable, List, Mapping, NamedTuple, Optional, Tuple

from raddle import env
from raddle.planning import entries, families, kinds, templates
from raddle.planning.kinds import Field, PolicyError, Switch

THREADS = (1, env.MAX_THREADS)
# The tuning of the pod's own workload.
AUTO = "Auto"
OBSERVED = "Observed"
WITHOUT_SHIM = "thread counts are set by environment variables, and spinning is not controlled"
_PLACEHOLDERS = "; ".join(f"{name}: {row.meaning}" for name, row in templates.PLACEHOLDERS.items())
_PROVIDERS = ". ".join(f"{name}: {entries.listed(options)}" for name, (_, options) in entries.PROVIDERS.items())


class Policy(NamedTuple):
    """The settings of one policy that decide a plan; absent means that Raddle decides.

    Counts are threads. reserve_cpus is in CPUs. run_time_us and request_rate are of
    one container: a run of the model on one thread in microseconds, and requests a second; None: not known.
    """

    objective: str = kinds.word(
        "objective",
        ("Latency", "Throughput"),
        "Latency",
        "Optimization goal. Latency: a fractional CPU quota is rounded up; without a quota, one NUMA node is used. "
        "Throughput: a fractional quota is rounded down; all cores may be used.",
    )
    budget_source: str = kinds.word(
        "budget.source",
        ("Auto", "Limit", "Request", "Node"),
        "Auto",
        "Where the CPU budget comes from. Auto: the CPU limit, capped at the CPUs that the container can use; "
        "without a limit, the physical cores of the node (of one NUMA node for Latency). Limit: only the limit; a "
        "container without one gets no values. Request: also capped at the CPU request. Node: the whole node, for "
        "pods that run alone on their node.",
    )
    workers: Optional[int] = kinds.count(
        "budget.workersPerContainer",
        THREADS,
        None,
        "Processes that share one container's CPUs. Absent: read from the arguments and variables of gunicorn, "
        "uvicorn and TorchServe (WEB_CONCURRENCY too), else 1; the shim corrects it to the number of processes that "
        "it observes.",
    )
    sessions: int = kinds.count(
        "budget.sessionsPerWorker", THREADS, 1, "Sessions (loaded models) that one process uses at the same time."
    )
    concurrent_runs: int = kinds.count(
        "budget.concurrentRuns",
        THREADS,
        1,
        "Callers that run inference at the same time in one process, such as the thread pool of an HTTP server. "
        "Absent: 1 is assumed, and the plan says so.",
        filled_in=False,
    )
    reserve_cpus: Optional[float] = kinds.cpus(
        "budget.reserve",
        1024,
        "CPUs of the limit to reserve, such as 200m: of a pod-level limit, for the pod's other containers; of the "
        "container's own limit, for its other processes. Threads are planned for the whole CPUs that remain, at "
        "least one. No effect on exclusive CPUs or without a limit. Absent: under a pod-level limit, the CPU "
        "requests of the other containers that have no limit of their own. 0: nothing is reserved.",
    )
    load_source: str = kinds.word(
        "load.source",
        ("Stated", OBSERVED),
        "Stated",
        "Where the load comes from. Stated, or absent: runTime and requestsPerSecond here. Observed: status.load "
        "when a pod is created, or no load while it is absent; running pods do not change. Requires observe Runs, "
        "and the chart values agent.watch and agent.datagrams.enabled.",
        filled_in=False,
    )
    run_time_us: Optional[int] = kinds.duration_us(
        "load.runTime",
        "Time that the model takes for one request on one thread, excluding waiting: from 1us to 1h, for example 33ms "
        "or 1.5s.",
    )
    request_rate: Optional[float] = kinds.rate(
        "load.requestsPerSecond",
        1000000,
        "Requests per second that one container serves when it is busy, for example 20 or 0.5. Divide a "
        "Deployment's rate by its replicas.",
    )
    intra_op: Optional[int] = kinds.count(
        "threads.intraOp",
        THREADS,
        None,
        "Threads that execute one operator, including the calling thread. Absent: Raddle plans it.",
    )
    min_intra_op: int = kinds.count("threads.minIntraOp", THREADS, 1, "Lower bound of the intraOp that Raddle plans.")
    max_intra_op: int = kinds.count(
        "threads.maxIntraOp", THREADS, 1024, "Upper bound of the intraOp that Raddle plans."
    )
    inter_op: Optional[int] = kinds.count(
        "threads.interOp",
        THREADS,
        None,
        "Threads that run independent operators in parallel. More than 1 requires executionMode Parallel. Absent: 1.",
    )
    execution_mode: str = kinds.word(
        "threads.executionMode",
        ("Auto", "Sequential", "Parallel"),
        "Auto",
        "Whether the operators of one run are executed one after the other. Auto: Sequential. Parallel adds the "
        "interOp "
        "pool to the intraOp pool.",
    )
    spinning: str = kinds.word(
        "threads.spinning",
        ("Auto", "Always", "Bounded", "Never"),
        "Auto",
        "What idle threads do between operators. Auto: Never below 1 CPU, with several streams, with a GPU, where "
        "more threads could run than there are CPUs, or where the CPUs are not known; Always for Latency on "
        "exclusive CPUs; derived from load if runTime is stated; else Bounded. Always: the runtime's default. "
        "Bounded: spin for 50 microseconds (OpenMP: 1000), then sleep. Never: sleep at once.",
    )
    numa: str = kinds.word(
        "placement.numa",
        ("Auto", "SingleNUMANode", "Any"),
        "Auto",
        "Whether a container is confined to one NUMA node. Auto: on exclusive CPUs if one node has enough of them, "
        "and for Latency without a CPU limit. SingleNUMANode: never more threads than one NUMA node has cores. Any: "
        "not confined.",
    )
    smt: str = kinds.word(
        "placement.smt",
        ("Auto", "OneThreadPerCore", "AllThreads"),
        "Auto",
        "How to count SMT (hyper-threading) siblings. Auto: same as OneThreadPerCore. OneThreadPerCore: one thread "
        "per physical core; siblings stay idle. AllThreads: every logical CPU counts.",
    )
    core_type: str = kinds.word(
        "placement.coreType",
        ("Auto", "Performance", "Efficient", "Any"),
        "Auto",
        "Which cores are counted on CPUs with several core types. Auto: Raddle chooses. Performance: the fast ones. "
        "Efficient: the slow ones. Any: all. No effect on CPUs with one core type.",
    )
    affinity: str = kinds.word(
        "placement.affinity",
        ("Auto", "PerCore", "Never"),
        "Auto",
        "Whether worker threads are pinned, only within CPUs that are exclusive to the container. Auto: to the "
        "container's share of one NUMA node. PerCore: each to one core. Never: not pinned.",
    )
    runtimes: Tuple[str, ...] = kinds.words(
        "runtimes",
        families.NAMES,
        families.DEFAULT,
        f"Runtime families that get values. Absent: {', '.join(families.DEFAULT)}, which only inference uses. The "
        f"others affect whole programs and must be named: {', '.join(families.NAMED)}. "
        "docs/reference/families.md lists the variables of each.",
        "A runtime family.",
    )
    variables: Tuple[Tuple[str, str], ...] = kinds.variables(
        "variables",
        "Additional environment variables that hold counts, name to value, for servers that no runtime family covers, "
        'for example LLAMA_ARG_THREADS: "{threads}". A value is a whole number or a placeholder: '
        f"{_PLACEHOLDERS}. They are set when a pod is created. A value in the pod spec is kept unless "
        "existingValues is Override; one that comes from a reference (valueFrom) is always kept.",
    )
    presets: str = kinds.word(
        "presets",
        ("Auto", "Never"),
        "Auto",
        "Whether to apply presets for known servers. Auto: a container whose image or command is listed by `raddle "
        "presets` gets the variables of that preset and, if runtimes is absent, its families; servers that bind "
        "their own threads are skipped. Never: all containers are treated alike.",
    )
    graph_optimization_level: Optional[str] = kinds.word(
        "onnxruntime.graphOptimizationLevel",
        ("Disable", "Basic", "Extended", "All"),
        None,
        "How far ONNX Runtime rewrites the graph when it loads a model. Absent keeps the application's setting.",
        in_plan=True,
    )
    global_thread_pool: bool = kinds.flag(
        "onnxruntime.globalThreadPool",
        False,
        "Whether all sessions of a process share one thread pool, sized for all of them together. In Python only "
        "where its threads may spin, because spinning can't be disabled there.",
    )
    shared_allocator: bool = kinds.flag(
        "onnxruntime.sharedAllocator",
        False,
        "Whether all sessions of a process share one arena of CPU memory.",
        in_plan=True,
    )
    cpu_mem_arena: Optional[bool] = kinds.flag(
        "onnxruntime.cpuMemArena",
        None,
        "Whether a session keeps freed CPU memory in an arena for the next run. false uses less memory and more "
        "time. Absent keeps the application's setting.",
        in_plan=True,
        switch=Switch("enable_cpu_mem_arena", (("DisableCpuMemArena", 19), ("EnableCpuMemArena", 18)), initial=True),
    )
    mem_pattern: Optional[bool] = kinds.flag(
        "onnxruntime.memPattern",
        None,
        "Whether a session plans its memory from the shapes of the first run. false uses less memory if shapes vary. "
        "Absent keeps the application's setting.",
        in_plan=True,
        switch=Switch("enable_mem_pattern", (("DisableMemPattern", 17), ("EnableMemPattern", 16)), initial=True),
    )
    deterministic_compute: Optional[bool] = kinds.flag(
        "onnxruntime.deterministicCompute",
        None,
        "Whether to use kernels that give the same result in every run, at the cost of speed; most of them are for "
        "GPUs. Absent keeps the application's setting.",
        in_plan=True,
        switch=Switch(
            "use_deterministic_compute",
            (("SetDeterministicCompute", 273),),
            initial=False,
            since=17,
        ),
    )
    arena_shrinkage: bool = kinds.flag(
        "onnxruntime.arenaShrinkage",
        False,
        "Whether to release the arena's unused memory after each run. This adds time to each run.",
        in_plan=True,
    )
    config_entries: Tuple[Tuple[str, str], ...] = kinds.config_entries(
        "onnxruntime.configEntries",
        "ONNX Runtime session configuration entries, key to value, both as text. Only keys that name no file or "
        f"library are allowed: {entries.listed(entries.CONFIG_ENTRIES)}. Absent sets none.",
    )
    provider_options: Tuple[Tuple[str, Tuple[Tuple[str, str], ...]], ...] = kinds.provider_options(
        "onnxruntime.providerOptions",
        "Options of execution providers, provider to option to value, all as text. Only options that name no file "
        f"or library are allowed. {_PROVIDERS}. They are added for providers that the application uses already. "
        "Absent sets none.",
    )
    acknowledge: Tuple[str, ...] = kinds.names(
        "onnxruntime.acknowledge",
        entries.ACKNOWLEDGED,
        "Keys of configEntries and providerOptions that change results or need the application's help; they are "
        "rejected unless listed here.",
        "An acknowledged key.",
    )
    allocator: str = kinds.word(
        "allocator",
        ("System", "Mimalloc", "Jemalloc", "Tcmalloc"),
        "System",
        "The memory allocator of the container's processes. System: the image's own. The others are preloaded if "
        "the image has them; otherwise the image's own is kept. Requires the shim.",
    )
    existing_values: str = kinds.word(
        "existingValues",
        ("Respect", "Override"),
        "Respect",
        "What happens if the pod spec or the code already sets a value. Respect: it is kept, and the plan reports it. "
        "Override: Raddle's value replaces it. 0 and -1 in code count as not set, and so does a count above the "
        "container's CPUs that is this machine's: all its CPUs or cores, half of them, or one less.",
    )
    tuning: Optional[str] = kinds.name(
        "tuning",
        AUTO,
        "The InferenceTuning in the pod's namespace whose result is used if image, limit and node class match those "
        "it was measured with: the winner's values then replace those of this policy. Auto: the newest matching one "
        "of the pod's own workload. If none matches, and before the pod is bound, the plan is the same as without a "
        "tuning. Requires the chart value tuning.enabled.",
    )
    observe: str = kinds.word(
        "observe",
        ("Sessions", "Runs", "None"),
        "Sessions",
        "What the shim records about sessions in Python, for the node's agent. Sessions: the settings of each "
        "session. Runs: also a histogram of run times (at most one microsecond per run); a program that has "
        "prometheus_client exports both as metrics. None: nothing.",
    )
    shim: str = kinds.word(
        "shim",
        ("Auto", "None"),
        "Auto",
        "Whether processes load the shim. Auto: every process that glibc's dynamic loader starts, through a file "
        "mounted over /etc/ld.so.preload from an immutable ConfigMap in the pod's namespace. None: no process. "
        "Without the "
        f"shim {WITHOUT_SHIM}.",
    )


# Policy's field -> its row.
FIELDS: Dict[str, Field] = Policy._field_defaults
# The class has a row where a Policy without that field has the row's initial value.
Policy.__new__.__defaults__ = tuple(field.initial for field in FIELDS.values())
_STEPS = [(name, field, field.path.split(".")) for name, field in FIELDS.items()]


def parse(spec: Mapping[str, Any]) -> Policy:
    """The Policy that a spec asks for; fields that decide no number are ignored.

    Raises PolicyError for a value outside its bounds and for combinations that can't work
    (the API server refuses the same by CEL; `raddle plan` on a file has no API server).
    """
    policy = Policy(**_read(spec))
    _check_combinations(policy)
    if policy.load_source == OBSERVED:
        _check_observed(policy, spec)
    if len(policy.variables) > templates.MAX_VARIABLES:
        raise PolicyError("variables", f"{len(policy.variables)} of them", f"at most {templates.MAX_VARIABLES}")
    return policy


def overlaid(policy: Policy, spec: Mapping[str, Any]) -> Policy:
    """The policy with what another spec says in place of its own; entries and options are replaced key by key.

    Raises PolicyError for what the spec can't say, alone or beside the rest of the policy.
    """
    result = _read(spec)
    if "config_entries" in result:
        result["config_entries"] = _with_pairs(policy.config_entries, result["config_entries"])
    if "variables" in result:
        result["variables"] = _with_pairs(policy.variables, result["variables"])
    if "provider_options" in result:
        before = dict(policy.provider_options)
        options = {name: _with_pairs(before.get(name, ()), pairs) for name, pairs in result["provider_options"]}
        result["provider_options"] = _with_pairs(policy.provider_options, options.items())
    made = policy._replace(**result)
    _check_combinations(made)
    return made


def _with_pairs(before: Iterable[Tuple[str, Any]], after: Iterable[Tuple[str, Any]]) -> Tuple[Tuple[str, Any], ...]:
    return tuple(sorted({**dict(before), **dict(after)}.items()))


def _read(spec: Mapping[str, Any]) -> Dict[str, Any]:
    """The fields of a Policy that the spec sets. Raises PolicyError for a value outside its bounds."""
    result: Dict[str, Any] = {}
    for name, field, steps in _STEPS:
        value: Any = spec
        walked: List[str] = []
        for step in steps:
            if not isinstance(value, Mapping):
                raise PolicyError(".".join(walked), value, "a mapping")
            walked.append(step)
            value = value.get(step)
            if value is None:
                break
        if value is not None:
            result[name] = field.read(field.path, value, field.allowed)
    return result


def _check_combinations(policy: Policy) -> None:
    low, high = policy.min_intra_op, policy.max_intra_op
    if low > high:
        raise PolicyError("threads.minIntraOp", low, f"at most threads.maxIntraOp ({high})")
    if policy.intra_op is not None and not low <= policy.intra_op <= high:
        raise PolicyError("threads.intraOp", policy.intra_op, f"from {low} to {high}")
    if policy.numa == "SingleNUMANode" and policy.budget_source == "Node":
        raise PolicyError("placement.numa", policy.numa, "Auto or Any when budget.source is Node")
    if policy.execution_mode != "Parallel" and policy.inter_op is not None and policy.inter_op > 1:
        raise PolicyError("threads.interOp", policy.inter_op, "1, or set threads.executionMode: Parallel")
    _check_variables(policy)
    for path, key in _to_acknowledge(policy):
        if key not in policy.acknowledge:
            raise PolicyError(
                path, key, "listed in onnxruntime.acknowledge: it changes results or needs the application's help"
            )


def _check_observed(policy: Policy, spec: Mapping[str, Any]) -> None:
    """Of a spec only: a policy that is planned with has what was observed in the place of what is stated."""
    for name in ("runTime", "requestsPerSecond"):
        if (value := spec["load"].get(name)) is not None:
            raise PolicyError(f"load.{name}", value, "absent when load.source is Observed")
    if policy.observe != "Runs":
        raise PolicyError("load.source", OBSERVED, "Stated, or set observe: Runs")


def _check_variables(policy: Policy) -> None:
    for name, template in policy.variables:
        if name in families.VARIABLES:
            family = ", ".join(
                one.name for one in families.FAMILIES if any(name == each.name for each in one.variables)
            )
            raise PolicyError("variables", name, f"set through runtimes, because a family has it: {family}")
        if name in templates.OF_PROCESSES and (policy.workers is None or template != "{workers}"):
            raise PolicyError(
                f"variables.{name}",
                template,
                '"{workers}", with budget.workersPerContainer: it is a number of processes',
            )


def _to_acknowledge(policy: Policy) -> List[Tuple[str, str]]:
    """Path and key of each entry and option that only counts where the policy acknowledges it."""
    result = [("onnxruntime.configEntries", key) for key, _ in policy.config_entries]
    for provider, options in policy.provider_options:
        result += [("onnxruntime.providerOptions." + provider, key) for key, _ in options]
    return [(path, key) for path, key in result if key in entries.ACKNOWLEDGED]


def to_settings(policy: Policy) -> Dict[str, Any]:
    """The fields that differ from the defaults, as JSON values: the short form that annotations carry."""
    defaults = Policy()._asdict()
    result = {name: value for name, value in policy._asdict().items() if value != defaults[name]}
    for name, value in result.items():
        if name == "run_time_us":
            result[name] = f"{value}us"
        elif name == "reserve_cpus":
            result[name] = f"{round(value * 1000)}m"
        elif name in ("config_entries", "variables"):
            result[name] = dict(value)
        elif name == "provider_options":
            result[name] = {provider: dict(options) for provider, options in value}
        elif isinstance(value, tuple):
            result[name] = list(value)
    return result


def from_settings(settings: Mapping[str, Any]) -> Policy:
    """The reverse of `to_settings`. The mapping is untrusted: unknown names are ignored, PolicyError for bad values."""
    result = {}
    for name, value in settings.items():
        field = FIELDS.get(name)
        if field is not None and value is not None:
            result[name] = field.read(field.path, value, field.allowed)
    policy = Policy(**result)
    _check_combinations(policy)
    return policy

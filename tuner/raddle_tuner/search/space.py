"""What is searched: the settings that apply to one model on one kind of node, and why the others don't.

What two candidates come to is asked of the planner, so that settings which the plan would make anyway, or which change
nothing (spinning of one thread), are not measured twice.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from raddle.cpus.topology import Machine, threads_per_core
from raddle.planning import entries, policy
from raddle.planning.planner import BOUNDED_SPIN_US, Budget, Plan, plan
from raddle_operator.results.candidate import Candidate, Value

THREADS: Final = "threads.intraOp"
# Of OpenMP's threads it is OMP_WAIT_POLICY.
SPINNING: Final = "threads.spinning"
INSTANCES: Final = "program.instances"
SPIN_US: Final = "session.intra_op.spin_duration_us"
_SPIN_ENTRY: Final = f"onnxruntime.configEntries.{SPIN_US}"
_SPINS_US: Final = (BOUNDED_SPIN_US, 200, 1000)
# More instances than this share no CPU's caches any more and multiply the memory.
_MOST_INSTANCES: Final = 16
_CUDA: Final = "CUDAExecutionProvider"
_OPENVINO: Final = "OpenVINOExecutionProvider"
_XNNPACK: Final = "XnnpackExecutionProvider"
# Fields of a policy that the plan is the answer to.
_PLANNED: Final = (
    "intra_op",
    "inter_op",
    "execution_mode",
    "spinning",
    "numa",
    "smt",
    "affinity",
    "workers",
)


class SpaceError(ValueError):
    """A user's `space` that can't be searched; the message names the setting, what was there and what is allowed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One program on one kind of node: what the planner is told, and what is known of the program besides.

    `spec` is the policy's spec as it stands. `onnxruntime` is the version, None without it. `allocators` are those that
    the image has, as a policy names them. `max_inter_op` is how many operators can run beside each other (1: none).
    `can` are the settings that the program takes itself: `instances`, `ioBinding`.
    """

    machine: Machine | None = None
    budget: Budget = field(default_factory=Budget)
    spec: Mapping[str, Any] = field(default_factory=dict)
    onnxruntime: tuple[int, ...] | None = None
    providers: tuple[str, ...] = ("CPUExecutionProvider",)
    allocators: tuple[str, ...] = ()
    max_inter_op: int = 1
    can: tuple[str, ...] = ()

    def planned(self, candidate: Candidate) -> tuple[policy.Policy, Plan]:
        """What the candidate asks for, and what the plan makes of it. Raises PolicyError for what can't be asked."""
        wanted = policy.parse(candidate.over(self.spec))
        return wanted, plan(self.machine, self.budget, wanted)

    def key(self, candidate: Candidate) -> Hashable:
        """Equal for candidates that come to the same. Raises PolicyError as `planned`."""
        wanted, made = self.planned(candidate)
        result = dict(wanted.config_entries)
        spins = made.exclusive_spinning or made.spinning
        duration = result.pop(SPIN_US, str(made.spin_duration_us))
        if (made.intra_op, made.inter_op or 1) == (1, 1):
            spins = "never"
        default = policy.Policy()
        rest = wanted._replace(
            config_entries=tuple(sorted(result.items())), **{name: getattr(default, name) for name in _PLANNED}
        )
        counts = (made.intra_op, made.inter_op, made.execution_mode, made.global_intra_op)
        # ONNX Runtime's pool is its own; what else the process has of OpenMP does not serve the model.
        teams = () if self.onnxruntime else (made.omp, made.blas, made.other_blas, made.torch_inter_op)
        # Of no other runtime threads are pinned.
        places = (made.affinity, made.cpus, made.affinity_groups) if self.onnxruntime else ()
        spinning = (spins, duration if spins == "bounded" else "")
        return counts, teams, places, spinning, rest, tuple(sorted(candidate.program().items()))

    @property
    def threads(self) -> int:
        """Threads that the plan has CPUs for, 1 where they are not known."""
        return max(1, self.planned(Candidate())[1].cap or 1)

    @property
    def cores(self) -> int:
        """Physical cores of the machine, 0 where it is not known."""
        return len(self.machine.cores) if self.machine else 0

    @property
    def exclusive(self) -> bool:
        """Whether the container has CPUs for itself."""
        return self.planned(Candidate())[1].exclusive_cpus > 0


@dataclass(frozen=True, slots=True)
class Axis:
    """One thing that is varied: its values as people name them, and the settings that each stands for.

    `open`: values between these may be tried as well.
    """

    name: str
    choices: tuple[tuple[Value, Candidate], ...]
    open: bool = False

    def applied(self, to: Candidate, choice: Candidate) -> Candidate:
        """The candidate with this choice in place of what it says on the axis."""
        return Candidate.of({**dict(self.without(to).settings), **dict(choice.settings)})

    def without(self, candidate: Candidate) -> Candidate:
        """The candidate that leaves all on the axis to the plan."""
        paths = {path for _, choice in self.choices for path, _ in choice.settings}
        return Candidate(tuple(pair for pair in candidate.settings if pair[0] not in paths))


@dataclass(frozen=True, slots=True, kw_only=True)
class Space:
    """The axes that apply, threads first; `left_out` says for each of the others why it does not."""

    case: Case
    axes: tuple[Axis, ...]
    left_out: tuple[tuple[str, str], ...]

    def axis(self, name: str) -> Axis | None:
        """The axis of this name, None where it does not apply."""
        return next((axis for axis in self.axes if axis.name == name), None)

    @property
    def size(self) -> int:
        """How many candidates there would be to measure, were each value combined with each; the plan's own one too."""
        result = 1
        for axis in self.axes:
            result *= len(axis.choices) + 1
        return result


def space(case: Case, narrowed: Mapping[str, Sequence[Value]] | None = None) -> Space:
    """The axes that apply. `narrowed` is the user's: axis -> the values that are left, all where it isn't named.

    Raises SpaceError for an axis or a value that there is not, PolicyError for a spec that can't be planned.
    """
    narrowed = narrowed or {}
    for name in narrowed:
        if name not in AXES:
            raise SpaceError(f"space.{name}: no such setting; known are {', '.join(AXES)}")
    axes, left_out = [], []
    for name, values_of in AXES.items():
        result = values_of(case)
        if isinstance(result, str):
            left_out.append((name, result))
            continue
        choices = _narrowed(name, result, narrowed[name]) if name in narrowed else result
        if choices:
            made = tuple((value, Candidate.of(settings)) for value, settings in choices.items())
            axes.append(Axis(name, made, open=name == THREADS and name not in narrowed))
        else:
            left_out.append((name, "excluded from the space"))
    return Space(case=case, axes=tuple(axes), left_out=tuple(left_out))


# Value -> settings.
Choices = dict[Value, dict[str, Value]]


def _narrowed(name: str, result: Choices, wanted: Sequence[Value]) -> Choices:
    if name == THREADS:
        least, most = policy.THREADS
        for value in wanted:
            if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
                raise SpaceError(f"space.{name}: {value!r} is not a count from {least} to {most}")
        return {value: {THREADS: value} for value in wanted}
    # As people write them: options of providers are texts, though they look like numbers.
    left, there = {str(value) for value in wanted}, {str(value) for value in result}
    for value in wanted:
        if str(value) not in there:
            raise SpaceError(f"space.{name}: {value!r} is none of {', '.join(map(str, result))}")
    return {value: settings for value, settings in result.items() if str(value) in left}


# --- the axes -------------------------------------------------------------------------------------------------------


def thread_counts(fitting: int, cores: int) -> list[int]:
    """1, 2, 4 ... with what fits the limit, the cores and twice each among them; `cores` 0: not known.

    A limit is CPU time and not parallelism, and with SMT, or where threads sleep between operators, even more than the
    cores may be best: twice the larger one ends the list.
    """
    most = 2 * max(fitting, cores)
    counts = {fitting, 2 * fitting, cores or 1, most, *(2**power for power in range(most.bit_length()))}
    return sorted(count for count in counts if count <= policy.THREADS[1])


def _threads(case: Case) -> Choices | str:
    return {count: {THREADS: count} for count in thread_counts(case.threads, case.cores)}


def _spinning(case: Case) -> Choices | str:
    choices: Choices = {"Never": {SPINNING: "Never"}}
    if case.onnxruntime and case.onnxruntime >= entries.CONFIG_ENTRIES[SPIN_US].since:
        for spin_us in _SPINS_US:
            exact: dict[str, Value] = {} if spin_us == BOUNDED_SPIN_US else {_SPIN_ENTRY: spin_us}
            choices[spin_us] = {SPINNING: "Bounded", **exact}
    return {**choices, "Always": {SPINNING: "Always"}}


def _inter_op(case: Case) -> Choices | str:
    if case.max_inter_op < 2:
        return "no operators of the model are known to run in parallel"
    counts = sorted({2**power for power in range(1, 4) if 2**power <= case.max_inter_op} | {min(case.max_inter_op, 8)})
    return {count: {"threads.executionMode": "Parallel", "threads.interOp": count} for count in counts}


def _instances(case: Case) -> Choices | str:
    if "instances" not in case.can:
        return "the program decides how many sessions it has"
    if case.threads < 2:
        return "CPUs for one thread only"
    most = min(case.threads, _MOST_INSTANCES)
    counts = sorted({2**power for power in range(1, most.bit_length()) if 2**power <= most} | {most})
    # As many threads in all as there are CPUs for, or twice that: the ladder's last steps.
    each = [(count, times * case.threads // count) for count in counts for times in (1, 2)]
    return {
        f"{count} x {threads}": {INSTANCES: count, "budget.workersPerContainer": count, THREADS: threads}
        for count, threads in each
    }


def _words(path: str, words: Sequence[Value], why_not: Callable[[Case], str]) -> Callable[[Case], Choices | str]:
    """An axis of one setting; `why_not` says why it does not apply, "" where it does."""

    def values_of(case: Case) -> Choices | str:
        return why_not(case) or {word: {path: word} for word in words}

    return values_of


def _not_exclusive(case: Case) -> str:
    return "" if case.exclusive else "the CPUs are shared with others"


def _no_smt(case: Case) -> str:
    no_smt = case.machine is None or threads_per_core(case.machine) < 2
    return _not_exclusive(case) or ("no SMT, or it is not known" if no_smt else "")


def _one_numa_node(case: Case) -> str:
    nodes = [node for node in case.machine.numa_nodes if node.cpus] if case.machine else []
    return _not_exclusive(case) or ("one NUMA node, or not known" if len(nodes) < 2 else "")


def _no_onnxruntime(case: Case) -> str:
    return "" if case.onnxruntime else "no ONNX Runtime"


def _none_pinned(case: Case) -> str:
    return _not_exclusive(case) or ("" if case.onnxruntime else "only threads of ONNX Runtime are pinned")


def _one_session(case: Case) -> str:
    one = int((case.spec.get("budget") or {}).get("sessionsPerWorker", 1)) < 2
    return _no_onnxruntime(case) or ("one session in a process" if one else "")


def _no_gpu(case: Case) -> str:
    return "" if _CUDA in case.providers else "no GPU: the session has no CUDA provider"


def _no_graphs(case: Case) -> str:
    named = "enable_cuda_graph" in (case.spec.get("onnxruntime") or {}).get("acknowledge", ())
    return _no_gpu(case) or ("" if named else "changes what the program must do: name it in onnxruntime.acknowledge")


def _allocators(case: Case) -> Choices | str:
    return {name: {"allocator": name} for name in case.allocators} or "the image has no other allocator"


def _cannot(setting: str) -> Callable[[Case], str]:
    return lambda case: "" if setting in case.can else "the program does not support it"


def _option(provider: str, option: str) -> str:
    return f"onnxruntime.providerOptions.{provider}.{option}"


def _no_provider(provider: str) -> Callable[[Case], str]:
    return lambda case: "" if provider in case.providers else f"the session has no {provider}"


def _counts(provider: str, option: str) -> Callable[[Case], Choices | str]:
    """An execution provider's own pool: half of the CPUs, all, twice."""

    def values_of(case: Case) -> Choices | str:
        if why_not := _no_provider(provider)(case):
            return why_not
        counts = sorted({max(1, case.threads // 2), case.threads, 2 * case.threads})
        return {count: {_option(provider, option): str(count)} for count in counts}

    return values_of


def _cuda(option: str, why_not: Callable[[Case], str] = _no_gpu) -> tuple[str, Callable[[Case], Choices | str]]:
    path = _option(_CUDA, option)
    return path, _words(path, ("0", "1"), why_not)


# Axis -> its choices where it applies, else why not. A setting's own default is among the plan's or the program's own
# values, and measured as such.
AXES: Final[dict[str, Callable[[Case], Choices | str]]] = {
    THREADS: _threads,
    SPINNING: _spinning,
    INSTANCES: _instances,
    "threads.interOp": _inter_op,
    "placement.smt": _words("placement.smt", ("OneThreadPerCore", "AllThreads"), _no_smt),
    "placement.numa": _words("placement.numa", ("SingleNUMANode", "Any"), _one_numa_node),
    "placement.affinity": _words("placement.affinity", ("PerCore", "Never"), _none_pinned),
    "onnxruntime.graphOptimizationLevel": _words(
        "onnxruntime.graphOptimizationLevel", ("Basic", "Extended", "All"), _no_onnxruntime
    ),
    "onnxruntime.globalThreadPool": _words("onnxruntime.globalThreadPool", (True,), _one_session),
    "onnxruntime.sharedAllocator": _words("onnxruntime.sharedAllocator", (True,), _one_session),
    "onnxruntime.cpuMemArena": _words("onnxruntime.cpuMemArena", (False,), _no_onnxruntime),
    "onnxruntime.memPattern": _words("onnxruntime.memPattern", (False,), _no_onnxruntime),
    "allocator": _allocators,
    "program.ioBinding": _words("program.ioBinding", (True,), _cannot("ioBinding")),
    **dict(
        [
            _cuda("cudnn_conv_use_max_workspace"),
            _cuda("cudnn_conv1d_pad_to_nc1d"),
            _cuda("enable_cuda_graph", _no_graphs),
        ]
    ),
    _option(_OPENVINO, "num_of_threads"): _counts(_OPENVINO, "num_of_threads"),
    _option(_OPENVINO, "num_streams"): _words(
        _option(_OPENVINO, "num_streams"), ("1", "2", "4"), _no_provider(_OPENVINO)
    ),
    _option(_XNNPACK, "intra_op_num_threads"): _counts(_XNNPACK, "intra_op_num_threads"),
}

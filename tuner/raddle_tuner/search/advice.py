"""What to do with a result: one sentence, the policy patch, and the lines of code for what no policy can set."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from textwrap import wrap
from typing import Final

import yaml

from raddle_operator.results.candidate import PROGRAM, Candidate
from raddle_operator.results.phrases import bound_not_met, change, gained, improved_percent, signed
from raddle_operator.results.verdict import FIGURES, Interval, Verdict
from raddle_tuner.search.document import TuningResult
from raddle_tuner.search.result import Result

_WIDTH: Final = 100
_PATCH: Final = "kubectl patch inferencethreading NAME --type merge --patch-file FILE"


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """Something for the program itself: what to do, and how in each language or server."""

    title: str
    code: tuple[tuple[str, str], ...]


def answer(result: Result) -> str:
    """What came out, in a sentence or two."""
    return f"{_answer(result)} {noise(result)}".rstrip()


def noise(result: Result) -> str:
    """How far two equal settings may lie apart, in a sentence; "" where it ended before that was measured."""
    said = f"Two measurements of the same settings differ by up to {result.noise_percent:.1f} % here."
    return said if result.noise_percent else ""


def _answer(result: Result) -> str:
    match result.verdict:
        case Verdict.BETTER if (
            result.gain is not None and result.bound is not None and not improved_percent(result.figure, result.gain)
        ):
            results = f"{FIGURES[result.figure].title} {signed(result.gain)}"
            kept = f"it keeps p99 within {result.bound.bound_ms:g} ms, which the plan did not"
            return f"Use {result.winner.title}: {kept}; {results} against the plan."
        case Verdict.BETTER if result.gain is not None:
            return f"Use {result.winner.title}: {change(result.figure, result.gain)} than with the plan."
        case Verdict.INCONCLUSIVE if result.gain is not None:
            best = f"whether {result.winner.title} is better than the plan ({signed(result.gain)})"
            return f"Not decided: the budget ran out before it was certain {best}."
        case Verdict.INCONCLUSIVE:
            return "Not decided, so keep the plan: nothing was certain within the budget."
        case Verdict.BOUND_NOT_MET:
            measured = sum(bool(trial.blocks) for trial in result.trials)
            return bound_not_met(result.objective, result.bound, result.winner, result.capacity, measured)
    return "Keep the plan: no setting is significantly better."


def policy_patch(tuning: TuningResult) -> str:
    """The winner as a merge patch for a policy, YAML with the reasons as comments.

    "" unless it is better than the plan and a policy can make it so.
    """
    result = tuning.result
    spec = result.winner.spec()
    if result.verdict is not Verdict.BETTER or result.gain is None or not spec:
        return ""
    lines = [part for line in _reasons(tuning, result.gain) for part in wrap(_plain(line), _WIDTH)]
    head = "".join(f"# {line}\n" for line in lines)
    return f"{head}# {_PATCH}\n{yaml.safe_dump({'spec': spec}, sort_keys=False, allow_unicode=True)}"


def _plain(text: str) -> str:
    """The text without ends of lines, which would end a comment, and what YAML allows nowhere."""
    return "".join(char if char.isprintable() else " " for char in text)


def _reasons(tuning: TuningResult, gain: Interval) -> Iterator[str]:
    key, result = tuning.key, tuning.result
    runtime = f" with {key.runtime} {key.runtime_version}".rstrip() if key.runtime else ""
    yield f"{tuning.name}{runtime}, {key.limit}, {key.node_class.title}; tuned {tuning.finished}"
    if result.bound is not None and not improved_percent(result.figure, gain):
        yield gained(result.figure, gain, result.bound)
    yield f"{FIGURES[result.figure].title} against the plan: {signed(gain)}, noise {result.noise_percent:.1f} %"
    if todo := for_the_program(result.winner):
        titles = "; ".join(one.title for one in todo)
        yield f"requires changes to the program: {titles}; it was not measured without them"
    for path, part in result.contributions:
        if not path.startswith(PROGRAM + "."):
            yield f"{path}: {signed(part)}"


def for_the_program(candidate: Candidate) -> tuple[Advice, ...]:
    """What the program has to do itself, since no policy can: () where the candidate asks for nothing."""
    settings = candidate.program()
    result = []
    if settings.get("ioBinding") is True:
        result.append(
            Advice(title="Bind inputs and outputs once instead of passing them to each run", code=_IO_BINDING)
        )
    instances = settings.get("instances")
    if isinstance(instances, int) and instances > 1:
        code = tuple((where, text.replace("COUNT", str(instances))) for where, text in _INSTANCES)
        result.append(Advice(title=f"Run {instances} processes, each with a session of its own", code=code))
    return tuple(result)


# https://onnxruntime.ai/docs/performance/tune-performance/iobinding.html; in onnxruntime-node the tensors among the
# fetches are written to (js/node/src/inference_session_wrap.cc).
_IO_BINDING: Final = (
    (
        "Python",
        """\
binding = session.io_binding()
for output in session.get_outputs():
    binding.bind_output(output.name)
# for each request
for name, array in inputs.items():
    binding.bind_cpu_input(name, array)
session.run_with_iobinding(binding)
results = binding.copy_outputs_to_cpu()
""",
    ),
    (
        "C++",
        """\
Ort::IoBinding binding{session};
binding.BindOutput("output", Ort::MemoryInfo::CreateCpu(OrtArenaAllocator, OrtMemTypeDefault));
// for each request
binding.BindInput("input", tensor);
session.Run(Ort::RunOptions{}, binding);
std::vector<Ort::Value> results = binding.GetOutputValues();
""",
    ),
    (
        "Node.js",
        """\
const output = new ort.Tensor('float32', new Float32Array(size), shape);
// for each request: it is written into the same memory
await session.run(feeds, { output });
""",
    ),
)
_INSTANCES: Final = (
    ("gunicorn", "gunicorn --workers COUNT app:app\n"),
    ("uvicorn", "uvicorn --workers COUNT app:app\n"),
    ("Triton, config.pbtxt", "instance_group [ { kind: KIND_CPU count: COUNT } ]\n"),
    ("Node.js", "for (let i = 0; i < COUNT; i++) cluster.fork();\n"),
)

"""Raddle's tuning and its peers on this machine: `python -m tuning live`, from benchmarks/.

Each way chooses settings for the same model under the same CPU limit, as its users run it. Then all choices are
measured against Raddle's plan in fresh blocks, in turns, under the same quota and with the same arrivals.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

import report
from raddle_operator.results import phrases
from raddle_operator.results.candidate import Candidate
from raddle_operator.results.objective import Kind, Objective
from raddle_operator.results.verdict import Interval
from raddle_tuner.search import document, search, statistics
from raddle_tuner.search.blocks import Block, MeasurementRequest
from raddle_tuner.search.space import Space
from raddle_tuner.trials import inputs
from tuning import here, olive, recorded
from tuning.surface import QUANTILES
from unavailable import UnavailableError

# Of a site's minutes, what `raddle tune` and Optuna have each: of 15 the three that `raddle tune` takes by itself.
_SEARCH_PART: Final = 0.2
_LEAST_ROUNDS: Final = 3
_PLAN: Final = Candidate()


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What one way chose, after so many trials and minutes; `candidate` None: it can't be had here, `said` why.

    `said` is else what the way itself says of its choice, "" for nothing.
    """

    way: str
    candidate: Candidate | None
    trials: int | None = None
    minutes: float | None = None
    note: str = ""


def raddle(site: here.Site, results: here.LocalModel, rate: float, minutes: float) -> Choice:
    """What `raddle tune` prints after so many minutes."""
    program = str(Path(sys.executable).with_name("raddle"))
    command = [program, "tune", str(results.subject.path), "--limit", site.limit]
    command += ["--rate", f"{rate:g}", "--budget", f"{60 * minutes:.0f}s", "-o", "json"]
    before_s = time.monotonic()
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    taken_s = time.monotonic() - before_s
    if done.returncode:
        return Choice(way="`raddle tune`", candidate=None, note=f"it ended with status {done.returncode}")
    result = document.from_document(json.loads(done.stdout)).result
    gain = f", {phrases.signed(result.gain)}" if result.gain else ""
    return Choice(
        way="`raddle tune`",
        candidate=result.winner,
        trials=sum(bool(trial.blocks) for trial in result.trials),
        minutes=taken_s / 60,
        note=f"{result.verdict}{gain}; A/A {result.noise_percent:.1f} %",
    )


def tpe(result: here.LocalModel, rate: float, minutes: float) -> Choice:
    """The best trial of Optuna's TPE on the axes of `raddle tune`, a block for each."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=1))
    begun_s = time.monotonic()
    best, lowest, trials = _PLAN, float("inf"), 0
    while time.monotonic() - begun_s < 60 * minutes:
        trial = study.ask()
        candidate = _PLAN
        for axis in result.space.axes:
            number = trial.suggest_int(axis.name, 0, len(axis.choices))
            if number:
                candidate = axis.applied(candidate, axis.choices[number - 1][1])
        block = result.measure(_ask(candidate, rate, seed=trials))
        loss = statistics.loss(Kind.LATENCY, block) if isinstance(block, Block) else None
        # What can't be measured is far above all others.
        study.tell(trial, 1e6 if loss is None else loss)
        trials += 1
        if loss is not None and loss < lowest:
            best, lowest = candidate, loss
    taken_s = time.monotonic() - begun_s
    return Choice(way="Optuna TPE", candidate=best, trials=trials, minutes=taken_s / 60)


def olive_alone(result: here.LocalModel) -> Choice:
    """What Olive chooses of the model alone."""
    way = f"Olive {olive.VERSION}"
    try:
        (wanted,) = inputs.read(result.subject.path)
        made = olive.search(result.subject.path, wanted, result.space)
    except UnavailableError as error:
        return Choice(way=way, candidate=None, note=str(error))
    note = f"mean {report.short(made.first_ms)} ms before, {report.short(made.mean_ms)} ms after"
    return Choice(way=way, candidate=made.candidate, trials=made.trials, minutes=made.seconds / 60, note=note)


def exhaustive(path: Path) -> Choice:
    """The best of the shapes of a recorded surface."""
    surface = json.loads(path.read_text())
    shapes = [(_slowest_tenth_ms(shape["open_ms"]), shape["settings"]) for shape in surface["shapes"]]
    _, settings = min(shapes, key=lambda shape: shape[0])
    different = {json.dumps(one) for _, one in shapes}
    return Choice(
        way="exhaustive, threads x spinning x instances",
        candidate=Candidate.of(settings),
        trials=len(different),
        minutes=surface["recorded"]["minutes"],
        note=f"recorded {surface['recorded']['date']}",
    )


def _slowest_tenth_ms(quantiles_ms: Sequence[float]) -> float:
    """The mean above the 90th percentile."""
    first = QUANTILES.index(0.9)
    return float(np.trapezoid(quantiles_ms[first:], QUANTILES[first:])) / (1 - QUANTILES[first])


# --- against each other ---------------------------------------------------------------------------------------------


def compared(
    result: here.LocalModel, candidates: Sequence[Candidate], rate: float, end_s: float
) -> list[dict[Candidate, Block]]:
    """Rounds of one block of each, all of a round with the same arrivals, until this moment of the monotonic clock.

    Every second round goes backwards. A round is without those that failed in it.
    """
    rounds: list[dict[Candidate, Block]] = []
    number = 0
    while number < _LEAST_ROUNDS or time.monotonic() < end_s:
        blocks = {}
        for candidate in candidates[::-1] if number % 2 else candidates:
            block = result.measure(_ask(candidate, rate, seed=1000 + number))
            if isinstance(block, Block):
                blocks[candidate] = block
            else:
                _say(f"{candidate.title}: {block.reason}")
        rounds.append(blocks)
        number += 1
        _say(f"round {number}, {max(0.0, end_s - time.monotonic()):.0f} s left")
    return rounds


def _ask(candidate: Candidate, rate: float, seed: int) -> MeasurementRequest:
    return MeasurementRequest(candidate=candidate, rate=rate, seconds=_block_s(rate), seed=seed, phase="live")


def _block_s(rate: float) -> float:
    """As long as those of `raddle tune` that has the time."""
    return search.block_s(Objective(kind=Kind.LATENCY, rate=rate))


def against_plan(rounds: Sequence[Mapping[Candidate, Block]], candidate: Candidate) -> Interval | None:
    """How the candidate differs from the plan, of the rounds that have both; None where they are fewer than two."""
    differences = []
    for blocks in rounds:
        result = [statistics.loss(Kind.LATENCY, blocks[one]) for one in (candidate, _PLAN) if one in blocks]
        known = [loss for loss in result if loss is not None]
        if len(known) == 2:
            differences.append(known[0] - known[1])
    return statistics.interval(Kind.LATENCY, differences) if len(differences) > 1 else None


def of_site(name: str, minutes: float, *, quick: bool) -> str:
    """A site's part of the section, measured in so many minutes and those that its recording takes."""
    site = here.SITES[name]
    with here.at(site, recorded.BUILD, repeats=recorded.repeats(quick=quick)) as result:
        path = recorded.record_here(name, result, quick=quick)
        rate = json.loads(path.read_text())["rate"]
        end_s = time.monotonic() + 60 * minutes
        choices = [
            Choice(way="Raddle's plan again (A/A)", candidate=_PLAN),
            Choice(way="ONNX Runtime without Raddle", candidate=here.STOCK),
            exhaustive(path),
        ]
        choices.append(olive_alone(result))
        choices.append(raddle(site, result, rate, _SEARCH_PART * minutes))
        choices.append(tpe(result, rate, _SEARCH_PART * minutes))
        for choice in choices:
            _say(f"{choice.way}: {choice.candidate.title if choice.candidate else 'nothing'}; {choice.note}")
        stands = stands_for(result.space, choices)
        rounds = compared(result, [_PLAN, *dict.fromkeys(stands.values())], rate, end_s)
        blocks = [block for one in rounds for block in one.values()]
    disturbed = [note for block in blocks for note in block.disturbed]
    return f"""### {site.model.name}, limits.cpu {site.limit}, {rate:g} requests a second

{len(rounds)} rounds of blocks of {_block_s(rate):g} s. {len(disturbed)} of {len(blocks)} blocks were disturbed by
others on the machine, in each of {1 + result.repeats} tries{": " + disturbed[0] if disturbed else ""}.

{table(choices, stands, rounds)}"""


def section(names: Sequence[str], minutes: float, *, quick: bool) -> str:
    """The section of docs/benchmarks.md; each site has its part of the minutes."""
    seconds = report.short(60 * _SEARCH_PART * minutes / len(names))
    parts = [of_site(name, minutes / len(names), quick=quick) for name in names]
    return f"""## Tuning: Raddle and its peers on one machine

`python -m tuning live`, from benchmarks/. {report.machine()}.
A plain convolutional network of tools/load/models.py in a container's quota; requests arrive by chance (Poisson) at
{100 * recorded.LOAD:g} % of what the plan serves. Every choice was measured afterwards in fresh blocks, in turns, with
the same arrivals in each round: the mean latency of the slowest tenth of a block's requests, median and range of the
blocks, and its mean difference from the plan with its 95 % interval (below zero: less time). A/A is a second process of
the plan. A choice that comes to the plan has the figures of that one; choices that come to the same were measured once.

- `raddle tune` and Optuna's TPE had {seconds} s each: the first as users run it, the other on the same axes with one
  block for a trial, its best trial taken.
- Olive's pass OrtSessionParamsTuning tried thread counts, execution modes and graph levels. It measures the mean
  latency of one caller without quota and without a rate; what it does not set, spinning above all, is as ONNX Runtime
  has it by itself.
- Exhaustive are all thread counts, ways to spin and instances of the surface that `python -m tuning record` measured.

{chr(10).join(parts)}"""


# --- what is said ---------------------------------------------------------------------------------------------------

HEADINGS: Final = (
    "way",
    "trials",
    "minutes",
    "its choice",
    "slowest tenth, ms",
    "against the plan [95 %]",
    "p99 ms",
    "CPU ms a request",
    "it says itself",
)


def table(
    choices: Sequence[Choice], stands: Mapping[Candidate, Candidate], rounds: Sequence[Mapping[Candidate, Block]]
) -> str:
    """A line for the plan and one for each way; its figures are those of what stands for its choice."""
    rows = [["Raddle's plan", "", "", _PLAN.title, *_figures(rounds, _PLAN), ""]]
    for choice in choices:
        counts = [
            "" if one is None else form(one) for one, form in ((choice.trials, str), (choice.minutes, report.short))
        ]
        if choice.candidate is None:
            rows.append([choice.way, *counts, "not measured", "", "", "", "", choice.note])
            continue
        figures = _figures(rounds, stands[choice.candidate])
        rows.append([choice.way, *counts, _title(choice.candidate), *figures, choice.note])
    return report.markdown_table(HEADINGS, rows)


def _figures(rounds: Sequence[Mapping[Candidate, Block]], candidate: Candidate) -> list[str]:
    blocks = [one[candidate] for one in rounds if candidate in one]
    if not blocks:
        return ["not measured", "", "", ""]
    gain = None if candidate == _PLAN else against_plan(rounds, candidate)
    return [
        report.spread([statistics.slowest_tenth_ms(block.latencies_ms) for block in blocks]),
        phrases.signed(gain) if gain else "",
        report.short(statistics.p99_ms(blocks) or 0.0),
        report.short(statistics.cpu_ms_per_request(blocks) or 0.0),
    ]


def stands_for(space: Space, choices: Sequence[Choice]) -> dict[Candidate, Candidate]:
    """Choice -> what is measured for it: of those that come to the same one, for the plan's its other process."""
    met = {space.case.key(_PLAN): here.AGAIN}
    candidates = [choice.candidate for choice in choices if choice.candidate is not None]
    return {one: met.setdefault(space.case.key(one), one) for one in candidates}


def _title(candidate: Candidate) -> str:
    return "nothing is set" if candidate == here.STOCK else candidate.title


def _say(note: str) -> None:
    print(f"tuning live: {note}", file=sys.stderr, flush=True)

"""What a tuning found: who won, by how much, how sure that is, and all that was measured on the way."""

from __future__ import annotations

from dataclasses import dataclass

from raddle_operator.results.candidate import Candidate
from raddle_operator.results.objective import Objective
from raddle_operator.results.verdict import BoundTest, Interval, Verdict
from raddle_tuner.search.blocks import Block


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """All blocks of one candidate; `skipped` says why there are none, "" where there are."""

    candidate: Candidate
    phases: tuple[str, ...]
    blocks: tuple[Block, ...]
    skipped: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One tuning on one kind of node.

    `figure` names what was compared: `slowest_tenth_ms` (the mean latency of the slowest tenth of the requests, which
    is known from far fewer of them than p99), `throughput`, `cpu_ms_per_request`. `noise_percent` is how far two equal
    candidates may lie apart in it (A/A). `gain` is the winner against the baseline on fresh blocks, signed so that
    below zero is better in latency and CPU, above in throughput; None where the winner is the baseline. `contributions`
    is what each setting of the winner adds, by path. `front` are the candidates that no other beats in p99, throughput
    and CPU time together. `trials` are all candidates under the objective's load. `remarks` are validity lines for
    people. `capacity` is how many requests a second are served where each follows the last answer; None: not measured.
    """

    objective: Objective
    verdict: Verdict
    figure: str
    baseline: Candidate
    winner: Candidate
    gain: Interval | None
    noise_percent: float
    bound: BoundTest | None
    contributions: tuple[tuple[str, Interval], ...]
    front: tuple[Candidate, ...]
    trials: tuple[Trial, ...]
    remarks: tuple[str, ...]
    capacity: float | None = None

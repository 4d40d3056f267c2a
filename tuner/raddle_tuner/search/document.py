"""A tuning's result as JSON: what `raddle tune -o json` prints and a report is drawn from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise, repeat
from statistics import fmean
from typing import Any, Final

from raddle_operator.results import codec
from raddle_operator.results.candidate import Candidate
from raddle_operator.results.codec import DocumentError
from raddle_operator.results.key import Key
from raddle_operator.results.summary import Summary
from raddle_operator.results.verdict import FIGURES
from raddle_tuner.search.result import Result

# A block's latencies are written as they came up to so many. Of more, so many means are, of requests that took about as
# long: 300 blocks stay well below a ConfigMap's 1 MiB.
MOST_LATENCIES: Final = 200

# A document from elsewhere must not take more memory than so many latencies do.
_MOST_REQUESTS: Final = 10_000_000

_MEANS: Final = "latencyMeansMs"


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningResult:
    """A result with what it is of: `name` for people (a model's file, a server's command), `finished` in RFC 3339.

    `planned` is what the plan decides where it is left to it; paths of which that isn't known are absent.
    """

    name: str
    finished: str
    key: Key
    result: Result
    planned: Candidate


def summary_of(tuning: TuningResult) -> Summary:
    """The summary of a tuning."""
    result = tuning.result
    return Summary(
        verdict=result.verdict,
        figure=result.figure,
        baseline=result.baseline,
        winner=result.winner,
        planned=tuning.planned,
        gain=result.gain,
        noise_percent=result.noise_percent,
        trials=sum(bool(one.blocks) for one in result.trials),
        bound=result.bound,
        capacity=result.capacity,
        key=tuning.key,
        finished=tuning.finished,
        remarks=result.remarks,
    )


def to_document(tuning: TuningResult) -> dict[str, Any]:
    """The JSON document of a tuning. `from_document` makes the same of it, but for the latencies of large blocks.

    Those come back in ascending order, as many, each as the mean of those beside it: of a thousandth of all in the
    slowest tenth, so that its mean is exact and p99 nearly so, of nine thousandths in the rest.
    """
    document = codec.to_versioned(tuning)
    for trial in document["result"]["trials"]:
        trial["blocks"] = [_shortened(block) for block in trial["blocks"]]
    return document


def from_document(document: Any) -> TuningResult:
    """The tuning that a document holds; unknown fields are ignored, and those with a default may be absent.

    Raises DocumentError, naming the field, for anything that is no tuning of this version.
    """
    tuning = codec.from_versioned(TuningResult, _with_latencies(document))
    if tuning.result.figure not in FIGURES:
        raise DocumentError("result.figure", tuning.result.figure, "one of " + ", ".join(FIGURES))
    return tuning


def _shortened(block: dict[str, Any]) -> dict[str, Any]:
    latencies_ms = block.pop("latenciesMs")
    if len(latencies_ms) <= MOST_LATENCIES:
        return {"latenciesMs": latencies_ms, **block}
    ascending = sorted(latencies_ms)
    means_ms = [ascending[0]]
    for first, last in pairwise(_ranks(len(ascending))):
        # A group of a small block may be empty.
        means_ms.append(_mean(ascending[first:last]) if first < last else means_ms[-1])
    return {"requests": len(ascending), _MEANS: means_ms[1:], **block}


def _mean(ascending: Sequence[float]) -> float:
    # Whatever a division rounds to, it stays among them.
    return min(max(fmean(ascending), ascending[0]), ascending[-1])


def _ranks(count: int) -> list[int]:
    """Where the groups of so many ascending values begin, and where the last one ends."""
    half = MOST_LATENCIES // 2
    tenth = round(count / 10)
    return [
        *((count - tenth) * step // half for step in range(half)),
        *(count - tenth + tenth * step // half for step in range(half + 1)),
    ]


def _with_latencies(document: Any) -> Any:
    """The document with as many latencies in each block as there were. What is of no such form stays as it is."""
    requests = 0

    def block_with_latencies(block: Any, path: str) -> Any:
        nonlocal requests
        if not isinstance(block, Mapping) or _MEANS not in block:
            return block
        requests += codec.from_json(int, block.get("requests"), f"{path}.requests")
        return {**block, "latenciesMs": _latencies_ms(block, path, requests)}

    if not isinstance(document, Mapping):
        return document
    result = document.get("result")
    trials = result.get("trials") if isinstance(result, Mapping) else None
    if not isinstance(result, Mapping) or not isinstance(trials, list):
        return document
    lengthened = []
    for number, trial in enumerate(trials):
        blocks = trial.get("blocks") if isinstance(trial, Mapping) else None
        if isinstance(blocks, list):
            path = f"result.trials[{number}].blocks"
            blocks = [block_with_latencies(block, f"{path}[{index}]") for index, block in enumerate(blocks)]
            lengthened.append({**trial, "blocks": blocks})
        else:
            lengthened.append(trial)
    return {**document, "result": {**result, "trials": lengthened}}


def _latencies_ms(block: Mapping[str, Any], path: str, requests_until_here: int) -> list[float]:
    """As many latencies as there were, each the mean of its group."""
    at, requests = f"{path}.{_MEANS}", block["requests"]
    means_ms = [codec.from_json(float, mean, f"{at}[{index}]") for index, mean in enumerate(_list(block[_MEANS], at))]
    if len(means_ms) != MOST_LATENCIES or means_ms != sorted(means_ms):
        raise DocumentError(at, f"{len(means_ms)} numbers", f"{MOST_LATENCIES} numbers in ascending order")
    if requests <= MOST_LATENCIES or requests_until_here > _MOST_REQUESTS:
        allowed = f"from {MOST_LATENCIES + 1} on, and at most {_MOST_REQUESTS} in all blocks together"
        raise DocumentError(f"{path}.requests", requests, allowed)
    sizes = [last - first for first, last in pairwise(_ranks(requests))]
    return list(chain.from_iterable(map(repeat, means_ms, sizes)))


def _list(value: Any, path: str) -> list[Any]:
    if not isinstance(value, list):
        raise DocumentError(path, value, "a list")
    return value

"""What a tuning's pod says of its end, as the message that a container may leave: in at most 4096 bytes of JSON.

An object has the fields of its type here, in camelCase, as in the whole document; or there is `error` alone.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, Final

from raddle_operator.results import codec
from raddle_operator.results.candidate import Candidate
from raddle_operator.results.codec import DocumentError
from raddle_operator.results.key import Key
from raddle_operator.results.verdict import FIGURES, BoundTest, Interval, Verdict

__all__ = ["MOST_BYTES", "DocumentError", "Failed", "Summary", "from_text", "to_text"]

# MaxContainerTerminationMessageLength, pkg/kubelet/container/runtime.go
MOST_BYTES: Final = 4096
_MOST_CHARACTERS: Final = 4096
_STEP: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """A tuning but for its blocks: `trials` is how many candidates were tried. The rest is as in Tuning and Result."""

    verdict: Verdict
    figure: str
    baseline: Candidate
    winner: Candidate
    planned: Candidate
    gain: Interval | None
    noise_percent: float
    trials: int
    bound: BoundTest | None
    capacity: float | None
    key: Key
    finished: str
    remarks: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Failed:
    """Why there is no tuning, in words for people."""

    error: str


def to_text(ended: Summary | Failed) -> str:
    """One line of at most MOST_BYTES bytes in UTF-8. What is too long is cut, an ellipsis at its end: remarks, errors.

    A summary that is too long without remarks, by its settings, is an error that says so.
    """
    if isinstance(ended, Failed):
        return next(filter(_fits, (_line(Failed(error)) for (error,) in _ever_shorter((ended.error,)))))
    for remarks in chain(_ever_shorter(ended.remarks), [()]):
        text = _line(replace(ended, remarks=remarks))
        if _fits(text):
            return text
    return to_text(Failed(f"the winner's settings are too long for {MOST_BYTES} bytes: {ended.winner.title}"))


def _ever_shorter(texts: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Yields the texts, and then all of them cut to fewer and fewer characters."""
    yield texts
    for most in range(min(max(map(len, texts), default=0), _MOST_CHARACTERS), 0, -_STEP):
        yield tuple(text if len(text) <= most else text[: most - 1] + "…" for text in texts)


def _line(ended: Summary | Failed) -> str:
    # What is no Unicode, such as parts of a file's name, can't be written otherwise.
    return json.dumps(codec.to_versioned(ended), ensure_ascii=False).encode(errors="replace").decode()


def _fits(text: str) -> bool:
    return len(text.encode()) <= MOST_BYTES


def from_text(text: str) -> Summary | Failed:
    """What `to_text` wrote; unknown fields are ignored. Raises DocumentError, naming the field, for anything else."""
    try:
        result: Any = json.loads(text)
    except (ValueError, RecursionError):
        raise DocumentError("summary", text, "JSON") from None
    if isinstance(result, dict) and "error" in result:
        return codec.from_versioned(Failed, result)
    summary = codec.from_versioned(Summary, result)
    if summary.figure not in FIGURES:
        raise DocumentError("figure", summary.figure, "one of " + ", ".join(FIGURES))
    return summary

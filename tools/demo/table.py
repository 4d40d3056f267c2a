"""The demo's one table: what every pod got, and the input that decided it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.table import Table

from raddle import env
from raddle.planning import wire
from raddle_operator.cli import output
from raddle_operator.injection import explain

CONTAINER = "serve"


def render(pods: Sequence[dict[str, Any]]) -> Table:
    """A line per pod, in the order given."""
    table = output.table("pod", "node", "limit", "threads", "spinning", "affinity", "because")
    for pod in pods:
        table.add_row(*_row(pod))
    return table


def _row(pod: dict[str, Any]) -> tuple[str, ...]:
    metadata, spec = pod["metadata"], pod["spec"]
    limit = spec["containers"][0].get("resources", {}).get("limits", {}).get("cpu", "none")
    text = metadata.get("annotations", {}).get(env.PLAN_PREFIX + CONTAINER)
    if text is None:
        return metadata["name"], spec["nodeName"], limit, "–", "–", "–", "not injected"
    recorded = wire.read_plan_text(text)
    values = recorded.values
    spinning = explain.spinning(values)
    because = recorded.because.get("intraOp", "")
    if recorded.node is None:
        because += " (safe value)"
    threads = str(values.get("intraOp", "–"))
    return metadata["name"], spec["nodeName"], limit, threads, spinning, str(values.get("affinity", "–")), because

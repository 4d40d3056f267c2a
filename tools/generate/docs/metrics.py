"""Makes docs/reference/metrics.md: every metric, from the metric objects of all processes themselves."""

from __future__ import annotations

from collections import Counter as Tallies
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Final

from prometheus_client import REGISTRY, metrics_core
from prometheus_client.core import Metric

from raddle.report.collector import Collector
from raddle.report.groups import Group
from raddle_operator.agent import datagrams
from raddle_operator.agent.served import Served
from raddle_operator.controller import metrics as controller
from raddle_operator.controller.running import Total
from raddle_operator.kube.informer import CacheState
from raddle_operator.objects.nodereport import Cause, Container, Finding, Level, NodeReport, Pool, Process
from raddle_operator.objects.reasons import SkipReason
from raddle_operator.webhook.caches import Caches
from raddle_operator.webhook.metrics import WebhookMetrics
from raddle_operator.webhook.review import UnsupportedReview
from raddle_operator.webhook.server import Refusal
from raddle_operator.webhook.sources import MemorySources
from raddle_operator.webhook.verdict import Outcome

SKIP_REASONS: Final = "a [skip reason](skip-reasons.md)"
ALL_SKIP_REASONS: Final = frozenset(str(reason) for reason in SkipReason)

# Of labels whose values are not all there from the start: those of an enumeration, or words on them.
LATER: Final[Mapping[tuple[str, str], str]] = {
    ("raddle_webhook_requests_total", "path"): "`pods`, `binding`; `other` for a path that there is not",
    ("raddle_webhook_requests_total", "decision"): ", ".join(f"`{one}`" for one in (*Outcome, "refused")),
    ("raddle_webhook_requests_total", "reason"): (
        f"`skipped` on `pods`: {SKIP_REASONS}; `changed` and `skipped` on `binding`: an outcome of "
        "`raddle_webhook_bindings_total`; `foreign`: "
        + ", ".join(f"`{one}`" for one in UnsupportedReview)
        + "; `refused`: "
        + ", ".join(f"`{one}`" for one in Refusal)
        + "; `failed_open`: the error's type; else empty"
    ),
    ("raddle_missed_pods", "pod_namespace"): (
        f"the {controller.MISSED_NAMESPACES} namespaces with most, and `{controller.OTHER_NAMESPACES}`; none where no"
        " pod is missed"
    ),
    **{
        (f"raddle_policy_containers_{which}", label): words
        for which in ("running", "drifted")
        for label, words in {
            "policy_kind": "of the policy; empty for `(others)`",
            "policy_namespace": "of the policy; empty for a cluster's",
            "policy": f"its name: the {controller.RUNNING_POLICIES} with most drift, and `(others)`",
        }.items()
    },
}
# Of every metric of the agent.
OF_CONTAINER: Final = {"namespace": "the pod's namespace", "pod": "its name", "container": "the container's name"}
# The kinds that the controller shows once it leads. kopf does not tell when it last heard of those that it watches.
CONTROLLER_KINDS: Final[Mapping[str, float | None]] = {
    **dict.fromkeys((*controller.STATUS_KINDS, "Namespace", "Node")),
    "Pod": 0.0,
    "Job": 0.0,
}
CONTROLLER_WORK: Final = ("count", "examine", "policy", "topology", "shim", "tuning")

HEADER = """\
<!-- Made by `make generate` (tools/generate/docs/metrics.py) from operator/raddle_operator/webhook/metrics.py and
operator/raddle_operator/controller/metrics.py: edit those. -->

# Metrics

Each pod serves its metrics at `/metrics` without TLS: the webhook on `webhook.metricsPort`, the controller on
`controller.port`. If `agent.watch` is on, each agent serves metrics of its node's containers; otherwise its state is in
`raddle_topologies` and `raddle_nodes_without_topology`. There are also the usual `process_*` and `python_*` metrics.

- The chart has [alerts](../runbooks/README.md), a dashboard, and the objects with which Prometheus finds the pods.
- Only the leading controller has values; the others report zero, so use sums.
- Each governed pod is counted once: `raddle_matched_pods` = `raddle_injected_pods` + `raddle_older_pods` +
  `raddle_pending_pods` + `raddle_skipped_pods`, without the skipped pods that no policy governs.
- Labels of the webhook and the controller have no pod names. One is the namespace of missed pods, and three name a
  policy; the number of values is limited. The agent's labels are those of cadvisor and kube-state-metrics, so that they
  can be joined; the scrape configuration must set `honor_labels`.

"""
TABLE = "| metric | type | labels | meaning |\n|---|---|---|---|\n"
IN_A_PROGRAM = """
## In your program

A Python program that has loaded prometheus_client also exports these, if its policy says `observe: Runs`
([what the shim changes](../explanation/preload-injection.md)).

"""
VALUES = """
## Values of labels

Values that are known at startup are exported as 0, so that `increase()` sees the first failure.

| metric | label | values |
|---|---|---|
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Described:
    """One metric: its full name, what it says, and its labels with the values known now."""

    name: str
    type: str
    help: str
    labels: Mapping[str, tuple[str, ...]]
    buckets: tuple[str, ...] = ()


def webhook() -> list[Described]:
    """The webhook's metrics, as a process with every cache shows them."""
    metrics = WebhookMetrics()
    metrics.watch(Caches(MemorySources.empty().sources()))
    metrics.request("pods", Outcome.CHANGED, "")
    return described(metrics.families())


def controlling() -> list[Described]:
    """The controller's metrics, as the leader of an empty cluster shows them."""
    controller.measure_pods({})
    controller.measure_conditions([], [], [])
    controller.MISSED_PODS.labels(controller.OTHER_NAMESPACES).set(0)
    every_cause = Total(containers=1, causes=Tallies(Cause))
    controller.measure_running([(controller.OTHER_POLICIES, every_cause)])
    for work in CONTROLLER_WORK:
        controller.RECONCILE_SECONDS.labels(work)
    controller.READINGS.caches = tuple(CacheState(kind, 0, age_s) for kind, age_s in CONTROLLER_KINDS.items())
    try:
        return described(REGISTRY.collect())
    finally:
        controller.MISSED_PODS.clear()
        controller.measure_running([])
        controller.READINGS.caches = ()


def agent() -> list[Described]:
    """The agent's metrics, as one that sees a container with every finding shows them."""
    container = Container(
        namespace="n",
        pod="p",
        uid="u",
        name="c",
        limit_cpus=1.0,
        quota_cpus=1.0,
        used_cpus=1.0,
        throttled_share=0.0,
        waiting_share=0.0,
        planned_threads=1,
        effective_threads=1,
        processes=(Process(pid=1, command="c", threads=1, pools=(Pool(name="c", threads=1, ran=1, used_cpus=1.0),)),),
        findings=tuple(Finding(cause=cause, detail="d", fix="f") for cause in Cause),
    )
    served = Served(datagrams.ReportedSessions().refused)
    served.update(NodeReport(node="n", level=Level.PROCESSES, at="", window_s=1.0, containers=(container,)))
    return described(served.collect())


def in_a_program() -> list[Described]:
    """The shim's, as a program with a session of each source shows them."""
    sessions = [Group("onnxruntime", 2, source, 1, [0] * 64, 0) for source in ("plan", "code")]
    return described(Collector(metrics_core).families(sessions))


def described(families: Iterable[Metric]) -> list[Described]:
    """Those of a process's metrics that are ours."""
    return [_describe(family) for family in families if family.name.startswith("raddle_")]


def _describe(family: Metric) -> Described:
    labels: dict[str, dict[str, None]] = {}
    for sample in family.samples:
        for label, value in sample.labels.items():
            labels.setdefault(label, {})[value] = None
    buckets = tuple(labels.pop("le", ()))
    name = f"{family.name}_total" if family.type == "counter" else family.name
    known = {label: tuple(values) for label, values in labels.items()}
    return Described(name=name, type=family.type, help=family.documentation, labels=known, buckets=buckets)


def values(metric: Described, label: str) -> str:
    """What a label can be, in words and values."""
    later = LATER.get((metric.name, label)) or (
        OF_CONTAINER.get(label) if metric.name.startswith("raddle_container_") else None
    )
    if later is not None:
        return later
    known = metric.labels[label]
    return SKIP_REASONS if set(known) >= ALL_SKIP_REASONS else ", ".join(f"`{value}`" for value in known)


def render() -> str:
    """The page, as Markdown."""
    return HEADER + "".join(_lines({"Webhook": webhook(), "Controller": controlling(), "Agent": agent()}))


def _lines(processes: Mapping[str, list[Described]]) -> Iterator[str]:
    for number, (title, metrics) in enumerate(processes.items()):
        yield f"\n## {title}\n\n{TABLE}" if number else f"## {title}\n\n{TABLE}"
        yield from _rows(metrics)
    yield IN_A_PROGRAM + TABLE
    yield from _rows(in_a_program())
    yield VALUES
    # The agent's have the same three, and one has a cause.
    for metric in chain.from_iterable(processes.values()):
        for label in metric.labels:
            if metric.name.startswith("raddle_container_") and label in OF_CONTAINER:
                continue
            yield f"| `{metric.name}` | `{label}` | {values(metric, label)} |\n"


def _rows(metrics: Iterable[Described]) -> Iterator[str]:
    for metric in metrics:
        labels = ", ".join(f"`{label}`" for label in metric.labels)
        finite = [bound for bound in metric.buckets if bound != "+Inf"]
        buckets = f"; buckets from {finite[0]} to {finite[-1]} s" if finite else ""
        yield f"| `{metric.name}` | {metric.type} | {labels} | {metric.help}{buckets} |\n"

"""The section of docs/benchmarks.md: budgets beside figures first, then everything that was measured."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Sequence

from raddle_operator.controller.settings import ControllerSettings
from report import BUDGET_HEADINGS, Budget, machine, markdown_table, short, spread
from scale.calls import ACCOUNTS, Call
from scale.figures import Change, Results, Start
from scale.phases import CHANGES_ALL, CHANGES_ONE, LETS_GO, ROLLOUT, TAKES_ALL, Plan

READY_S, RIGHT_S = 15.0, 15.0
MEMORY_MB = {"controller": 200.0, "webhook": 120.0}


def budgets(results: Results) -> list[Budget]:
    """The lines of design §9 that this benchmark measures. Of times the longest is held against the budget."""
    result = [
        Budget(
            what="controller, start to ready, the longest",
            value=max(start.ready_s for start in _all_starts(results)),
            allowed=READY_S,
            unit="s",
        )
    ]
    for what in (TAKES_ALL, CHANGES_ALL, LETS_GO, CHANGES_ONE):
        slowest = max(change.right_s for change in results.changes[what])
        result.append(Budget(what=f"{what}: every status right, the longest", value=slowest, allowed=RIGHT_S, unit="s"))
    for name, allowed in MEMORY_MB.items():
        peak = results.peak_mb[name]
        result.append(Budget(what=f"{name}, resident memory, peak", value=peak, allowed=allowed, unit="MB"))
    return result


def _all_starts(results: Results) -> list[Start]:
    first = [] if results.first_start is None else [results.first_start]
    return [*first, *results.starts]


def section(plan: Plan, results: Results) -> str:
    """The whole section."""
    size, interval_s = plan.size, ControllerSettings(identity="").status_interval_s
    starts = markdown_table(("start to ready", "times", "s", "CPU s"), list(_start_rows(results)))
    headings = ("until every status was right", "times", "s", "controller CPU s", "changes of policies seen")
    return f"""## The controller and the webhook in a large cluster

`python -m scale`, from benchmarks/. {machine()}.
API server, etcd, both processes and what fills the cluster share this machine (load average
{spread(results.load)}); CPU time stands beside time for that reason.
{size.pods} pods in {len(size.namespaces)} namespaces, {size.nodes} nodes with their NodeCPUTopologies,
{size.policies} policies. Pods were created and bound through the webhook; at the end {_values(results)}.
Medians, ranges in brackets.

{markdown_table(BUDGET_HEADINGS, [budget.cells() for budget in budgets(results)])}
{starts}
At the first start no policy and no topology had a status; all {size.policies} policies' were right after
{short(results.first_right_s)} s.

{markdown_table(headings, list(_change_rows(results.changes)))}
A change begins as soon as the one before it is in every status, which is when it takes longest: but for the first of a
new generation, one policy's status is written at most every {interval_s:g} s.
Pods replaced: {plan.rollout_pods} deleted, created, bound and running; the time runs from the last request, the CPU
time from the first creation.

{_idle_text(results)}

| filling the cluster | s |
| --- | --- |
{"".join(f"| {what} | {short(seconds)} |" + chr(10) for what, seconds in results.fill_s.items())}
The whole benchmark took {short(results.total_s / 60)} minutes.
"""


def _values(results: Results) -> str:
    without = results.without_values
    return f"{without} have no values, since it did not answer in time" if without else "all have values"


def _start_rows(results: Results) -> Iterable[list[str]]:
    first = [] if results.first_start is None else [results.first_start]
    for what, starts in (
        ("controller, the first", first),
        ("controller, again", results.starts),
        ("webhook", results.webhook_starts),
    ):
        if starts:
            ready, cpu = [start.ready_s for start in starts], [start.cpu_s for start in starts]
            yield [what, str(len(starts)), spread(ready), spread(cpu)]


def _change_rows(changes: dict[str, list[Change]]) -> Iterable[list[str]]:
    for what in (TAKES_ALL, CHANGES_ALL, LETS_GO, CHANGES_ONE, ROLLOUT):
        result = changes[what]
        yield [
            what,
            str(len(result)),
            spread([change.right_s for change in result]),
            spread([change.cpu_s for change in result]),
            short(statistics.median(change.writes for change in result)),
        ]


def _idle_text(results: Results) -> str:
    resync_s = ControllerSettings(identity="").resync_s
    rows = [
        [
            name,
            short(idle.settled_mb),
            short(results.peak_mb[name]),
            short(idle.cpu_percent),
            short(sum(count for call, count in results.calls.items() if call.account == name) * 60 / results.idle_s),
            "–" if idle.received_bytes is None else short(idle.received_bytes / 1e3 * 60 / results.idle_s),
        ]
        for name, idle in results.idle.items()
    ]
    headings = ("process", "settled MB", "peak MB", "CPU % of a core", "API calls a minute", "kB received a minute")
    return f"""While nothing happens but the kubelets' reports (each node's status every five minutes), over
{results.idle_s:.0f} s. The peak is that of the whole benchmark. The controller lists what kopf watches
every {resync_s / 60:g} minutes, and an informer opens its watch again about every four, so some of that may lie outside
this time:

{markdown_table(headings, rows)}
{markdown_table(("account", "verb", "what", "calls a minute"), call_rows(results.calls, results.idle_s))}"""


def call_rows(calls: Counter[Call], seconds: float) -> Sequence[list[str]]:
    """A row for each kind of request, the most frequent of each account first; one row for an account without any."""
    rows = []
    for account in ACCOUNTS:
        result = sorted(
            ((count, call) for call, count in calls.items() if call.account == account),
            key=lambda pair: (-pair[0], pair[1]),
        )
        rows += [[account, call.verb, call.what, short(count * 60 / seconds)] for count, call in result]
        if not result:
            rows.append([account, "none", "", "0"])
    return rows

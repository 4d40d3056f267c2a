"""What Raddle's own pods have logged in a run: after all else, the last check."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from e2e import release
from e2e.checks import Check, Lab, Result

ERRORS = (" ERROR ", " CRITICAL ", "Traceback")
# kopf says so of a request that the server had no time for; if none succeeds, it says that too.
RETRIED = "; will retry: "
WARNING = " WARNING "
SHOWN = 10


def own_logs(lab: Lab) -> Result:
    """No error in a log, whatever the scenarios did."""
    pods = lab.cluster.client.get(f"/api/v1/namespaces/{release.NAMESPACE}/pods")["items"]
    logs = {
        f"{pod['metadata']['name']} {container['name']}": lab.runner.log(pod["metadata"], container["name"])
        for pod in pods
        for container in pod["spec"]["containers"]
    }
    return judge(pods, logs)


def judge(pods: Sequence[dict[str, Any]], logs: dict[str, str]) -> Result:
    """The result, from live pods and container -> its log."""
    lines = [(container, line) for container, log in logs.items() for line in log.splitlines()]
    errors = [f"{container}: {line[:300]}" for container, line in lines if _is_error(line)]
    # Shown, not judged: a leader that can't renew its Lease in time ends on purpose, as on an overloaded machine.
    restarts = sum(
        status["restartCount"] for pod in pods for status in pod.get("status", {}).get("containerStatuses", [])
    )
    figures = {
        "pods": str(len(pods)),
        "lines": str(len(lines)),
        "warnings": str(sum(WARNING in line for _, line in lines)),
        "errors": str(len(errors)),
        "restarts": str(restarts),
    }
    silent = () if lines else ("no line of any log could be read",)
    return Result(figures=figures, wrong=(*silent, *errors[:SHOWN]))


def _is_error(line: str) -> bool:
    return any(mark in line for mark in ERRORS) and RETRIED not in line


CHECKS: Final = (Check(name="own-logs", why="Raddle's own pods have logged no error", run=own_logs),)

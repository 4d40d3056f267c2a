"""A container that is resized in place, on the virtual node: what is said of it then, and what its next start gets."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final

from cluster.client import ApiError
from e2e import release, verdict, waiting
from e2e.checks import Lab, Result
from e2e.errors import E2EError
from e2e.guest import PATIENCE_SECONDS
from e2e.scenarios import REPORT, SHOW, Container, Scenario
from e2e.settings import GUEST

BEFORE_CPUS, AFTER_CPUS = 3, 1
SCENARIO: Final = Scenario(
    name="resize",
    why="",
    qos="Burstable",
    nodes=(GUEST.name,),
    containers=(
        Container(
            request="100m", limit=str(BEFORE_CPUS), threads=BEFORE_CPUS, cpus=GUEST.cpus, quota_cpus=float(BEFORE_CPUS)
        ),
    ),
    seconds=PATIENCE_SECONDS,
)
APP: Final = SCENARIO.containers[0].name
STATUS_SECONDS = 180.0
CONTROLLER_PORT = 8080
_RESIZED = re.compile(r"^raddle_resized_pods (\S+)$", re.MULTILINE)


def resize(lab: Lab) -> Result:
    """A limit of three CPUs becomes one while three threads run; the container starts again with one."""
    namespace = lab.runner.namespace({})
    with lab.runner.running(SCENARIO, namespace) as found:
        run = _Resize(lab, found[GUEST.name]["metadata"])
        run.expect("threads at the start", run.threads(), SCENARIO.containers[0].threads)
        run.resize()
        run.expect("counted as resized", run.counted(), 1)
        run.restart()
        run.expect("threads after the restart", run.threads(), AFTER_CPUS)
        run.judge_reports()
    return Result(figures=run.figures, wrong=tuple(run.wrong))


class _Resize:
    """One run: what was seen so far, and what was not as it must be. `pod` is the pod's metadata."""

    def __init__(self, lab: Lab, pod: Mapping[str, Any]) -> None:
        self._lab = lab
        self._pod = pod
        self._path = f"/api/v1/namespaces/{pod['namespace']}/pods/{pod['name']}"
        self.figures: dict[str, str] = {}
        self.wrong: list[str] = []

    def expect(self, what: str, found: object, expected: object) -> None:
        """A figure for the table, which must be this."""
        self.figures[what] = str(found)
        if found != expected:
            self.wrong.append(f"{what}: {found}, expected {expected}")

    def threads(self) -> int | None:
        """The threads of the running container's session; None where it has not said."""
        look = verdict.look(self._log())
        return None if look is None else int(look["threads"])

    def resize(self) -> None:
        """Change the limit, and wait until the kernel has it and `raddle show` says what it comes to."""
        change = {"spec": {"containers": [{"name": APP, "resources": {"limits": {"cpu": str(AFTER_CPUS)}}}]}}
        target = ["pod", self._pod["name"], "-n", self._pod["namespace"]]
        self._lab.cluster.kubectl("patch", *target, "--subresource", "resize", "--patch", json.dumps(change))
        self._wait(lambda: self._show()["budget"]["quotaCPUs"] == AFTER_CPUS, "the kernel has the new limit")
        effective = self._show()["effective"]
        self.expect("then planned for a new session", effective["intraOp"], AFTER_CPUS)
        self.expect("because", effective["because"].get("intra"), f"planned {BEFORE_CPUS}, cut to quota {AFTER_CPUS}")
        self.expect("threads that run on", self.threads(), BEFORE_CPUS)
        self.expect("restarts by the resize", self._restarts(), 0)

    def counted(self) -> int:
        """How many pods the controllers count as resized, once that is more than none."""
        found = [0]

        def seen() -> bool:
            found[0] = sum(int(float(count)) for text in self._metrics() for count in _RESIZED.findall(text))
            return found[0] > 0

        waiting.wait(seen, "the controller counts the pod as resized", STATUS_SECONDS, self._lab.progress)
        return found[0]

    def restart(self) -> None:
        """End the container's process; the kubelet starts it again under the same plan."""
        status, said = self._lab.runner.inside(self._pod, APP, "/bin/busybox", "kill", "1")
        if status:
            raise E2EError(f"its process can't be ended: {said}")
        self._wait(lambda: self._restarts() == 1, "the container was started again")
        self._wait(lambda: self.threads() is not None, "it has made its session")

    def judge_reports(self) -> None:
        """Both sessions are in the reports, and the difference to the plan is explained there."""
        status, text = self._lab.runner.inside(self._pod, APP, *REPORT)
        self.expect("report says so", f"cut to quota {AFTER_CPUS}" in text, expected=True)
        self.expect("report's exit status", status, 0)
        self.wrong += [f"in the log: {line}" for line in verdict.error_lines(self._log())]
        live = self._lab.cluster.client.get(self._path)
        self.expect("class of service", live["status"]["qosClass"], SCENARIO.qos)

    def _show(self) -> dict[str, Any]:
        status, text = self._lab.runner.inside(self._pod, APP, *SHOW)
        found: dict[str, Any] = {} if status else json.loads(text)
        return found if found.get("effective") else {"budget": {"quotaCPUs": None}}

    def _restarts(self) -> int:
        (status,) = self._lab.cluster.client.get(self._path)["status"]["containerStatuses"]
        return int(status["restartCount"]) if status["ready"] else -1

    def _log(self) -> str:
        return self._lab.runner.log(self._pod, APP)

    def _metrics(self) -> list[str]:
        client, pods = self._lab.cluster.client, f"/api/v1/namespaces/{release.NAMESPACE}/pods"
        texts = []
        for one in client.get(pods, labelSelector="app.kubernetes.io/component=controller")["items"]:
            try:
                answer = client.get(f"{pods}/{one['metadata']['name']}:{CONTROLLER_PORT}/proxy/metrics")
            except ApiError:
                continue
            texts.append(str(answer.get("text", "")))
        return texts

    def _wait(self, check: Any, what: str) -> None:
        waiting.wait(check, f"{SCENARIO.name}: {what}", PATIENCE_SECONDS, self._lab.progress)

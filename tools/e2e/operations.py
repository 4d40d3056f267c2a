"""What an operations team does with an installed Raddle: test it, change a policy."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any, Final

from cluster.waiting import NotInTimeError
from e2e import release, verdict, waiting
from e2e.checks import Check, Lab, Result
from e2e.scenarios import HOST, LABEL, TWO, Container, Scenario, policy

TEST_SECONDS = 300
POLL_SECONDS = 0.1
PODS_SECONDS = 300.0
# Ten seconds at most where nothing else runs: a status is not written more often.
STATUS_SECONDS = 120.0
CHANGED = "policy-change"
# Two CPUs may be used, one of which is kept back and not counted unless a policy says so.
THREADS_BEFORE, THREADS_AFTER = 1, 2


def helm_test(lab: Lab) -> Result:
    """`helm test`: the chart's test pod asks the webhook by its Service's name, and believes the issued certificate."""
    where = ["--namespace", release.NAMESPACE]
    command = [str(lab.cluster.provide_helm()), "test", "raddle", *where, "--timeout", f"{TEST_SECONDS}s"]
    with subprocess.Popen(
        command, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=lab.cluster.environment()
    ) as testing:
        log = _followed(lab, testing)
        said = testing.stdout.read() if testing.stdout is not None else ""
    answered = re.search(r"answered in (\d+ ms) and allows the pod", log)
    signed = "Its certificate is signed by" in log
    wrong = []
    if testing.returncode:
        wrong.append(f"helm test ended with {testing.returncode}: {said[-400:]}")
    if answered is None or not signed:
        wrong.append(f"the test pod's log does not say so: {log[-800:]!r}")
    figures = {"answer in": answered[1] if answered else "none", "certificate verified": "yes" if signed else "no"}
    return Result(figures=figures, wrong=tuple(wrong))


def _followed(lab: Lab, testing: subprocess.Popen[str]) -> str:
    """The test pod's log while it is there: Helm removes it as soon as it has passed, before `--logs` reads it."""
    log = ""
    while testing.poll() is None:
        found = lab.cluster.kubectl("-n", release.NAMESPACE, "logs", "--follow", "raddle-test", check=False)
        log = found.stdout or log
        time.sleep(POLL_SECONDS)
    return log


def policy_change(lab: Lab) -> Result:
    """A policy gets another thread count: running pods stay and are counted, new ones follow, a rollout ends it."""
    namespace, labels = f"e2e-{CHANGED}", {LABEL: CHANGED}
    change = _Change(lab, namespace, labels)
    # That of a first try.
    change.wait(
        lambda: release.get(lab.cluster, f"/api/v1/namespaces/{namespace}") is None, "no such namespace is left"
    )
    release.opt_in(lab.cluster, namespace, {}, lab.progress)
    scenario = Scenario(name=CHANGED, why="", qos="Burstable", containers=(Container(**TWO),), kind="Deployment")
    manifest = scenario.manifest(namespace)
    (container,) = manifest["spec"]["template"]["spec"]["containers"]
    container["env"] = [{"name": "E2E_LOAD", "value": "0"}]
    manifest["spec"]["replicas"] = 2
    try:
        lab.cluster.client.apply(manifest)
        change.wait(lambda: len(change.threads()) == 2, "two pods have made their sessions")
        old = change.threads()
        change.expect("pods before", old, dict.fromkeys(old, THREADS_BEFORE))
        change.counted("before", injected=2, stale=0)
        start = time.monotonic()
        lab.cluster.client.apply(policy("e2e", namespace, podSelector={}, threads={"intraOp": THREADS_AFTER}))
        change.counted("after the change", injected=2, stale=2)
        change.figures["counted in"] = f"{time.monotonic() - start:.1f} s"
        change.named(sorted(old))
        change.scale(3)
        change.wait(lambda: len(change.threads()) == 3, "a third pod has made its session")
        now = change.threads()
        new = now.keys() - old.keys()
        change.expect("pods after", now, {**old, **dict.fromkeys(new, THREADS_AFTER)})
        change.counted("with a new pod", injected=3, stale=2)
        change.named(sorted(old), fresh=sorted(new))
        lab.cluster.kubectl("-n", namespace, "rollout", "restart", f"deployment/{CHANGED}")
        change.wait(lambda: len(change.threads()) == 3 and not change.threads().keys() & now.keys(), "all pods are new")
        last = change.threads()
        change.expect("pods after the rollout", last, dict.fromkeys(last, THREADS_AFTER))
        change.counted("after the rollout", injected=3, stale=0)
    finally:
        lab.cluster.client.delete(lab.cluster.client.path_of(manifest), missing_ok=True)
        lab.cluster.client.delete(f"/api/v1/namespaces/{namespace}", missing_ok=True)
    return Result(figures=change.figures, wrong=tuple(change.wrong))


class _Change:
    """One run of policy_change: what was seen so far, and what was not as it must be."""

    def __init__(self, lab: Lab, namespace: str, labels: dict[str, str]) -> None:
        self._lab = lab
        self._namespace = namespace
        self._labels = labels
        self.figures: dict[str, str] = {}
        self.wrong: list[str] = []

    def wait(self, check: Callable[[], bool], what: str) -> None:
        waiting.wait(check, f"{self._namespace}: {what}", PODS_SECONDS, self._lab.progress)

    def threads(self) -> dict[str, int]:
        """Pod -> the threads that its session has; pods that have said nothing yet, or are going, are left away."""
        runner = self._lab.runner
        pods = [one["metadata"] for one in runner.pods(self._labels, self._namespace)]
        looks = {one["name"]: verdict.look(runner.log(one, "app")) for one in pods if "deletionTimestamp" not in one}
        return {name: int(found["threads"]) for name, found in looks.items() if found is not None}

    def expect(self, what: str, found: dict[str, int], expected: dict[str, int]) -> None:
        """Threads as they must be; a figure for the table."""
        self.figures[f"threads of {what}"] = " ".join(map(str, sorted(found.values())))
        if found != expected:
            self.wrong.append(f"threads of {what}: {found}, expected {expected}")

    def counted(self, when: str, *, injected: int, stale: int) -> None:
        """The policy's status says so, soon."""
        path = f"/apis/raddle.dev/v1alpha1/namespaces/{self._namespace}/inferencethreadings/e2e"
        counts: dict[str, Any] = {}

        def right() -> bool:
            found = self._lab.cluster.client.get(path)
            status = found.get("status", {})
            counts.update({name: status.get(name) for name in ("injectedPods", "stalePods")})
            current = status.get("observedGeneration") == found["metadata"]["generation"]
            return current and counts == {"injectedPods": injected, "stalePods": stale}

        try:
            waiting.wait(right, f"the policy's status {when}", STATUS_SECONDS, self._lab.progress)
        except NotInTimeError as error:
            self.wrong.append(f"{error}: {counts}, expected {injected} injected and {stale} stale")
        self.figures[f"stale {when}"] = f"{counts.get('stalePods')} of {counts.get('injectedPods')}"

    def named(self, stale: list[str], fresh: list[str] | None = None) -> None:
        """`raddle explain` says of these pods that they are stale, and of those that they are not."""
        said = {name: self._explained(name) for name in (*stale, *(fresh or ()))}
        right = {**dict.fromkeys(stale, "InferenceThreading/e2e"), **dict.fromkeys(fresh or (), None)}
        if said != right:
            self.wrong.append(f"`raddle explain` says {said}, expected {right}")
        self.figures["named stale by explain"] = str(sum(one is not None for one in said.values()))

    def scale(self, replicas: int) -> None:
        path = f"/apis/apps/v1/namespaces/{self._namespace}/deployments/{CHANGED}"
        self._lab.cluster.client.merge(path, {"spec": {"replicas": replicas}})

    def _explained(self, pod: str) -> str | None:
        where = ["--namespace", self._namespace, "--kubeconfig", str(self._lab.cluster.kubeconfig)]
        command = [sys.executable, "-m", "raddle_operator", "explain", f"pod/{pod}", *where, "-o", "json"]
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        if done.returncode:
            self.wrong.append(f"`raddle explain pod/{pod}` ended with {done.returncode}: {done.stderr[-400:]}")
            return None
        against = json.loads(done.stdout)["staleAgainst"]
        return None if against is None else str(against)


CHECKS: Final = (
    Check(name="helm-test", why="`helm test` passes as a pod that asks the webhook through its Service", run=helm_test),
    Check(
        name=CHANGED,
        why="a policy changes: new pods follow, old ones keep what they have and are counted and named",
        run=policy_change,
        nodes=(HOST,),
    ),
)

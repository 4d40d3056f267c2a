"""What is measured: a Deployment of the server under a fixed load, with an HPA on it, or with VPA's target followed."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from cluster import Cluster
from cluster.progress import Progress
from e2e import autoscalers, usage, waiting
from e2e.errors import E2EError
from e2e.offered import Answer, Offered, percentile_ms
from e2e.usage import Usage
from e2e.workload import PORT, deployment, files, ready

# About a third of the first limit is work: a request costs 2 ms of one thread.
RATE_PER_S = 30.0
REQUEST_M = 100
LIMIT_M = 200
TARGET_PERCENT = 80
MOST_REPLICAS = 4
HPA_SECONDS = 90.0
# Until the kubelet's and metrics-server's figures are of the load alone, and then what VPA looks at.
SETTLE_SECONDS = 30.0
LOOK_SECONDS = 35.0
STEP_SECONDS = 2.0
LAST_SECONDS = 30.0
MOST_ROUNDS = 4
# VPA's updater leaves a pod whose request is this near to the target.
NEAR: Final = 0.1
POD_SECONDS = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """What requests met and containers used: all in one, over `seconds`."""

    seconds: float
    requests: int
    failed: int
    p50_ms: float | None
    p99_ms: float | None
    cpu_m: float
    throttled_percent: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Horizontal:
    """An HPA's run: one replica before it (`alone`), then what it saw first and last, and what came of it.

    The utilizations are of the request, None where it saw none. `replicas` are those that it wants at the end, `last`
    is of the last half minute.
    """

    threads: int
    alone: Served
    first_percent: int | None
    last_percent: int | None
    replicas: int
    last: Served


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """A round of VPA's loop: a pod of this request and limit, and the target that VPA has after it."""

    threads: int
    request_m: int
    limit_m: int
    target_m: int
    served: Served


class Bench:
    """Runs a variant, whose name is the namespace's, after another: on one node they would share its CPUs."""

    def __init__(self, cluster: Cluster, progress: Progress) -> None:
        """Measure on this cluster, whose autoscalers run."""
        self._cluster = cluster
        self._progress = progress

    def horizontal(self, variant: str) -> Horizontal:
        """Put an HPA on a Deployment that is under load. Raises E2EError where no pod gets ready."""
        self._progress.say(f"HPA, {variant}: {RATE_PER_S:g} requests a second, {TARGET_PERCENT} % of {REQUEST_M}m")
        manifest = autoscalers.horizontal("hpa", variant, target_percent=TARGET_PERCENT, most=MOST_REPLICAS)
        client = self._cluster.client
        seen: list[autoscalers.Scaled] = []

        with self._deployed("hpa", variant, REQUEST_M, LIMIT_M) as threads, self._load(variant) as load:
            load.during(SETTLE_SECONDS)
            before_hpa = load.mark()
            client.apply(manifest)
            path = client.path_of(manifest)

            def look() -> None:
                seen.append(autoscalers.scaled(client.get(path)))

            load.during(HPA_SECONDS - LAST_SECONDS, look)
            before_last = load.mark()
            load.during(LAST_SECONDS, look)
            client.delete(path)
        utilizations = [one.utilization_percent for one in seen if one.utilization_percent is not None]
        found = Horizontal(
            threads=threads,
            alone=load.served(until=before_hpa),
            first_percent=utilizations[0] if utilizations else None,
            last_percent=utilizations[-1] if utilizations else None,
            replicas=seen[-1].desired,
            last=load.served(before_last),
        )
        self._progress.say(f"HPA, {variant}: {found.replicas} replicas, {found.last.cpu_m:.0f}m used")
        return found

    def vertical(self, variant: str) -> list[Round]:
        """Follow VPA's target until it stays, as its updater and admission do: the limit keeps its ratio.

        Each round is a Deployment and a VPA of its own, so that it begins without the history of the one before. It
        ends early where the target does not fit the node.
        """

        def measure(number: int, request_m: int, limit_m: int) -> Round:
            self._progress.say(f"VPA, {variant}, round {number}: request {request_m}m, limit {limit_m}m")
            return self._round(f"vpa-{number}", variant, request_m, limit_m)

        return follow(measure, self._allocatable_m())

    def _round(self, name: str, variant: str, request_m: int, limit_m: int) -> Round:
        client, manifest = self._cluster.client, autoscalers.vertical(name, variant)
        path = f"/apis/{autoscalers.GROUP}/v1/namespaces/{variant}/verticalpodautoscalers/{name}"
        targets: list[int] = []

        def look() -> None:
            target = autoscalers.recommended_m(client.get(path))
            if target is not None:
                targets.append(target)

        with self._deployed(name, variant, request_m, limit_m) as threads, self._load(variant) as load:
            load.during(SETTLE_SECONDS)
            before = load.mark()
            client.apply(manifest)
            load.during(LOOK_SECONDS, look)
            if not targets:
                load.during(LOOK_SECONDS, look)
        client.delete(path)
        if not targets:
            raise E2EError(f"VPA {variant}/{name}: no recommendation after {2 * LOOK_SECONDS:.0f} s")
        return Round(
            threads=threads, request_m=request_m, limit_m=limit_m, target_m=targets[-1], served=load.served(before)
        )

    def _allocatable_m(self) -> int:
        (node,) = self._cluster.client.get("/api/v1/nodes")["items"]
        return autoscalers.millicpus(node["status"]["allocatable"]["cpu"])

    @contextmanager
    def _deployed(self, name: str, variant: str, request_m: int, limit_m: int) -> Iterator[int]:
        """A Deployment with one ready pod, whose session has this many threads; all of it is gone afterwards."""
        client = self._cluster.client
        client.apply(files(variant))
        manifest = deployment(name, variant, request_m, limit_m)
        client.apply(manifest)
        try:
            waiting.wait(
                lambda: bool(ready(self._pods(variant))), f"{variant}/{name} is ready", POD_SECONDS, self._progress
            )
            yield self._threads(ready(self._pods(variant))[0])
        finally:
            client.request("DELETE", client.path_of(manifest), {"propagationPolicy": "Background"})
            waiting.wait(lambda: not self._pods(variant), f"{variant}/{name} is gone", POD_SECONDS, self._progress)

    def _pods(self, variant: str) -> list[dict[str, Any]]:
        pods: list[dict[str, Any]] = self._cluster.client.get(f"/api/v1/namespaces/{variant}/pods")["items"]
        return pods

    def _threads(self, pod: Mapping[str, Any]) -> int:
        metadata = pod["metadata"]
        log = self._cluster.client.get(f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}/log")
        line = next(line for line in str(log["text"]).splitlines() if line.startswith('{"threads"'))
        return int(json.loads(line)["threads"])

    @contextmanager
    def _load(self, variant: str) -> Iterator[Load]:
        with Offered(RATE_PER_S) as offered:
            yield Load(offered, lambda: ready(self._pods(variant)), self._progress)


@dataclass(frozen=True, slots=True)
class Mark:
    """A moment of a load: its time, and what each container had used, by the pod's uid."""

    moment: float
    used: Mapping[str, Usage]


class Load:
    """Requests to the pods that are ready, and what these use meanwhile."""

    def __init__(self, offered: Offered, pods: Callable[[], list[dict[str, Any]]], progress: Progress) -> None:
        """Aim at the pods that are ready now."""
        self._offered = offered
        self._pods = pods
        self._progress = progress
        self._first: dict[str, Usage] = {}
        self._latest: dict[str, Usage] = {}
        self._step()
        self._start = self.mark()
        self._end = self._start

    def during(self, seconds: float, look: Callable[[], None] = lambda: None) -> None:
        """Go on for this long; `look` is called now and then."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            time.sleep(min(STEP_SECONDS, max(0.0, end - time.monotonic())))
            self._step()
            look()
            self._progress.tick("under load")
        self._end = self.mark()

    def mark(self) -> Mark:
        """This moment."""
        return Mark(time.monotonic(), dict(self._latest))

    def served(self, since: Mark | None = None, until: Mark | None = None) -> Served:
        """What was served from one moment (None: the beginning) to another (None: the end of the last `during`).

        To be asked after the load has ended: the slowest requests, still on their way, would be left out.
        """
        begin, end = since or self._start, until or self._end
        answers = [one for one in self._offered.answers(begin.moment) if one.due < end.moment]
        used = [now.since(begin.used.get(uid, self._first[uid])) for uid, now in end.used.items()]
        return served(answers, usage.total(used), end.moment - begin.moment)

    def _step(self) -> None:
        pods = self._pods()
        self._offered.aim([(pod["status"]["podIP"], PORT) for pod in pods])
        for pod in pods:
            used = usage.read(pod)
            if used is not None:
                self._first.setdefault(pod["metadata"]["uid"], used)
                self._latest[pod["metadata"]["uid"]] = used


def follow(measure: Callable[[int, int, int], Round], allocatable_m: int) -> list[Round]:
    """Rounds by `measure(number, request_m, limit_m)`, each with the target of the one before as its request.

    It ends where VPA's updater would leave the pod, where the target does not fit a node of `allocatable_m`, or after
    MOST_ROUNDS.
    """
    rounds: list[Round] = []
    request_m = REQUEST_M
    for number in range(1, MOST_ROUNDS + 1):
        found = measure(number, request_m, request_m * LIMIT_M // REQUEST_M)
        rounds.append(found)
        if abs(found.target_m - request_m) < NEAR * request_m or found.target_m > allocatable_m:
            break
        request_m = found.target_m
    return rounds


def served(answers: list[Answer], used: Usage, seconds: float) -> Served:
    """The figures of these requests and this use."""
    return Served(
        seconds=round(seconds, 1),
        requests=len(answers),
        failed=sum(not one.ok for one in answers),
        p50_ms=percentile_ms(answers, 50),
        p99_ms=percentile_ms(answers, 99),
        cpu_m=1000 * used.cpu_s / seconds,
        throttled_percent=used.throttled_percent,
    )

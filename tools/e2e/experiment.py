"""What is measured: a Deployment of the server under a fixed load, with an HPA on it, or with VPA's target followed.

The pod is a server with ONNX Runtime and default options. Its requests need about a third of its quota; what else it
uses is threads that spin between them, which an autoscaler on CPU can't tell from work.
"""

from __future__ import annotations

import base64
import json
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from cluster import objects
from cluster.namespaces import TestNamespace
from cluster.waiting import NotInTimeError
from e2e import autoscalers, settings, usage, waiting
from e2e.images import APP_IMAGE, PYTHON
from e2e.offered import Offered, percentile_ms
from e2e.usage import Usage
from load.models import SMALL
from raddle_operator.objects import quantities

SERVER = Path(__file__).with_name("inside") / "serve.py"
PORT = 8080
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


def horizontal(space: TestNamespace) -> Horizontal:
    """Put an HPA on a Deployment that is under load. Raises NotInTimeError where no pod gets ready."""
    manifest = autoscalers.horizontal("hpa", space.name, target_percent=TARGET_PERCENT, most=MOST_REPLICAS)
    path = space.client.path_of(manifest)
    samples: list[autoscalers.Scaled] = []

    def sample() -> None:
        samples.append(autoscalers.scaled(space.client.get(path)))

    with _deployed(space, "hpa", REQUEST_M, LIMIT_M) as threads, Offered(RATE_PER_S) as offered:
        load = Load(offered, lambda: ready(space.list()))
        load.during(SETTLE_SECONDS)
        before_hpa = load.mark()
        space.client.apply(manifest)
        load.during(HPA_SECONDS - LAST_SECONDS, sample)
        before_last = load.mark()
        load.during(LAST_SECONDS, sample)
        space.client.delete(path)
    utilizations = [one.utilization_percent for one in samples if one.utilization_percent is not None]
    return Horizontal(
        threads=threads,
        alone=load.served(until=before_hpa),
        first_percent=utilizations[0] if utilizations else None,
        last_percent=utilizations[-1] if utilizations else None,
        replicas=samples[-1].desired,
        last=load.served(before_last),
    )


def vertical(space: TestNamespace) -> list[Round]:
    """Follow VPA's target until it stays, as its updater and admission do: the limit keeps its ratio.

    Each round is a Deployment and a VPA of its own, so that it begins without the history of the one before. It ends
    early where the target does not fit the node.
    """
    node = space.client.get(f"/api/v1/nodes/{settings.HOST.name}")
    allocatable_m = int(1000 * quantities.parse(node["status"]["allocatable"]["cpu"]))
    return follow(lambda *given: _round(space, *given), allocatable_m)


def _round(space: TestNamespace, number: int, request_m: int, limit_m: int) -> Round:
    manifest = autoscalers.vertical(f"vpa-{number}", space.name)
    path = f"/apis/{autoscalers.GROUP}/v1/namespaces/{space.name}/verticalpodautoscalers/vpa-{number}"
    targets: list[int] = []

    def sample() -> None:
        target = autoscalers.recommended_m(space.client.get(path))
        if target is not None:
            targets.append(target)

    with _deployed(space, f"vpa-{number}", request_m, limit_m) as threads, Offered(RATE_PER_S) as offered:
        load = Load(offered, lambda: ready(space.list()))
        load.during(SETTLE_SECONDS)
        before = load.mark()
        space.client.apply(manifest)
        load.during(LOOK_SECONDS, sample)
        if not targets:
            load.during(LOOK_SECONDS, sample)
    space.client.delete(path)
    if not targets:
        raise NotInTimeError(f"VPA {path}: no recommendation after {2 * LOOK_SECONDS:.0f} s")
    return Round(
        threads=threads, request_m=request_m, limit_m=limit_m, target_m=targets[-1], served=load.served(before)
    )


@contextmanager
def _deployed(space: TestNamespace, name: str, request_m: int, limit_m: int) -> Iterator[int]:
    """A Deployment with one ready pod, whose session has this many threads; all of it is gone afterwards."""
    manifest = deployment(name, request_m, limit_m)
    space.store(files(), manifest)
    try:
        (pod,) = waiting.wait(lambda: ready(space.list()), f"{space.name}/{name} is ready", POD_SECONDS)
        log = space.client.get(f"{space.pods_path}/{pod['metadata']['name']}/log")
        line = next(line for line in str(log["text"]).splitlines() if line.startswith('{"threads"'))
        yield int(json.loads(line)["threads"])
    finally:
        space.client.delete(f"/apis/apps/v1/namespaces/{space.name}/deployments/{name}")
        waiting.wait(lambda: not space.list(), f"{space.name}/{name} is gone", POD_SECONDS)


def ready(pods: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Those that a Service would send requests to."""
    return [
        pod
        for pod in pods
        if "deletionTimestamp" not in pod["metadata"]
        and any(one["type"] == "Ready" and one["status"] == "True" for one in pod["status"].get("conditions", []))
    ]


def files() -> dict[str, Any]:
    """The server and its model, mounted into the application's image."""
    with tempfile.TemporaryDirectory(prefix="raddle-model-") as folder:
        model = base64.b64encode(SMALL.file(Path(folder)).read_bytes()).decode()
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "serve"},
        "data": {"serve.py": SERVER.read_text()},
        "binaryData": {"model.onnx": model},
    }


def deployment(name: str, request_m: int, limit_m: int) -> dict[str, Any]:
    """One replica of the server, as a user writes it who thinks of no threads."""
    container = objects.container(
        cpu=f"{limit_m}m",
        request=f"{request_m}m",
        image=APP_IMAGE,
        imagePullPolicy="Never",
        command=[PYTHON, "/serve/serve.py", "/serve/model.onnx", str(PORT)],
        readinessProbe={"httpGet": {"path": "/ready", "port": PORT}, "periodSeconds": 2, "timeoutSeconds": 5},
        volumeMounts=[{"name": "serve", "mountPath": "/serve"}],
    )
    volumes = [{"name": "serve", "configMap": {"name": "serve"}}]
    return objects.deployment(
        name, 1, container, automountServiceAccountToken=False, terminationGracePeriodSeconds=5, volumes=volumes
    )


@dataclass(frozen=True, slots=True)
class Mark:
    """A moment of a load: its time, and what each container had used, by the pod's uid."""

    moment: float
    used: Mapping[str, Usage]


class Load:
    """Requests to the pods that are ready, and what these use meanwhile."""

    def __init__(self, offered: Offered, pods: Callable[[], list[dict[str, Any]]]) -> None:
        """Aim at the pods that are ready now."""
        self._offered = offered
        self._pods = pods
        self._first: dict[str, Usage] = {}
        self._latest: dict[str, Usage] = {}
        self._step()
        self._start = self.mark()
        self._end = self._start

    def during(self, seconds: float, sample: Callable[[], None] = lambda: None) -> None:
        """Go on for this long; `look` is called now and then."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            time.sleep(min(STEP_SECONDS, max(0.0, end - time.monotonic())))
            self._step()
            sample()
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
        used = usage.total(now.since(begin.used.get(uid, self._first[uid])) for uid, now in end.used.items())
        seconds = end.moment - begin.moment
        return Served(
            seconds=round(seconds, 1),
            requests=len(answers),
            failed=sum(not one.ok for one in answers),
            p50_ms=percentile_ms(answers, 50),
            p99_ms=percentile_ms(answers, 99),
            cpu_m=used.cpu_us / 1000 / seconds,
            throttled_percent=used.throttled_percent,
        )

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
        result = measure(number, request_m, request_m * LIMIT_M // REQUEST_M)
        rounds.append(result)
        if abs(result.target_m - request_m) < NEAR * request_m or result.target_m > allocatable_m:
            break
        request_m = result.target_m
    return rounds

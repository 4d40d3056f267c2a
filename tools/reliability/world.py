"""Where checks run: a cluster that they share, clusters of their own, Raddle's processes, and namespaces.

A check that ends or hurts part of the control plane takes a cluster of its own (`fresh_cluster`); one that only touches
Raddle's processes may use the shared one, since `raddle` starts again whatever of them is down.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Final, Self

import machines
from cluster import Cluster, namespaces, objects
from cluster.local_raddle import LocalRaddle
from cluster.namespaces import TestNamespace
from cluster.progress import Progress
from cluster.waiting import settled, wait

# Two sockets of 8 cores: fewer than a pod's limit of 20 CPUs, so that the values that are safe everywhere (20) and
# those of this node (16) differ.
NODE, SHAPE, LIMIT_CPUS, NODE_THREADS = "steady", "2s16c32t", 20, 16
# webhook.timeoutSeconds.pods of the chart, and what a call may take beyond it on a machine that has more to do.
CREATE_TIMEOUT_SECONDS, NOISE_SECONDS = 2, 2
CONFIGURATION_PATH = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/raddle"
# A group of its own for the shared webhook, so that its packets can be told from others'; several runs on one machine
# have several.
WEBHOOK_GROUP = 50_000 + os.getpid() % 10_000
_numbers = itertools.count()


class World:
    """What a check is given. `progress` is for what is going on; figures go into the Result."""

    def __init__(self, progress: Progress) -> None:
        """Describe it; nothing is started before it is asked for."""
        self.progress = progress
        self._shared = contextlib.ExitStack()
        self._cluster: Cluster | None = None
        self._raddle: LocalRaddle | None = None

    def __enter__(self) -> Self:
        """Return the world itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Stop what the checks have shared."""
        self._shared.close()

    def say(self, text: str) -> None:
        """Print a line about what goes on."""
        self.progress.say(f"  {text}")

    @property
    def cluster(self) -> Cluster:
        """Return the cluster that checks share, started at its first use: control plane, scheduler, controllers."""
        if self._cluster is None:
            self._cluster = self._shared.enter_context(Cluster(name="reliability", progress=self.progress))
        return self._cluster

    @property
    def raddle(self) -> LocalRaddle:
        """Return Raddle on the shared cluster, webhook and controller ready, one node (`NODE`) registered."""
        if self._raddle is None:
            prefixes = {"webhook": _in_group(WEBHOOK_GROUP)}
            self._raddle = self._shared.enter_context(self.raddle_on(self.cluster, prefixes=prefixes))
        for process in (self._raddle.webhook, self._raddle.controller):
            if process.pid is None:
                process.start()
            process.wait_ready()
        return self._raddle

    @contextlib.contextmanager
    def fresh_cluster(self, **options: Any) -> Iterator[Cluster]:
        """A cluster of a check's own; `options` are those of devcluster.Cluster."""
        with Cluster(name="reliability-own", progress=self.progress, **options) as cluster:
            yield cluster

    @contextlib.contextmanager
    def raddle_on(self, cluster: Cluster, *, node: bool = True, **options: Any) -> Iterator[LocalRaddle]:
        """Raddle on a cluster, with the registered node `NODE` unless told not to; `options` are LocalRaddle's.

        Unless told otherwise, its controller writes a policy's status every 0.5 s at most instead of every 10 s.
        """
        options.setdefault("controller_options", ["--status-interval-s", "0.5"])
        with LocalRaddle(cluster, **options) as raddle:
            if node:
                self.register_node(raddle)
                wait(
                    lambda: raddle.webhook.metric("raddle_webhook_cache_objects", kind="NodeCPUTopology") == 1,
                    "the webhook knows the node",
                )
            yield raddle

    def register_node(self, raddle: LocalRaddle) -> None:
        """Register `NODE` with its topology."""
        raddle.register_machine(NODE, machines.path(SHAPE), labels={"node": NODE}, pods=2000)

    @contextlib.contextmanager
    def governed_namespace(self, raddle: LocalRaddle) -> Iterator[TestNamespace]:
        """A new namespace whose pods get the values of a policy that the webhook knows; a pod made now is newer."""
        with self.namespace(raddle) as space:
            space.store(objects.policy())
            space.governed()
            next_second()
            yield space

    @contextlib.contextmanager
    def namespace(self, raddle: LocalRaddle, labels: Mapping[str, str] | None = None) -> Iterator[TestNamespace]:
        """A new namespace, opted in unless other labels are given; its pods are deleted at the end."""
        with namespaces.fresh(raddle, f"check-{next(_numbers)}", labels) as space:
            yield space


def count_missed(space: TestNamespace, wanted: int) -> int:
    """Return how many missed pods the policy's status counts, once that is as wanted or 30 s have passed."""

    def counted() -> int:
        # On a machine that is far too busy it may lose its Lease, and ends; a kubelet would start it again.
        if space.raddle.controller.pid is None:
            space.raddle.controller.start()
        return space.missed()

    return settled(counted, wanted)


def _in_group(group: int) -> list[str]:
    """A command's prefix that runs it in this group, nothing where that can't be had."""
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        return []
    return ["setpriv", "--regid", str(group), "--clear-groups"]


def next_second() -> None:
    """Wait for the next second: creation times are whole seconds, and a pod of its policy's own counts as older."""
    time.sleep(1.0 - time.time() % 1.0)


# --- objects for the node `NODE` --------------------------------------------------------------------------------------

# Without a kubelet nobody would confirm the end of a pod that has time to end.
_PLACED: Final[Mapping[str, Any]] = {"nodeSelector": {"node": NODE}, "terminationGracePeriodSeconds": 0}


def pod(
    name: str,
    *,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    containers: Sequence[Mapping[str, Any]] = (),
    **spec: Any,
) -> dict[str, Any]:
    """A pod for the node `NODE`; without containers it has one, `serve`, with a limit of `LIMIT_CPUS`."""
    given = {"app": "app", **(labels or {})}
    return objects.pod(*containers or _serve(), name=name, labels=given, annotations=annotations, **{**_PLACED, **spec})


def deployment(name: str, replicas: int, **spec: Any) -> dict[str, Any]:
    """A Deployment of such pods; `spec` is more of the pod's."""
    return objects.deployment(name, replicas, *_serve(), **{**_PLACED, **spec})


def _serve() -> list[dict[str, Any]]:
    return [objects.container(cpu=str(LIMIT_CPUS), request="1m")]

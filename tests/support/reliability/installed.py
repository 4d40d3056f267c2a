"""Raddle on a cluster with one registered node, and pods for that node."""

import contextlib
import os
import signal
import time
from collections import Counter

import machines
from cluster import Cluster, namespaces, objects
from cluster.background import Background
from cluster.local_raddle import LocalRaddle
from cluster.objects import injected, planned_for
from cluster.waiting import settled, wait

# Two sockets of 8 cores: fewer than a pod's limit of 20 CPUs, so that the values that are safe everywhere (20) and
# those of this node (16) differ.
NODE, SHAPE, LIMIT_CPUS, NODE_THREADS = "steady", "2s16c32t", 20, 16
# webhook.timeoutSeconds.pods of the chart, and what a call may take beyond it on a machine that has more to do.
CREATE_TIMEOUT_SECONDS, NOISE_SECONDS = 2, 2
CONFIGURATION_PATH = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/raddle"
# The controller writes a policy's status so often at most, instead of every 10 s.
STATUS_OPTIONS = ["--status-interval-s", "0.5"]
# Without a kubelet nobody would confirm the end of a pod that has time to end.
PLACED = {"nodeSelector": {"node": NODE}, "terminationGracePeriodSeconds": 0}


@contextlib.contextmanager
def installed(cluster, *, node=True, **options):
    """Raddle on a cluster, with the registered node `NODE` unless told not to; `options` are LocalRaddle's."""
    options.setdefault("controller_options", STATUS_OPTIONS)
    with LocalRaddle(cluster, **options) as raddle:
        if node:
            register_node(raddle)
            knows_the_node(raddle.webhook.metric, 1)
        yield raddle


@contextlib.contextmanager
def alone(*, cluster_options=None, **options):
    """A new cluster with Raddle (see `installed`), for what hurts the control plane; and a new namespace there."""
    with (
        Cluster(name="reliability-own", **cluster_options or {}) as cluster,
        installed(cluster, **options) as raddle,
        namespaces.fresh(raddle, "check") as space,
    ):
        yield space


def register_node(raddle):
    """Register `NODE` with its topology."""
    raddle.register_machine(NODE, machines.path(SHAPE), labels={"node": NODE}, pods=2000)


def knows_the_node(metric, webhooks):
    """Wait until so many webhooks, whose metrics `metric` sums up, know it."""
    wait(lambda: metric("raddle_webhook_cache_objects", kind="NodeCPUTopology") == webhooks, "the node is known")


def govern(space):
    """Give the namespace a policy that the webhook knows; a pod made now is newer than that."""
    space.store(objects.policy())
    space.governed()
    next_second()


def next_second():
    """Wait for the next second: creation times are whole seconds, and a pod of its policy's own counts as older."""
    time.sleep(1.0 - time.time() % 1.0)


def restart(process):
    """Start a process that has ended by itself, as a kubelet would; one that runs is left alone."""
    if process.pid is None:
        process.start()
    process.wait_ready()


@contextlib.contextmanager
def stopped(process):
    """A process that answers nothing although its port is open: SIGSTOP until the end of the block."""
    os.kill(process.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(process.pid, signal.SIGCONT)


def leads(process):
    """Whether a controller says that it leads; one that does not answer does not."""
    with contextlib.suppress(OSError):
        return process.metric("raddle_controller_leader") == 1
    return False


class LeaderWatch(Background):
    """Looks at controllers all the time, from `with` to the end; `both` counts moments with more than one leader."""

    def __init__(self, *processes):
        super().__init__()
        self._processes = processes
        self.looks = self.both = 0

    def run(self):
        while not self.end.wait(0.05):
            first = [one for one in self._processes if leads(one)]
            # Asked again: the first may have handed over between the two questions.
            if len(first) > 1 and all(map(leads, first)):
                self.both += 1
            self.looks += 1


def count_missed(space, wanted):
    """How many missed pods the policy's status counts, once that is as wanted or 30 s have passed."""

    def counted():
        # On a machine that is far too busy it may lose its Lease, and ends; a kubelet would start it again.
        if space.raddle.controller.pid is None:
            space.raddle.controller.start()
        return space.missed()

    return settled(counted, wanted)


def failed_open(client):
    """How many calls of Raddle's webhooks this API server process has given up, and let the request pass."""
    lines = [line for line in client.get("/metrics")["text"].splitlines() if "raddle.dev" in line]
    given_up = [line for line in lines if line.startswith("apiserver_admission_webhook_fail_open_count{")]
    return int(sum(float(line.rpartition(" ")[2]) for line in given_up))


# --- pods for the node ------------------------------------------------------------------------------------------------


def pod(name, *containers, labels=None, annotations=None, **spec):
    """A pod for the node `NODE`; without containers it has one, `serve`, with a limit of `LIMIT_CPUS`."""
    given = {"app": "app", **(labels or {})}
    return objects.pod(*containers or serve(), name=name, labels=given, annotations=annotations, **PLACED | spec)


def deployment(name, replicas, **spec):
    """A Deployment of such pods; `spec` is more of the pod's."""
    return objects.deployment(name, replicas, *serve(), **PLACED | spec)


def serve():
    return [objects.container(cpu=str(LIMIT_CPUS), request="1m")]


def became(pods):
    """Count pods by the values they have: `node` values, `safe` values, or `none`."""
    return Counter("none" if not injected(one) else "node" if planned_for(one) else "safe" for one in pods)

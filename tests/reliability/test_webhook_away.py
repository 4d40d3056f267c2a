"""The webhook's end and its silence while hundreds of pods are created: who waits, who is missed, who is told."""

import subprocess
import sys
import time

import pytest
from support.reliability.installed import CREATE_TIMEOUT_SECONDS, became, count_missed, deployment, govern, pod, stopped

from cluster.objects import injected
from cluster.waiting import wait

PODS, KILLED_AFTER = 500, 100
HUNG_ROLLOUTS = (100, 500)
# What a rollout may take longer than the bound: two of the same kind differ by seconds on a busy machine.
ROLLOUT_NOISE_SECONDS = 5.0
# More than any failure here may cost; what it did cost is in the figures.
PATIENCE_SECONDS = 120.0


class Rollout:
    """`replicas` pods of one Deployment, made by the real ReplicaSet controller and bound by the real scheduler."""

    def __init__(self, space, replicas):
        """Apply the Deployment; the clock starts now."""
        self._space, self._replicas, self._began_s = space, replicas, time.monotonic()
        space.store(deployment("rollout", replicas))

    def until_created(self, count=None):
        """Wait until so many pods (all) are there; the seconds since the start."""
        wanted = self._replicas if count is None else count
        wait(lambda: self._created() >= wanted, f"{wanted} pods are created", PATIENCE_SECONDS)
        return time.monotonic() - self._began_s

    def until_bound(self):
        """Wait until all pods are there and bound; the seconds since the start."""
        self.until_created()
        unbound = {"fieldSelector": "spec.nodeName="}
        wait(
            lambda: not self._space.client.get(self._space.pods_path, **unbound)["items"],
            "all pods are bound",
            PATIENCE_SECONDS,
        )
        return time.monotonic() - self._began_s

    def _created(self):
        """Count without reading them all: the server tells how many remain after a page of one."""
        page = self._space.client.get(self._space.pods_path, limit="1")
        return len(page["items"]) + int(page["metadata"].get("remainingItemCount", 0))


def explain(space, name):
    """What `raddle explain` says of a pod."""
    command = [sys.executable, "-m", "raddle_operator", "explain", name, "--namespace", space.name]
    command += ["--kubeconfig", str(space.cluster.kubeconfig)]
    return subprocess.run(command, check=False, capture_output=True, text=True).stdout


@pytest.mark.failure(
    "webhook-killed",
    f"The only webhook is killed (SIGKILL) while a Deployment of {PODS} pods is rolled out.",
    "No pod is blocked; those without values are counted by status and metric and named; later pods have values.",
)
def test_a_killed_webhook_blocks_no_pod_and_those_that_it_missed_are_counted_and_named(raddle, governed, figures):
    rollout = Rollout(governed, PODS)
    rollout.until_created(KILLED_AFTER)
    raddle.webhook.kill()
    created_s, bound_s = rollout.until_created(), rollout.until_bound()
    pods = governed.list()
    got = became(pods)
    missed = [one["metadata"]["name"] for one in pods if not injected(one)]
    counted = count_missed(governed, len(missed))
    metric = raddle.controller.metric("raddle_missed_pods", pod_namespace=governed.name)
    conditions = {one["type"]: one for one in governed.policy_status()["conditions"]}
    degraded = conditions["Degraded"]
    named = sum(name in degraded["message"] for name in missed)
    events = len(raddle.events(governed.name, "WebhookMissed"))
    figures |= {
        "pods": PODS,
        "created in": f"{created_s:.1f} s",
        "bound in": f"{bound_s:.1f} s",
        "blocked, so not there": PODS - len(pods),
        "with their node's values": got["node"],
        "with safe values": got["safe"],
        "without values": len(missed),
        "missed by status": counted,
        "missed by metric": f"{metric:.0f}",
        "named in the condition": named,
        "events": events,
    }
    assert len(pods) == PODS
    assert 0 < len(missed) < PODS, "it was to be killed while pods came"
    assert counted == metric == len(missed)
    assert (degraded["status"], degraded["reason"]) == ("True", "WebhookMissed")
    assert named > 0
    assert events > 0
    assert "WebhookMissed" in explain(governed, missed[-1])
    raddle.webhook.start().wait_ready()
    assert injected(governed.create(pod("later")))


@pytest.mark.failure(
    "webhook-hung",
    "The only webhook hangs (SIGSTOP) while a Deployment of 100 pods is rolled out, and one of 500.",
    f"Each of ⌊log2(N)⌋ + 1 batches waits {CREATE_TIMEOUT_SECONDS} s at most; all pods are created, and counted.",
)
def test_a_webhook_that_hangs_delays_each_batch_of_pods_by_its_timeout_at_most(raddle, new_space, figures):
    for replicas in HUNG_ROLLOUTS:
        with new_space() as space:
            govern(space)
            calm = Rollout(space, replicas)
            calm_created_s, calm_bound_s = calm.until_created(), calm.until_bound()
            calm_missed = became(space.list())["none"]
            space.remove_workloads()
            with stopped(raddle.webhook):
                rollout = Rollout(space, replicas)
                created_s, bound_s = rollout.until_created(), rollout.until_bound()
            missed = became(space.list())["none"]
            counted = count_missed(space, missed)
        most_s, delay_s = batches(replicas) * CREATE_TIMEOUT_SECONDS, created_s - calm_created_s
        figures |= {
            f"{replicas} pods created": f"{calm_created_s:.1f} s ({calm_missed} missed), hung {created_s:.1f} s",
            f"{replicas} pods bound": f"{calm_bound_s:.1f} s, hung {bound_s:.1f} s",
            f"{replicas} pods: delay, and batches × timeout": f"{delay_s:.1f} s, {most_s} s",
            f"{replicas} pods: missed, and counted": f"{missed}, {counted}",
        }
        assert missed == replicas, "the webhook was to give no values"
        assert counted == missed
        assert created_s >= most_s - CREATE_TIMEOUT_SECONDS, "each batch but the last was to wait"
        assert delay_s <= most_s + ROLLOUT_NOISE_SECONDS


def batches(replicas):
    """How many batches a ReplicaSet's controller creates its pods in: 1, 2, 4, … (slowStartBatch), so ⌊log2 N⌋ + 1."""
    return replicas.bit_length()


@pytest.mark.parametrize("replicas", [1, 2, 3, 4, 100, 500, 511, 512])
def test_a_replica_sets_pods_come_in_batches_that_double(replicas):
    sizes = [min(2**n, max(0, replicas - (2**n - 1))) for n in range(20)]
    assert sum(map(bool, sizes)) == batches(replicas)
    assert sum(sizes) == replicas

"""The webhook's end and its silence while hundreds of pods are created: who waits, who is missed, who is told."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Final

from cluster.local_raddle import Process
from cluster.namespaces import TestNamespace
from cluster.objects import injected
from reliability.model import Check, Result, broken_unless
from reliability.rollout import Rollout, became
from reliability.world import CREATE_TIMEOUT_SECONDS, World, count_missed, pod

PODS: Final = 500
KILLED_AFTER: Final = 100
HUNG_ROLLOUTS: Final = (100, 500)
ROLLOUT_NOISE_SECONDS: Final = 5.0
"""What a rollout may take longer than the bound: two of the same kind differ by seconds on a busy machine."""


def batches(replicas: int) -> int:
    """How many batches a ReplicaSet's controller creates its pods in: 1, 2, 4, … (slowStartBatch), so ⌊log2 N⌋ + 1."""
    return replicas.bit_length()


def killed(world: World) -> Result:
    """SIGKILL while a Deployment of 500 is rolled out."""
    raddle = world.raddle
    with world.governed_namespace(raddle) as space:
        rollout = Rollout(space, "rollout", PODS)
        rollout.until_created(KILLED_AFTER)
        raddle.webhook.kill()
        created_s, bound_s = rollout.until_created(), rollout.until_bound()
        pods = rollout.pods()
        got = became(pods)
        missed = [one["metadata"]["name"] for one in pods if not injected(one)]
        world.say(f"{len(pods)} pods bound after {bound_s:.1f} s, {len(missed)} without values")
        counted = count_missed(space, len(missed))
        metric = raddle.controller.metric("raddle_missed_pods", pod_namespace=space.name)
        degraded = _condition(space, "Degraded")
        named = sum(name in degraded.get("message", "") for name in missed)
        events = len(raddle.events(space.name, "WebhookMissed"))
        explained = bool(missed) and "WebhookMissed" in explain(space, missed[-1])
        raddle.webhook.start().wait_ready()
        later = space.create(pod("later"))
    figures = {
        "pods": str(PODS),
        "created in": f"{created_s:.1f} s",
        "bound in": f"{bound_s:.1f} s",
        "blocked, so not there": str(PODS - len(pods)),
        "with their node's values": str(got["node"]),
        "with safe values": str(got["safe"]),
        "without values": str(len(missed)),
        "missed by status": str(counted),
        "missed by metric": f"{metric:.0f}",
        "named in the condition": str(named),
        "events": str(events),
    }
    broken = broken_unless(
        all_pods_are_there=len(pods) == PODS,
        the_webhook_was_killed_while_pods_came=0 < len(missed) < PODS,
        the_status_counts_every_missed_pod=counted == len(missed),
        the_metric_counts_every_missed_pod=metric == len(missed),
        the_condition_Degraded_is_true_for_WebhookMissed=(degraded.get("status"), degraded.get("reason"))
        == ("True", "WebhookMissed"),
        the_condition_names_missed_pods=named > 0,
        an_event_says_so=events > 0,
        explain_says_of_the_last_pod_that_the_webhook_missed_it=explained,
        a_pod_created_after_the_restart_has_values=injected(later),
    )
    return Result(figures, broken)


def hung(world: World) -> Result:
    """SIGSTOP, for whole rollouts; the same rollouts without it before."""
    raddle = world.raddle
    figures: dict[str, str] = {}
    broken: tuple[str, ...] = ()
    for replicas in HUNG_ROLLOUTS:
        with world.governed_namespace(raddle) as space:
            calm = Rollout(space, "calm", replicas)
            calm_created_s, calm_bound_s = calm.until_created(), calm.until_bound()
            calm_got = became(calm.pods())
            calm.remove()
            with stopped(raddle.webhook):
                rollout = Rollout(space, "hung", replicas)
                created_s, bound_s = rollout.until_created(), rollout.until_bound()
            missed = sum(not injected(one) for one in rollout.pods())
            counted = count_missed(space, missed)
        bound_by_design_s = batches(replicas) * CREATE_TIMEOUT_SECONDS
        delay_s = created_s - calm_created_s
        world.say(f"{replicas} pods: {calm_created_s:.1f} s, hung {created_s:.1f} s, bound {bound_s:.1f} s")
        figures |= {
            f"{replicas} pods created": f"{calm_created_s:.1f} s ({calm_got['none']} missed), hung {created_s:.1f} s",
            f"{replicas} pods bound": f"{calm_bound_s:.1f} s, hung {bound_s:.1f} s",
            f"{replicas} pods: delay, and batches × timeout": f"{delay_s:.1f} s, {bound_by_design_s} s",
            f"{replicas} pods: missed, and counted": f"{missed}, {counted}",
        }
        held = broken_unless(
            all_pods_were_created_without_values=missed == replicas,
            all_of_them_are_counted=counted == missed,
            each_batch_but_the_last_waited=created_s >= (batches(replicas) - 1) * CREATE_TIMEOUT_SECONDS,
            the_delay_is_at_most_a_timeout_for_each_batch=delay_s <= bound_by_design_s + ROLLOUT_NOISE_SECONDS,
        )
        broken += tuple(f"{replicas} pods: {sentence}" for sentence in held)
    return Result(figures, broken)


@contextlib.contextmanager
def stopped(process: Process) -> Iterator[None]:
    """A process that answers nothing although its port is open: SIGSTOP until the end of the block."""
    assert process.pid is not None
    os.kill(process.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(process.pid, signal.SIGCONT)


def explain(space: TestNamespace, name: str) -> str:
    """What `raddle explain` says of a pod."""
    command = [sys.executable, "-m", "raddle_operator", "explain", name, "--namespace", space.name]
    command += ["--kubeconfig", str(space.cluster.kubeconfig)]
    return subprocess.run(command, check=False, capture_output=True, text=True).stdout


def _condition(space: TestNamespace, kind: str) -> dict[str, str]:
    found = (item for item in space.policy_status().get("conditions", []) if item["type"] == kind)
    return next(found, {})


CHECKS: Final = (
    Check(
        "webhook-killed",
        f"The only webhook is killed (SIGKILL) while a Deployment of {PODS} pods is rolled out.",
        "No pod is blocked; those without values are counted by status and metric and named; later pods have values.",
        killed,
    ),
    Check(
        "webhook-hung",
        "The only webhook hangs (SIGSTOP) while a Deployment of 100 pods is rolled out, and one of 500.",
        f"Each of ⌊log2(N)⌋ + 1 batches waits {CREATE_TIMEOUT_SECONDS} s at most; all pods are created, and counted.",
        hung,
    ),
)

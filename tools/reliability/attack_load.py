"""One tenant makes as much of everything as it may: policies, annotations. What others notice of it is measured."""

from __future__ import annotations

import functools
import itertools
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from cluster import ApiError
from cluster.local_raddle import LocalRaddle
from cluster.namespaces import TestNamespace
from cluster.objects import governed_by, injected, policy
from cluster.waiting import wait
from reliability.attackers import (
    CREATE_SECONDS,
    MIB,
    UNPROCESSABLE,
    WEBHOOK_BYTES,
    Usage,
    create_seconds,
    median_ms,
    median_s,
    unharmed,
)
from reliability.model import Check, Result, broken_unless
from reliability.world import World, pod

CREATORS: Final = 4
STATUS_SECONDS: Final = 15.0
CONTROLLER_BYTES: Final = 512 * MIB
"""The chart's memory limit."""
SETTLED_SECONDS: Final = 120.0
"""The tenant's own statuses are waited for so long: how fast they come is promised to nobody."""
_priorities = itertools.count(1)


def crowd(world: World, raddle: LocalRaddle, policies: int) -> Result:
    """One namespace gets so many policies as fast as four clients can write them; what another one notices."""
    with unharmed(raddle), world.namespace(raddle) as ours, world.namespace(raddle) as hostile:
        ours.store(policy())
        ours.governed()
        processes = {"webhook": raddle.webhook.pid, "controller": raddle.controller.pid}
        before = {name: Usage.of(pid) for name, pid in processes.items()}
        alone_s, status_alone_s = create_seconds(ours), status_seconds(ours)
        began_s = time.monotonic()
        with ThreadPoolExecutor(CREATORS) as pool:
            adding = [pool.submit(_add, hostile, range(first, policies, CREATORS)) for first in range(CREATORS)]
            meanwhile_s, status_meanwhile_s = create_seconds(ours), status_seconds(ours)
            for one in adding:
                one.result()
        created_s = time.monotonic() - began_s
        known = functools.partial(raddle.webhook.metric, "raddle_webhook_cache_objects", kind="InferenceThreading")
        wait(lambda: known() > policies, "the webhook knows them all", SETTLED_SECONDS)
        have_status = settle(hostile, policies)
        settled_s = time.monotonic() - began_s
        after_s, status_after_s = create_seconds(ours), status_seconds(ours)
        used = {name: Usage.of(pid) for name, pid in processes.items()}
        # Of policies of one age the names decide which 100 are evaluated: the first is one of them, the last is not.
        oldest, newest = (hostile.probe(crowds_pod(number)) for number in (0, policies - 1))
    figures = {
        "policies": str(policies),
        "created in": f"{created_s:.0f} s",
        "have a status": f"{have_status} after {settled_s:.0f} s",
        "another tenant's create (median) before, meanwhile, after": _three(alone_s, meanwhile_s, after_s),
        "its policy's change to status before, meanwhile, after": (
            f"{status_alone_s:.1f} s, {status_meanwhile_s:.1f} s, {status_after_s:.1f} s"
        ),
    }
    for name, usage in used.items():
        figures[f"{name}'s memory before, after"] = (
            f"{before[name].memory_bytes / MIB:.0f} MiB, {usage.memory_bytes / MIB:.0f} MiB"
        )
        figures[f"{name}'s CPU time"] = f"{usage.cpu_s - before[name].cpu_s:.0f} s"
    return Result(
        figures,
        broken_unless(
            another_tenants_create_stays_below_1_s=max(map(median_s, (meanwhile_s, after_s))) < CREATE_SECONDS,
            another_tenants_status_comes_within_15_s=max(status_meanwhile_s, status_after_s) < STATUS_SECONDS,
            the_controller_is_within_its_memory_limit_afterwards=used["controller"].memory_bytes < CONTROLLER_BYTES,
            the_webhook_is_within_its_memory_limit_afterwards=used["webhook"].memory_bytes < WEBHOOK_BYTES,
            the_oldest_policy_governs_its_pods=governed_by(oldest) == "InferenceThreading/p0",
            a_policy_beyond_the_oldest_100_governs_nothing=not injected(newest),
        ),
    )


def _add(space: TestNamespace, numbers: range) -> None:
    with space.cluster.new_client() as client:
        path = f"/apis/raddle.dev/v1alpha1/namespaces/{space.name}/inferencethreadings"
        for number in numbers:
            client.post(path, crowds_policy(number))


def crowds_policy(number: int) -> dict[str, Any]:
    """A policy of the crowd, for the pods of one app that no other policy selects."""
    return policy(f"p{number}", podSelector={"matchLabels": {"app": f"a{number}"}})


def crowds_pod(number: int) -> dict[str, Any]:
    """A pod that this policy of the crowd selects."""
    return pod("probe", labels={"app": f"a{number}"})


def _three(*measured: list[float]) -> str:
    return ", ".join(map(median_ms, measured))


def status_seconds(space: TestNamespace) -> float:
    """Seconds from a change of the policy until its status is of that change."""
    changed = space.client.merge(_policies(space) + "/policy", {"spec": {"priority": next(_priorities)}})
    generation, began_s = changed["metadata"]["generation"], time.monotonic()
    wait(
        lambda: space.policy_status().get("observedGeneration") == generation,
        "the status is of the present generation",
        120,
    )
    return time.monotonic() - began_s


def settle(space: TestNamespace, count: int) -> int:
    """Wait a while until so many policies of a namespace have a status; return how many have."""
    deadline_s = time.monotonic() + SETTLED_SECONDS
    while (found := _with_status(space)) < count and time.monotonic() < deadline_s:
        time.sleep(min(2.0, count / 1000))
    return found


def _with_status(space: TestNamespace) -> int:
    found, more = 0, ""
    while True:
        page = space.client.get(_policies(space), limit="1000", **({"continue": more} if more else {}))
        found += sum("conditions" in one.get("status", {}) for one in page["items"])
        more = page["metadata"].get("continue", "")
        if not more:
            return found


def _policies(space: TestNamespace) -> str:
    return f"/apis/raddle.dev/v1alpha1/namespaces/{space.name}/inferencethreadings"


def big_annotation(world: World, raddle: LocalRaddle, pods: int) -> Result:
    """Pods with an annotation of a MiB, one after the other, while another tenant creates pods."""
    with unharmed(raddle), world.namespace(raddle) as ours, world.namespace(raddle) as hostile:
        ours.store(policy())
        hostile.store(policy())
        ours.governed()
        hostile.governed()
        skipped = functools.partial(raddle.webhook.metric, "raddle_webhook_requests_total", reason="AnnotationBudget")
        before, alone_s = skipped(), create_seconds(ours)
        with ThreadPoolExecutor(1) as pool:
            flooding = pool.submit(_flood, hostile, pods)
            meanwhile_s = create_seconds(ours)
            refused = flooding.result()
        left_alone = int(skipped() - before)
    figures = {
        "pods with a MiB": str(pods),
        "refused by the API server": str(refused),
        "left alone by Raddle (AnnotationBudget)": str(left_alone),
        "another tenant's create (median) before, meanwhile": _three(alone_s, meanwhile_s),
    }
    return Result(
        figures,
        broken_unless(
            every_one_is_refused_by_the_api_server=refused == pods,
            raddle_leaves_each_alone=left_alone >= pods,
            another_tenants_create_stays_below_1_s=median_s(meanwhile_s) < CREATE_SECONDS,
        ),
    )


def _flood(space: TestNamespace, count: int) -> int:
    huge, refused = pod("huge", annotations={"big": "x" * MIB}), 0
    with space.cluster.new_client() as client:
        for _ in range(count):
            try:
                client.post(space.pods_path, huge)
            except ApiError as error:
                refused += error.status == UNPROCESSABLE and "metadata.annotations" in str(error)
    return refused


def _crowd_of_10000(world: World) -> Result:
    with world.fresh_cluster() as cluster, world.raddle_on(cluster) as raddle:
        return crowd(world, raddle, 10_000)


CHECKS: Final = (
    Check(
        "policies-crowd",
        "One namespace gets 10,000 policies at full speed.",
        "Another tenant's create stays below 1 s and its status comes within 15 s; Raddle ends within the memory limits"
        " of the chart; the oldest 100 hold.",
        _crowd_of_10000,
        "attack",
    ),
    Check(
        "annotation-mebibyte",
        "Pods with an annotation of a MiB are created one after the other.",
        "The API server refuses them, Raddle leaves them alone, and another tenant's create stays below 1 s.",
        lambda world: big_annotation(world, world.raddle, 50),
        "attack",
    ),
)

"""Any pod at all: generated ones and their reviews through the code that answers, and a sample on an API server."""

from __future__ import annotations

import copy
import random
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from typing import Any, Final

from cluster import ApiError
from cluster.local_raddle import LocalRaddle
from cluster.objects import injected, policy
from fuzz import podmaker, reviews
from raddle import env
from reliability.attack_users import IMAGE
from reliability.attackers import unharmed
from reliability.model import Check, Result, broken_unless
from reliability.world import World

FIRST_WORLD: Final = 2_000_000
"""Seeds that `make fuzz` does not try."""
TASKS: Final = 20
SHIMS: Final = ("Auto", "InitContainer")
MORE: Final = {"NODE_OPTIONS": "", "LD_PRELOAD": "", "JAVA_TOOL_OPTIONS": ""}


def generated(count: int) -> tuple[int, list[tuple[int, int, str]]]:
    """Try about so many reviews in processes; how many there were, and (seed, case, what does not hold)."""
    worlds = -(-count // reviews.CASES_A_WORLD)
    last, step = FIRST_WORLD + worlds, -(-worlds // TASKS)
    with ProcessPoolExecutor() as pool:
        tasks = [range(start, min(start + step, last)) for start in range(FIRST_WORLD, last, step)]
        return worlds * reviews.CASES_A_WORLD, [one for found in pool.map(reviews.failures, tasks) for one in found]


def on_a_real_api_server(world: World, raddle: LocalRaddle, pods: int) -> Result:
    """Create generated pods by dry run, left alone by Raddle and then not, with each way to deliver the shim."""
    taken, changed, refused, unequal = 0, 0, list[str](), list[str]()
    with unharmed(raddle):
        for shim in SHIMS:
            with world.namespace(raddle) as space:
                space.store(policy(shim=shim, reports=True, nativeShim="Preload", imageEnv=MORE))
                space.governed()
                for body in _plausible(space.probe, pods):
                    taken += 1
                    try:
                        made = space.probe(_opted(body, "enabled"))
                    except ApiError as error:
                        refused.append(f"shim {shim}: {error}")
                        continue
                    changed += injected(made)
                    if injected(made) and not _same(made, space.probe(_again(made))):
                        unequal.append(f"shim {shim}: a second review changes {body['spec']}")
    figures = {
        "pods that a real API server takes": str(taken),
        "changed by Raddle": str(changed),
        "refused for it": str(len(refused)),
        "changed again by a second review": str(len(unequal)),
    }
    sentences = broken_unless(enough_of_them_are_changed=changed > taken / 4)
    return Result(figures, (*(text[:300] for text in (*refused, *unequal)), *sentences))


def _plausible(probe: Any, count: int) -> list[dict[str, Any]]:
    """So many generated pods that the API server takes as they are."""
    found: list[dict[str, Any]] = []
    for seed in range(count * 50):
        body = _prepared(podmaker.pod(random.Random(f"sample {seed}")))
        if len(found) == count:
            break
        if "resources" in body["spec"] or not _is_plausible(body["spec"]):
            continue
        try:
            probe(_opted(body, "disabled"))
        except ApiError:
            continue
        found.append(body)
    return found


def _prepared(body: dict[str, Any]) -> dict[str, Any]:
    body["metadata"] = {**body["metadata"], "name": "sample"}
    body["spec"].pop("nodeName", None)
    for one in [*body["spec"]["containers"], *body["spec"].get("initContainers", [])]:
        one["image"] = one.get("image") or IMAGE
        one["resources"] = {"limits": {"cpu": "2"}}
    labels = body["metadata"].get("labels", {})
    body["metadata"]["labels"] = {key: text for key, text in labels.items() if key != env.POLICY_LABEL}
    return body


def _opted(body: Mapping[str, Any], choice: str) -> dict[str, Any]:
    metadata = body["metadata"]
    return {**body, "metadata": {**metadata, "labels": {**metadata["labels"], env.INJECT_LABEL: choice}}}


def _again(made: Mapping[str, Any]) -> dict[str, Any]:
    """The stored pod as somebody would create a copy of it."""
    body = copy.deepcopy(dict(made))
    for key in ("uid", "creationTimestamp", "managedFields", "generation"):
        body["metadata"].pop(key, None)
    return body


def _same(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    return all(one["metadata"].get(key) == other["metadata"].get(key) for key in ("labels", "annotations")) and (
        _spec(one) == _spec(other)
    )


def _spec(one: Mapping[str, Any]) -> dict[str, Any]:
    """The spec, in which lists of named things have no order."""
    spec = copy.deepcopy(dict(one["spec"]))
    for container in [*spec["containers"], *spec.get("initContainers", [])]:
        container["env"] = sorted(map(str, container.get("env", [])))
        container["volumeMounts"] = sorted(map(str, container.get("volumeMounts", [])))
    spec["volumes"] = sorted(map(str, spec.get("volumes", [])))
    return spec


def _is_plausible(spec: Mapping[str, Any]) -> bool:
    """Whether names are used once and mounts have their volumes: most others the API server refuses anyhow."""
    containers = [*spec["containers"], *spec.get("initContainers", [])]
    names = [one["name"] for one in containers]
    volumes = [one["name"] for one in spec.get("volumes", [])]
    mounts = [mount for one in containers for mount in one.get("volumeMounts", [])]
    return (
        len(set(names)) == len(names)
        and len(set(volumes)) == len(volumes)
        and {mount["name"] for mount in mounts} <= set(volumes)
    )


def any_pod(world: World, count: int, pods: int) -> Result:
    """Generated reviews through the code that answers, and generated pods through a real API server."""
    tried, failures = generated(count)
    real = on_a_real_api_server(world, world.raddle, pods)
    figures = {"generated reviews": str(tried), "that break a rule": str(len(failures)), **real.figures}
    return Result(
        figures, (*(f"seed {seed}, case {case}: {text[:200]}" for seed, case, text in failures), *real.broken)
    )


CHECKS: Final = (
    Check(
        "any-pod",
        "Pods, bindings and reviews are generated, forged and mutilated (`make fuzz`: a million).",
        "Every answer allows, every patch applies, also on a real API server, and a second review changes nothing.",
        lambda world: any_pod(world, 10_000, 100),
        "attack",
    ),
)

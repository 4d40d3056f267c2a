"""Fuzzes the webhook's answers: random pods, policies and reviews of them.

A seed is a small cluster (policies, nodes, settings) and CASES_A_WORLD reviews of it, as bytes through the very code
that answers the API server. For each: the answer allows and carries the uid; nothing failed open; the patch applies, by
jsonpatch; and a review of what came out is answered without a patch.
"""

from __future__ import annotations

import asyncio
import json
import logging
import random
from base64 import b64decode
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import jsonpatch

from raddle_operator.webhook.admission import Admission
from raddle_operator.webhook.caches import Caches
from raddle_operator.webhook.decision_log import DecisionLog
from raddle_operator.webhook.metrics import WebhookMetrics
from raddle_operator.webhook.review import UnreadableError
from raddle_operator.webhook.settings import WebhookSettings
from raddle_operator.webhook.sources import MemorySources
from support import podmaker

CASES_A_WORLD = 200
POD = {"group": "", "version": "v1", "resource": "pods"}


class KnownCluster:
    """One cluster as the webhook knows it. `answer` is what it says to a review."""

    def __init__(self, choice: random.Random) -> None:
        """Describe it by random choices."""
        memory = MemorySources.empty()
        for policy in podmaker.policies(choice):
            (memory.cluster_policies if policy["kind"].startswith("Cluster") else memory.policies).put(policy)
        for namespace in podmaker.namespaces():
            memory.namespaces.put(namespace)
        for topology in podmaker.topologies(choice):
            memory.topologies.put(topology)
        for shim in podmaker.shims(choice):
            memory.shims.put(shim)
        settings = WebhookSettings(tls_dir=Path(), arrival_wait_s=0.0, lookup_timeout_s=0.0)
        self.memory = memory
        self.metrics = WebhookMetrics()
        self._admission = Admission(settings, Caches(memory.sources()), None, self.metrics, DecisionLog(0.0))
        self._failed_open = 0.0

    def failed_open(self) -> bool:
        """Tell whether the webhook has failed open since the last call, whatever its answers said of it."""
        # Of this counter alone: to collect the whole registry takes longer than to answer.
        before, self._failed_open = self._failed_open, next(iter(self.metrics.fail_open.collect())).samples[0].value
        return self._failed_open > before

    async def answer(self, path: str, body: bytes) -> dict[str, Any]:
        """Return the answer's response."""
        deadline_s = asyncio.get_running_loop().time() + 60
        ask = self._admission.binding if path == "binding" else self._admission.pod
        found = json.loads(await ask(body, deadline_s))
        if found.keys() != {"apiVersion", "kind", "response"}:
            raise AssertionError(f"the answer has {sorted(found)}")
        return dict(found["response"])


def review(obj: Any, *, namespace: str, name: str, uid: str, subresource: str = "") -> dict[str, Any]:
    """Return the AdmissionReview of an object's creation."""
    request = {"uid": uid, "resource": POD, "subResource": subresource, "namespace": namespace, "name": name}
    request |= {"operation": "CREATE", "object": obj}
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}


def patch_of(response: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the operations of a response, [] for none."""
    return json.loads(b64decode(response["patch"])) if "patch" in response else []


async def problems(world: KnownCluster, choice: random.Random) -> Iterator[str]:
    """Try one review; what does not hold, in words."""
    if choice.random() < 0.15:
        return iter(await _binding(world, choice))
    pod = podmaker.pod(choice)
    if choice.random() < 0.15:
        pod = podmaker.mutilated(pod, choice)
    return iter(await _pod(world, pod, choice))


async def _pod(world: KnownCluster, pod: Any, choice: random.Random) -> list[str]:
    namespace = choice.choice(podmaker.USED)
    name = choice.choice(("", "p"))
    uid = f"{choice.getrandbits(64):x}"
    body = json.dumps(review(pod, namespace=namespace, name=name, uid=uid)).encode()
    try:
        response = await world.answer("pods", body)
    except UnreadableError:
        return []  # an unpaired surrogate: no JSON to the parser
    found = _of_any_answer(world, response, uid)
    operations = patch_of(response)
    if not operations:
        return found
    patched = jsonpatch.apply_patch(pod, operations)
    body = json.dumps(review(patched, namespace=namespace, name=name, uid=uid)).encode()
    again = await world.answer("pods", body)
    if patch_of(again):
        found.append(f"the second answer has a patch: {str(patch_of(again))[:300]}")
    return found + _of_any_answer(world, again, uid)


async def _binding(world: KnownCluster, choice: random.Random) -> list[str]:
    """Bind a pod that the webhook has injected, or one whose annotations are anything."""
    pod = podmaker.pod(choice)
    metadata = pod["metadata"] | {"uid": "u", "name": "bound", "namespace": podmaker.NAMESPACES[0]}
    pod = {**pod, "metadata": metadata}
    made = await world.answer(
        "pods", json.dumps(review(pod, namespace=metadata["namespace"], name="", uid="u")).encode()
    )
    stored = jsonpatch.apply_patch(pod, patch_of(made))
    world.memory.unbound.put(stored)
    binding: Any = {"metadata": {"name": "bound", "uid": "u"}, "target": {"name": choice.choice(podmaker.NODES)}}
    if choice.random() < 0.3:
        binding = podmaker.mutilated(binding, choice)
    body = review(binding, namespace=metadata["namespace"], name="", uid="u", subresource="binding")
    try:
        response = await world.answer("binding", json.dumps(body).encode())
    except UnreadableError:
        return []
    found = _of_any_answer(world, response, "u")
    bound = jsonpatch.apply_patch(binding, patch_of(response))
    if patch_of(response):
        before = stored["metadata"].get("annotations") or {}
        new = (bound["metadata"].get("annotations") or {}).keys() - (
            binding["metadata"].get("annotations") or {}
        ).keys()
        if not new <= before.keys():
            found.append(f"the binding adds {sorted(new - before.keys())}")
    return found


def _of_any_answer(world: KnownCluster, response: dict[str, Any], uid: str) -> list[str]:
    found = []
    if response.get("allowed") is not True:
        found.append(f"not allowed: {str(response)[:300]}")
    if response.get("uid") != uid:
        found.append(f"answers to {response.get('uid')!r} instead of {uid!r}")
    decision = response.get("auditAnnotations", {}).get("decision", "")
    if world.failed_open() or decision.startswith("failed_open"):
        found.append(f"an exception: {decision}")
    return found


def failures(seeds: Iterable[int]) -> list[tuple[int, int, str]]:
    """(seed, case, what does not hold) for these seeds, in order."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        return asyncio.run(_failures(seeds))
    finally:
        logging.disable(before)


async def _failures(seeds: Iterable[int]) -> list[tuple[int, int, str]]:
    found = []
    for seed in seeds:
        world = KnownCluster(random.Random(f"world {seed}"))
        for number in range(CASES_A_WORLD):
            try:
                sentences = [*await problems(world, random.Random(f"{seed} {number}"))]
            except Exception as error:  # noqa: BLE001 (that none is raised is what is tested)
                sentences = [f"raised {error!r}"]
            found += [(seed, number, sentence) for sentence in sentences]
    return found

"""From a review's bytes to the answer's: the pure decisions, fed from the caches. Whatever fails, the pod passes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from typing import Final

from raddle.cpus.topology import Machine
from raddle_operator.injection import binding, decide, shipped
from raddle_operator.injection.binding import BindingOutcome
from raddle_operator.injection.claims import Claimed
from raddle_operator.injection.decide import Facts
from raddle_operator.kube import Kube
from raddle_operator.objects.reading import SpecError, mapping, text
from raddle_operator.objects.reasons import SkipReason
from raddle_operator.webhook import review as reviews
from raddle_operator.webhook import verdict
from raddle_operator.webhook.caches import Caches
from raddle_operator.webhook.decision_cache import DecisionCache, template_key
from raddle_operator.webhook.decision_log import DecisionLog
from raddle_operator.webhook.lookup import Lookup, LookupFailedError
from raddle_operator.webhook.metrics import WebhookMetrics
from raddle_operator.webhook.review import Review, UnsupportedReview
from raddle_operator.webhook.settings import WebhookSettings
from raddle_operator.webhook.sources import Unbound
from raddle_operator.webhook.verdict import ErrorName, Outcome, Verdict


class _Machines(Mapping[str, Machine]):
    """The machines of nodes whose facts are fresh, as a view of the caches."""

    def __init__(self, caches: Caches) -> None:
        self._caches = caches

    def __getitem__(self, name: str) -> Machine:
        facts = self._caches.node(name)
        if facts is None or not facts.fresh:
            raise KeyError(name)
        return facts.shape.machine

    def __iter__(self) -> Iterator[str]:
        return (name for name in self._caches.nodes() if name in self)

    def __len__(self) -> int:
        return sum(1 for _ in self)


class Admission:
    """Answers reviews of pods and of bindings."""

    def __init__(
        self,
        settings: WebhookSettings,
        caches: Caches,
        kube: Kube | None,
        metrics: WebhookMetrics,
        decision_log: DecisionLog,
    ) -> None:
        self._caches: Final = caches
        self._lookup: Final = Lookup(settings, caches, kube)
        self._metrics: Final = metrics
        self._log: Final = decision_log
        self._machines: Final = _Machines(caches)
        self._decided: Final[DecisionCache[Verdict]] = DecisionCache()
        shim = shipped.shim()
        self._config_map: Final = shim.config_map or ""
        self._settings: Final = decide.Settings(
            shim=shim, door=settings.door, unlabelled=settings.default_inject, agent=settings.agent_address
        )

    async def pod(self, body: bytes, deadline_s: float) -> bytes:
        """Answers the review of a pod's creation. Raises UnreadableError only."""
        review = reviews.read(body, reviews.POD)
        try:
            result = await self._of_pod(review, deadline_s)
        except Exception as error:  # noqa: BLE001 (the contract: a pod is never denied because of us)
            result = self._failed("pods", error)
        return self._answer("pods", review, result)

    async def binding(self, body: bytes, deadline_s: float) -> bytes:
        """Answers the review of a binding, by the deadline at the latest. Raises UnreadableError only."""
        review = reviews.read(body, reviews.BINDING)
        try:
            result = await self._of_binding(review, deadline_s)
        except Exception as error:  # noqa: BLE001 (as above)
            result = self._failed("binding", error)
        self._metrics.binding(_binding_outcome(result))
        return self._answer("binding", review, result)

    async def _of_pod(self, review: Review, deadline_s: float) -> Verdict:
        """The verdict on a pod; on one of a known namespace perhaps an equal one's."""
        if review.problem is not None:
            return verdict.of(Outcome.FOREIGN, review.problem)
        if not self._caches.synced:
            return verdict.of(Outcome.SKIPPED, SkipReason.CACHES_NOT_READY)
        key, labels = None, self._caches.namespace_labels(review.namespace)
        if labels is not None:
            key = template_key(review.namespace, review.obj)
        else:
            try:
                async with asyncio.timeout_at(deadline_s):
                    labels = await self._lookup.namespace(review.namespace)
            except LookupFailedError as error:
                return verdict.of(Outcome.SKIPPED, SkipReason.NAMESPACE_UNKNOWN, error.reason)
            except TimeoutError:
                return verdict.of(Outcome.SKIPPED, SkipReason.NAMESPACE_UNKNOWN, "Deadline")
        version = self._caches.version
        result = self._decided.get(key, version) if key is not None else None
        if result is not None:
            return result
        facts = Facts(
            smallest_cores=self._caches.smallest_cores,
            machines=self._machines,
            config_map_present=self._caches.has_config_map(review.namespace, self._config_map),
            architectures=self._caches.architectures,
            tunings=self._caches.tunings,
        )
        result = verdict.of_pod(
            decide.decide_object(review.obj, review.namespace, labels, self._caches.policies, facts, self._settings)
        )
        if key is not None:
            self._decided.put(key, version, result)
        return result

    async def _of_binding(self, review: Review, deadline_s: float) -> Verdict:
        if review.problem is not None:
            return verdict.of(Outcome.FOREIGN, review.problem)
        try:
            metadata, target = mapping(review.obj, "metadata", ""), mapping(review.obj, "target", "")
            name = review.name or text(metadata, "name", "metadata")
            node, uid = text(target, "name", "target"), text(metadata, "uid", "metadata")
        except SpecError as error:
            return verdict.of(Outcome.FOREIGN, UnsupportedReview.MALFORMED_REQUEST, str(error))
        if not name or not node:
            return verdict.of(
                Outcome.FOREIGN, UnsupportedReview.MALFORMED_REQUEST, "metadata.name or target.name is empty"
            )
        if not self._caches.synced:
            return verdict.of(Outcome.SKIPPED, BindingOutcome.CACHES_NOT_READY)
        try:
            async with asyncio.timeout_at(deadline_s):
                pod = await self._lookup.unbound(review.namespace, name, uid)
        except LookupFailedError as error:
            return verdict.of(Outcome.SKIPPED, BindingOutcome(f"Pod{error.reason}"), f"node {node}")
        except TimeoutError:
            return verdict.of(Outcome.SKIPPED, BindingOutcome.DEADLINE, f"node {node}")
        if pod is None:
            return verdict.of(Outcome.SKIPPED, BindingOutcome.NOT_INJECTED)
        facts = self._caches.node(node)
        if facts is not None and not facts.fresh:
            return verdict.of(Outcome.SKIPPED, BindingOutcome.TOPOLOGY_STALE, f"node {node}")
        machine = None if facts is None else facts.shape.machine
        claimed, unread = await self._claimed(pod, review.namespace, name, deadline_s) if machine else ({}, "")
        result = binding.rebind(
            pod.annotations,
            node,
            machine,
            namespace=review.namespace,
            tunings=self._caches.tunings,
            claimed=claimed,
            other_bytes=pod.other_bytes,
        )
        return verdict.of(
            Outcome.CHANGED if result.annotations else Outcome.SKIPPED,
            result.outcome,
            " ".join(filter(None, (f"node {node}", unread, result.detail))),
            operations=binding.operations(review.obj, result.annotations),
        )

    async def _claimed(
        self, pod: Unbound, namespace: str, name: str, deadline_s: float
    ) -> tuple[Mapping[str, Claimed], str]:
        """The CPUs of the pod's ResourceClaims, nothing where it has none; and why they could not be read, "" if so."""
        if not binding.has_claims(pod.annotations):
            return {}, ""
        try:
            async with asyncio.timeout_at(deadline_s):
                return await self._lookup.claimed(namespace, name), ""
        except LookupFailedError as error:
            return {}, f"claims {error.reason}"
        except TimeoutError:
            return {}, "claims Deadline"

    def _failed(self, path: str, error: Exception) -> Verdict:
        self._metrics.fail_open.inc()
        self._log.failure(path, error)
        return verdict.of(Outcome.FAILED_OPEN, ErrorName(type(error).__name__))

    def _answer(self, path: str, review: Review, result: Verdict) -> bytes:
        self._metrics.request(path, result.decision, result.reason)
        for reason in result.withheld:
            self._metrics.withheld(reason)
        self._log.decision(path, result.decision, result.reason, review.namespace, _name(review), result.detail)
        return verdict.answer(review.uid, result)


def _binding_outcome(result: Verdict) -> BindingOutcome:
    if isinstance(result.reason, BindingOutcome):
        return result.reason
    return BindingOutcome.FOREIGN if result.decision is Outcome.FOREIGN else BindingOutcome.FAILED_OPEN


def _name(review: Review) -> str:
    """The name for the log: a pod that is yet to get one shows the beginning of it."""
    if review.name or not isinstance(review.obj, dict):
        return review.name
    metadata = review.obj.get("metadata")
    begin = metadata.get("generateName") if isinstance(metadata, dict) else None
    return begin if isinstance(begin, str) else ""
